"""Build immutable traces from a recorded forward pass and the model's parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.formats.contrastive import is_contrastive_name
from vitviz.engine.forward import branches, positions
from vitviz.engine.forward.biases import biases_of
from vitviz.engine.forward.own_model import OwnModel, require_known
from vitviz.engine.forward.recording import Call, Recording
from vitviz.errors import UnsupportedModel
from vitviz.traces.grid import Grid
from vitviz.traces.runs import Ablation
from vitviz.traces.trace import Attention, Bias, InFloat32, ModelInput, ResidualWrites, TraceBatch, to_device


def to_trace_batch(
    recording: Recording, logits: Tensor, shared: Mapping[str, Any], views: Sequence[ModelInput],
    device: torch.device, read: Tensor | None = None, queries: int | None = None,
) -> TraceBatch:  # fmt: skip
    """Return the traces of a batch's images; `shared` are fields common to all traces.

    A batch that stays on its device keeps the attention and tokens of a model in bfloat16 as they are, and
    converts them where they are read.

    Args:
        logits: image x class; None if the model is no classifier.
        read: weight of each token in y, by image, if the weights depend on the image.
        queries: number of attention pooling's queries that are read; None for all.
    """
    readout, grid, began = shared["readout"], shared["grid"], shared.get("without", Ablation()).at or 0
    there, last, pooling = partial(_detach, device=device), recording.tokens[-1].float(), None
    if readout.name == "attention" and recording.outside:
        (pooling,) = attentions_of(recording.outside[-1:], grid, last.device)
        pooling = replace(pooling, q=pooling.q[..., :queries, :])  # queries that are read
    writes = branches.sum_branches(recording.branches, last, pooling)
    if writes is not None and began:  # layers whose tokens were replaced added nothing to the result
        writes.attention[:, :began], writes.mlps[:, :began] = 0, 0
    own = recording.tokens[0]
    as_is = own.dtype != torch.float32 and device.type == own.device.type != "cpu"
    calls = [call for (call,) in recording.calls]
    patches, positions = there(recording.patch_embedding), there(recording.position_embedded)
    return TraceBatch(
        view=tuple(crop_to_grid(view, grid) for view in views),
        layers=InFloat32(attentions_of(calls, grid, device, None))
        if as_is
        else tuple(attentions_of(calls, grid, device)),
        tokens=InFloat32(recording.tokens) if as_is else tuple(map(there, recording.tokens)),
        patch_embedding=patches[:, -grid.patches :],
        position_embedded=None if positions is None else positions[:, -grid.patches :],
        logits=None if logits is None or logits.ndim != 2 else there(logits),
        pool=readout.name,
        read=None if read is None else read.to(device),
        pooling=to_device(pooling, device, Attention | Bias),
        written=to_device(writes, device, ResidualWrites),
        **shared,
    )


def attentions_of(
    calls: Sequence[Call], grid: Grid, device: torch.device, kind: torch.dtype | None = torch.float32
) -> list[Attention]:
    """Return a batch's attention calls, detached, on a device, in dtype `kind` (None: as recorded)."""
    biases = biases_of([call.mask for call in calls], grid, device)
    return [to_attention(call, bias, device, kind) for call, bias in zip(calls, biases, strict=True)]


def to_attention(call: Call, bias: Bias | None, device: torch.device, kind: torch.dtype | None) -> Attention:
    """Return the record of a batch's attention call."""
    q, k, v, given = (_detach(one, device, kind) for one in (call.q, call.k, call.v, call.given))
    own, other = v.untyped_storage(), q.untyped_storage()
    if own.nbytes() > v.nbytes and own.data_ptr() != other.data_ptr():
        v = v.clone()  # rotary models create new q and k; a view of v would keep the joint buffer
    return Attention(q, k, v, call.scale, bias, call.replaced, given)


def _detach(
    tensor: Tensor | None, device: torch.device, kind: torch.dtype | None = torch.float32
) -> Tensor | None:
    """Return a tensor (or None) detached, on a device, in dtype `kind`; with `kind` None as it is."""
    return None if tensor is None else tensor.detach().to(device, kind)


def crop_to_grid(view: ModelInput, grid: Grid) -> ModelInput:
    """Crop the input to the patch grid, without a margin at the right and bottom."""
    (height, width), (rows, cols) = view.picture.shape[:2], grid.pixels
    if (height, width) == (rows, cols):
        return view
    left, top, right, bottom = view.box
    box = (left, top, left + (right - left) * cols / width, top + (bottom - top) * rows / height)
    exact = None if view.exact is None else view.exact[:rows, :cols].copy()
    return replace(view, picture=view.picture[:rows, :cols].copy(), box=box, exact=exact)


