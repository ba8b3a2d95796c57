"""The one seam through which every attention is seen.

timm's attention calls torch's `scaled_dot_product_attention`. A torch-function mode around the forward pass sees each
call's queries, keys, values, mask and scale as the model uses them (after query-key norm, rotary embedding and
relative bias) while the fused kernel runs at full speed; a pair of hooks on each block says which layer is speaking
and records the residual stream. Modes belong to a thread, hooks to a model: whoever captures holds the model's lock.

It does not see attention that is computed in any other way. That is why `check_truth` exists: it compares what was seen
with what the model went on with, and a model for which they differ is refused rather than drawn wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitviz.errors import UnsupportedModel

# How well softmax(q k^T scale + mask) v has to explain what a model goes on with: max|difference| / max|output|. In
# float32, 33 architectures differ by 1.3e-6 at most. In bfloat16 the fused kernel rounds its weights and its output to
# 8 bits, each by up to u = 2^-9; measured are 1.4 u to 2.1 u (16 families with random weights, three genuine
# checkpoints, on the CPU). 4 u leaves twice that, and still notices a change of 1 %.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 4 * 2**-9}


@dataclass
class Call:
    """One attention call, with the batch axis: batch x head x token x dim."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    scale: float
    entered: Tensor | None = None  # what the rest of the attention module was given; recorded for the truth check


@dataclass
class Recording:
    """What one forward pass left behind, still on the device and with its batch axis."""

    calls: list[list[Call]]  # by layer; a plain Vision Transformer makes one a block
    tokens: list[Tensor]  # input of the first block, output of every block
    patch_embedding: Tensor | None = None
    position_embedded: Tensor | None = None
    outside: list[Call] = field(default_factory=list)  # calls after the last block: attention pooling


class _Seam(TorchFunctionMode):
    """Notes every fused attention call and lets it run."""

    def __init__(self, note):
        super().__init__()
        self._note = note

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            self._note(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class _Recorder:
    """Turns hooks and noted calls into a Recording."""

    def __init__(self, blocks: list[nn.Module], check: bool):
        self.recording = Recording(calls=[[] for _ in blocks], tokens=[])
        self._layer: int | None = None
        self._waiting: Call | None = None  # a call whose output has not yet entered a module
        self._check = check

    def note(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **others):
        if is_causal or others.get("enable_gqa"):
            raise UnsupportedModel("This model's attention is causal or shares keys between heads; vitviz reads plain Vision Transformers, whose tokens all see each other.")
        call = Call(query, key, value, attn_mask, query.shape[-1] ** -0.5 if scale is None else float(scale))
        if self._layer is None:
            self.recording.outside.append(call)
        else:
            self.recording.calls[self._layer].append(call)
            self._waiting = call if self._check else None

    def entering(self, module: nn.Module, args: tuple) -> None:
        if self._waiting is not None and args:
            self._waiting.entered, self._waiting = args[0].detach(), None

    def begin(self, layer: int):
        def hook(module: nn.Module, args: tuple) -> None:
            self._layer = layer
            if layer == 0:
                self.recording.tokens.append(args[0])

        return hook

    def end(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self._layer = None
        self.recording.tokens.append(output)

    def patches(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        embedded = output[0] if isinstance(output, tuple) else output
        if embedded.ndim == 4:  # a model of dynamic size keeps rows and columns apart until positions are added
            embedded = rearrange(embedded, "batch row col width -> batch (row col) width")
        self.recording.patch_embedding = embedded

    def positions(self, module: nn.Module, args: tuple) -> None:
        self.recording.position_embedded = args[0]


@contextmanager
def recorded(model: nn.Module, *, check: bool = False) -> Iterator[Recording]:
    """Records a forward pass made inside the `with`; leaves no hook and no mode behind, whatever happens.

    With `check`, also what entered the module after each attention call, for `check_truth`. The caller holds the model's
    lock. Raises UnsupportedModel where the model has no blocks, or attends in a way that is not plain.
    """
    blocks = transformer_blocks(model)
    recorder = _Recorder(blocks, check)
    with ExitStack() as stack:

        def hold(handle):
            stack.callback(handle.remove)

        for layer, block in enumerate(blocks):
            hold(block.register_forward_pre_hook(recorder.begin(layer)))
            hold(block.register_forward_hook(recorder.end))
            if check:
                for module in block.modules():
                    hold(module.register_forward_pre_hook(recorder.entering))
        if isinstance(getattr(model, "patch_embed", None), nn.Module):
            hold(model.patch_embed.register_forward_hook(recorder.patches))
        if getattr(model, "pos_embed", None) is not None and isinstance(getattr(model, "pos_drop", None), nn.Module):
            hold(model.pos_drop.register_forward_pre_hook(recorder.positions))
        stack.enter_context(_Seam(recorder.note))
        yield recorder.recording


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks in order of depth; UnsupportedModel where there are none."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, (nn.Sequential, nn.ModuleList)) or len(blocks) == 0:
        raise UnsupportedModel(
            f"{type(model).__name__} is no plain Vision Transformer: it has no single stack of transformer blocks. "
            "Choose a ViT, DeiT, BEiT, DINO, CLIP, EVA or SigLIP model."
        )
    return list(blocks)


def check_plain(recording: Recording, tokens: int, name: str) -> None:
    """Raises UnsupportedModel unless every block made exactly one attention call over all tokens."""
    for layer, calls in enumerate(recording.calls):
        if len(calls) != 1:
            raise UnsupportedModel(
                f"{name} is no plain Vision Transformer: block {layer + 1} makes {len(calls)} attention calls where "
                "exactly one is expected, so there is no single attention map to show."
            )
        call = calls[0]
        if call.q.ndim != 4 or call.q.shape[2] != tokens or call.k.shape[2] != tokens:
            raise UnsupportedModel(
                f"{name} is no plain Vision Transformer: block {layer + 1} attends within {tuple(call.q.shape)} "
                f"(batch, heads, tokens, dim) where all {tokens} tokens are expected to see each other."
            )


def check_truth(recording: Recording, attention_output, name: str, tolerance: float = TOLERANCE[torch.float32]) -> None:
    """The truth check: softmax(q k^T scale + mask) v must be what the model goes on with.

    `attention_output(layer) -> "head query dim"` is computed from the record for the first picture of the batch.
    Comparing with the fused call's own output would be blind to what happens between that and the projection.
    Raises UnsupportedModel with the figure when max|difference| / max|output| exceeds the tolerance.
    """
    for layer, (call,) in enumerate(recording.calls):
        expected = rearrange(attention_output(layer), "head query dim -> query (head dim)")
        if call.entered is None or call.entered.shape[-2:] != expected.shape:
            given = "nothing" if call.entered is None else f"a tensor of shape {tuple(call.entered.shape)}"
            raise UnsupportedModel(
                f"The attention of {name} cannot be read truthfully: after the attention call of block {layer + 1} the model goes on "
                f"with {given} where {tuple(expected.shape)} is expected."
            )
        entered = call.entered[0].float().cpu()
        error = ((entered - expected).abs().max() / entered.abs().max().clamp_min(1e-30)).item()
        if not error <= tolerance:
            raise UnsupportedModel(
                f"The attention of {name} cannot be read truthfully: in block {layer + 1} the recorded attention explains the model's own "
                f"values only to {error:.1e} where {tolerance:.0e} is expected. vitviz shows no map rather than a wrong one."
            )
