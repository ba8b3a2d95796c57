"""Weights whose tensors are named in their own way: by the mapping beside them, or by one that is proposed.

A proposal counts only if shapes and names leave one possibility, and once it has been loaded and a
picture's answer is finite. That is no proof that it computes as its own code does (norms may stand
elsewhere), so it stays marked as assumed until the mapping lies beside the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vitviz.engine.checkpoint import Assumption
from vitviz.engine.models.files import Files
from vitviz.engine.models.formats import google
from vitviz.engine.models.given import Given
from vitviz.engine.models.mapping_file import mapping_beside, mapping_file, written
from vitviz.engine.models.proposal import proposed
from vitviz.errors import CheckpointError

# timm's own names; `cls_token` and `pos_embed` are anybody's.
_MARKS = ("patch_embed.proj.weight", "blocks.0.attn.qkv.weight")


@dataclass(frozen=True)
class Own:
    """What came of it: what the mapping says of the model, sentences, and whether it was only proposed."""

    given: Given = field(default_factory=Given)
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()

    def prove(self, model: nn.Module, data: Mapping[str, Any], name: str) -> None:
        """CheckpointError where a model that a proposal filled does not answer with finite numbers."""
        if not self.assumed:
            return
        with torch.no_grad():
            answer = model.eval()(torch.zeros(1, *data["input_size"]))
        if not answer.isfinite().all():
            raise CheckpointError(
                f"{name} names its tensors in its own way, and with the mapping that was proposed its"
                " answer is not finite. Write a mapping file beside it."
            )


def in_timms_names(files: Files, tensors: dict[str, Tensor], name: str) -> tuple[dict[str, Tensor], Own]:
    """The tensors in timm's layout, where a mapping is given or can be proposed; else as they are.

    CheckpointError for a mapping that does not fit, and, with what could be told, where shapes and names
    leave more than one possibility.
    """
    mapping = mapping_beside(files.weights)
    path = mapping_file(files.weights).name
    if mapping is not None:
        return mapping.translated(tensors, name), Own(mapping.given, (f"Its tensors are named by {path}.",))
    if files.config or google.is_google(tensors) or any(mark in tensors for mark in _MARKS):
        return tensors, Own()
    found = proposed(tensors)
    if found.complete:
        note = (
            f"Its tensors are named in their own way; a mapping was proposed. Save it as {path} to keep it."
        )
        own = Own(found.mapping.given, (note,), (Assumption("mapping"),))
        return found.mapping.translated(tensors, name), own
    if not any(".attn." in ours for ours in (*found.mapping.names.values(), *found.mapping.stack)):
        return tensors, Own()  # nothing like a ViT; whoever reads it next says so
    raise CheckpointError(
        f"{name} names its tensors in its own way, and shapes leave more than one possibility for"
        f" {', '.join((*found.open, *found.missing)[:4])}. Say which in {path} beside it; this much could"
        f" be told:\n{written(found.mapping)}"
    )
