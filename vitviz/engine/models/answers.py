"""What two models say to the same noise: the proof that a copy is a copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitviz.errors import UnsupportedModel, VitvizError, said

_ALIKE = {torch.float32: 1e-4, torch.float64: 1e-4}  # of the largest answer; of halves a twentieth


def tolerance(model: nn.Module) -> float:
    return _ALIKE.get(next(model.parameters()).dtype, 0.05)


def _noise(size: tuple[int, int]) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))


def answers_of(model: nn.Module, size: tuple[int, int], kind: str) -> Tensor:
    """What a model of somebody else's says to two pictures of noise; every module's mode stays as it was."""
    modes = [(module, module.training) for module in model.modules()]
    first = next(model.parameters())
    try:
        model.eval()
        with torch.no_grad():
            found: Any = model(_noise(size).to(first.device, first.dtype))
    except VitvizError:
        raise
    except Exception as error:  # anybody's code
        raise UnsupportedModel(
            f"{kind} cannot be asked for an answer to a batch of two pictures of {size[0]} x {size[1]}"
            f" pixels: {said(error)}."
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    for key in ("logits", "last_hidden_state"):
        if isinstance(getattr(found, key, None), Tensor):
            found = getattr(found, key)
    found = (
        next((one for one in found if isinstance(one, Tensor)), None)
        if isinstance(found, tuple | list)
        else found
    )
    if not isinstance(found, Tensor) or found.ndim not in (2, 3):
        raise UnsupportedModel(
            f"{kind} answers with a {type(found).__name__}, where scores of classes were expected."
        )
    return found.detach().to("cpu", torch.float32)


def own_answers(model: nn.Module, size: tuple[int, int], theirs: Tensor) -> Tensor:
    """The same of ours: its classifier's scores, or the tokens that it reads."""
    with torch.no_grad():
        return model.forward_features(_noise(size)) if theirs.ndim == 3 else model.eval()(_noise(size))


def distance(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape or not theirs.isfinite().all():
        return float("inf")
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()