def grid_of(model: nn.Module) -> Grid:
    """Return a model's patch grid with its prefix tokens named in sequence order.

    Raises UnsupportedModel for a model without a fixed grid or with unknown prefix tokens.
    """
    if isinstance(model, OwnModel):
        return model.own_grid
    embed = getattr(model, "patch_embed", None)
    size = getattr(embed, "grid_size", None)
    if size is None:
        raise UnsupportedModel(
            f"{type(model).__name__} does not divide its input into a fixed grid of patches. Choose a plain"
            " Vision Transformer."
        )
    names = []
    for kind, token in prefix_of(model).items():
        registers = [f"register {i + 1}" for i in range(token.shape[1])]
        names += registers if kind == "register" else [kind]
    if len(names) != getattr(model, "num_prefix_tokens", len(names)):
        raise UnsupportedModel(
            f"{type(model).__name__} has {model.num_prefix_tokens} prefix tokens, of which only"
            f" {', '.join(names) or 'none'} are known."
        )
    return Grid(int(size[0]), int(size[1]), patch_size(embed), tuple(names))


def prefix_of(model: nn.Module) -> dict[str, Float[Tensor, "1 _ width"]]:
    """Return the prefix tokens by kind, in timm's sequence order and without position embeddings."""
    kinds = {"class": "cls_token", "distillation": "dist_token", "register": "reg_token"}
    tokens_by_kind = {kind: getattr(model, name, None) for kind, name in kinds.items()}
    return {kind: token for kind, token in tokens_by_kind.items() if token is not None}


def patch_size(embed: nn.Module) -> tuple[int, int]:
    """Return (height, width) of a patch in input pixels; for hybrids, of the area of a token."""
    if getattr(embed, "backbone", None) is None:
        rows, cols = embed.patch_size  # not size // grid, which a margin outside the grid could enlarge
    else:
        rows, cols = (pixels // count for pixels, count in zip(embed.img_size, embed.grid_size, strict=True))
    return int(rows), int(cols)


def classifies(model: nn.Module, checkpoint: Checkpoint) -> bool:
    """Return True if the model's outputs are class scores, not features or a projection to a text space.

    CLIP, the Perception Encoder and MobileCLIP have such a projection unless fine-tuned on ImageNet.
    """
    projects = checkpoint.projects or checkpoint.source == "hub" and is_contrastive_name(checkpoint.name)
    return bool(getattr(model, "num_classes", 0)) and not projects


def float32_copy(weight: Tensor) -> Tensor:
    """Return a float32 copy on the CPU, which callers may modify without changing the model."""
    return weight.detach().to("cpu", torch.float32, copy=True)


def patch_filters(model: nn.Module, channels: int = 3) -> Float[Tensor, "width channel row col"] | None:
    """Return the patch projection's weights; None if it does not read pixels of so many channels."""
    projection = getattr(model.patch_embed, "proj", None)
    if getattr(projection, "kernel_size", None) != patch_size(model.patch_embed):
        require_known(model, "the order of pixels in its patch embedding")
    stem = getattr(model.patch_embed, "backbone", None) is not None
    if stem or not isinstance(projection, nn.Conv2d) or projection.in_channels != channels:
        return None
    return float32_copy(projection.weight)


def stem_filters(model: nn.Module, channels: int = 3) -> Float[Tensor, "width channel height2 width2"] | None:
    """Return the weights of the first convolution over pixels in a hybrid's stem, or None."""
    backbone = getattr(model.patch_embed, "backbone", None)
    for module in backbone.modules() if backbone is not None else ():
        if isinstance(module, nn.Conv2d) and module.in_channels == channels:
            return float32_copy(module.weight)
    return None


def position_table(model: nn.Module) -> Float[Tensor, "patch width"] | None:
    """Return the learned absolute position embeddings of the patches; None if the model has none."""
    require_known(model, "its position embeddings")
    table = getattr(model, "pos_embed", None)
    if not isinstance(table, nn.Parameter) or table.ndim != 3:
        return None
    return float32_copy(table[0, -grid_of(model).patches :])


def resize_position_tables(
    model: nn.Module, sized: nn.Module, tables: Sequence[Tensor]
) -> list[Float[Tensor, "patch width"]]:
    """Resize the position tables of snapshots that have the model's shape to the grid of `sized`.

    The result has the form of `position_table`.
    """
    old, new = grid_of(model), grid_of(sized)
    shapes = [[grid.rows, grid.cols] for grid in (new, old)]
    fitting = [table.to(model.pos_embed) for table in tables if table.shape == model.pos_embed.shape]
    if new.patches != old.patches or shapes[0] != shapes[1]:
        fitting = [positions.resize_table(model, table, *shapes) for table in fitting]
    return [float32_copy(table[0, -new.patches :]) for table in fitting]


def position_kind(model: nn.Module) -> str:
    """Return 'learned', 'rotary', 'relative', several joined by ' + ', or 'none'."""
    require_known(model, "its position embeddings")
    kinds = []
    if isinstance(getattr(model, "pos_embed", None), nn.Parameter):
        kinds.append("learned")
    if getattr(model, "rope", None) is not None:
        kinds.append("rotary")
    names = (name for name, _ in model.named_parameters())
    relative = any("relative_position_bias_table" in name or "rel_pos" in name for name in names)
    return " + ".join(kinds + ["relative"] * relative) or "none"
