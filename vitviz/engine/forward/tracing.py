"""From a recorded forward pass and a model's own parts to the immutable record of each picture."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.formats.contrastive import projecting
from vitviz.engine.forward import branches, positions
from vitviz.engine.forward.biases import bias_of
from vitviz.engine.forward.capture import Call, Recording
from vitviz.errors import UnsupportedModel
from vitviz.traces.grid import Grid
from vitviz.traces.runs import Ablation
from vitviz.traces.trace import Attention, Bias, ModelInput, ResidualWrites, Trace, to_device


def traces_of(
    recording: Recording, logits: Tensor, shared: Mapping[str, Any], views: Sequence[ModelInput],
    device: torch.device, read: Tensor | None = None, queries: int | None = None,
) -> list[Trace]:  # fmt: skip
    """The traces of a batch's pictures; `shared` are fields of them that all of the pass have.

    What all pictures need is computed once and where the model is: on a GPU each small step for each of them
    would be a launch, and each move a wait. `read`: how much of y each token is, by picture, where that
    depends on it; `queries`: of attention pooling's, how many are read, None for all. Logits are None of what
    is no classifier.
    """
    readout, grid, began = shared["readout"], shared["grid"], shared.get("without", Ablation()).at or 0
    there, last, poolings = partial(_detach, device=device), recording.tokens[-1].float(), None
    biases: dict[tuple[int, int], Bias] = {}
    if readout.name == "attention" and recording.outside:
        call = to_attention(recording.outside[-1], last.device)
        poolings = [attention_of(call, image, grid, biases) for image in range(len(views))]
        poolings = [replace(one, q=one.q[:, :queries]) for one in poolings]  # those that are read
    written = branches.sum_branches(recording.branches, last, poolings)
    for one in written or ():  # what layers added whose tokens were thrown away is nothing
        one.attention[:began], one.mlps[:began] = 0, 0
    calls, tokens = (
        [to_attention(call, device) for (call,) in recording.calls],
        list(map(there, recording.tokens)),
    )
    patches, positions = there(recording.patch_embedding), there(recording.position_embedded)
    logits = None if logits is None or logits.ndim != 2 else there(logits)
    return [
        Trace(
            view=covered(view, grid),
            layers=tuple(attention_of(call, image, grid, biases) for call in calls),
            tokens=tuple(one[image] for one in tokens),
            patch_embedding=patches[image, -grid.patches :],
            position_embedded=None if positions is None else positions[image, -grid.patches :],
            logits=None if logits is None else logits[image],
            pool=readout.name,
            read=None if read is None else read[image].to(device),
            pooling=None if poolings is None else to_device(poolings[image], device, Attention | Bias),
            written=None if written is None else to_device(written[image], device, ResidualWrites),
            **shared,
        )
        for image, view in enumerate(views)
    ]


def to_attention(call: Call, device: torch.device) -> Call:
    """An attention call of a batch as traces keep it: float32 on a device, detached."""
    q, k, v, given = (_detach(one, device) for one in (call.q, call.k, call.v, call.given))
    own, other = v.untyped_storage(), q.untyped_storage()
    if own.nbytes() > v.nbytes and own.data_ptr() != other.data_ptr():
        v = v.clone()  # rotary models make q and k anew; a view of v would keep the buffer of all three
    return replace(call, q=q, k=k, v=v, given=given)


def attention_of(
    call: Call, image: int, grid: Grid, biases: dict[tuple[int, int], Bias] | None = None
) -> Attention:
    """One picture's part of a `kept` attention call. A bias shared by all layers is made once."""
    bias = None
    if call.mask is not None:
        biases, key = {} if biases is None else biases, (id(call.mask), image)
        if key not in biases:
            biases[key] = bias_of(call.mask.detach(), image, grid, call.q.device)
        bias = biases[key]
    given = None if call.given is None else call.given[image]
    return Attention(call.q[image], call.k[image], call.v[image], call.scale, bias, call.replaced, given)


def _detach(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.detach().to(device, torch.float32)


def covered(view: ModelInput, grid: Grid) -> ModelInput:
    """The part of the input that patches are cut from, without a rim on the right and below."""
    (height, width), (rows, cols) = view.picture.shape[:2], grid.pixels
    if (height, width) == (rows, cols):
        return view
    left, top, right, bottom = view.box
    box = (left, top, left + (right - left) * cols / width, top + (bottom - top) * rows / height)
    exact = None if view.exact is None else view.exact[:rows, :cols].copy()
    return replace(view, picture=view.picture[:rows, :cols].copy(), box=box, exact=exact)


def grid_of(model: nn.Module) -> Grid:
    """The patch grid of a model, with its prefix tokens named in the order of the sequence."""
    embed = getattr(model, "patch_embed", None)
    size = getattr(embed, "grid_size", None)
    if size is None:
        raise UnsupportedModel(
            f"{type(model).__name__} does not cut its input into a fixed grid of patches; choose a plain"
            " Vision Transformer."
        )
    names = []
    for kind, token in prefix_of(model).items():
        registers = [f"register {i + 1}" for i in range(token.shape[1])]
        names += registers if kind == "register" else [kind]
    if len(names) != getattr(model, "num_prefix_tokens", len(names)):
        raise UnsupportedModel(
            f"{type(model).__name__} has {model.num_prefix_tokens} prefix tokens, of which only"
            f" {', '.join(names) or 'none'} are understood."
        )
    return Grid(int(size[0]), int(size[1]), patch_size(embed), tuple(names))


def prefix_of(model: nn.Module) -> dict[str, Float[Tensor, "1 _ width"]]:
    """What stands before the patches, by kind, in timm's order in the sequence; without positions."""
    kinds = {"class": "cls_token", "distillation": "dist_token", "register": "reg_token"}
    found = {kind: getattr(model, name, None) for kind, name in kinds.items()}
    return {kind: token for kind, token in found.items() if token is not None}


def patch_size(embed: nn.Module) -> tuple[int, int]:
    """Height and width of a patch in pixels of the input; behind a hybrid's stem, what a token stands for."""
    if getattr(embed, "backbone", None) is None:
        rows, cols = embed.patch_size  # not size // grid, which a rim that no patch is cut from would add to
    else:
        rows, cols = (pixels // count for pixels, count in zip(embed.img_size, embed.grid_size, strict=True))
    return int(rows), int(cols)


def classifies(model: nn.Module, checkpoint: Checkpoint) -> bool:
    """Whether the model's output are classes' scores: not features, nor a projection beside texts.

    Such a head have CLIP, the Perception Encoder and MobileCLIP, unless they were fine-tuned on ImageNet.
    """
    projects = checkpoint.projects or checkpoint.source == "hub" and projecting(checkpoint.name)
    return bool(getattr(model, "num_classes", 0)) and not projects


def copied(weight: Tensor) -> Tensor:
    """A float32 copy on the CPU: whoever gets it may write into it, and the model stays as it was."""
    return weight.detach().to("cpu", torch.float32, copy=True)


def patch_filters(model: nn.Module) -> Float[Tensor, "width channel height2 width2"] | None:
    """The patch projection's weights, if it reads pixels."""
    projection = getattr(model.patch_embed, "proj", None)
    stem = getattr(model.patch_embed, "backbone", None) is not None
    if stem or not isinstance(projection, nn.Conv2d) or projection.in_channels != 3:
        return None
    return copied(projection.weight)


def stem_filters(model: nn.Module) -> Float[Tensor, "width channel height2 width2"] | None:
    """The first convolution over pixels in a hybrid's stem."""
    backbone = getattr(model.patch_embed, "backbone", None)
    for module in backbone.modules() if backbone is not None else ():
        if isinstance(module, nn.Conv2d) and module.in_channels == 3:
            return copied(module.weight)
    return None


def position_table(model: nn.Module) -> Float[Tensor, "patch width"] | None:
    """The learned absolute position embeddings of the patches; None where the model has none."""
    table = getattr(model, "pos_embed", None)
    if not isinstance(table, nn.Parameter) or table.ndim != 3:
        return None
    return copied(table[0, -grid_of(model).patches :])


def resized(
    model: nn.Module, sized: nn.Module, tables: Sequence[Tensor]
) -> list[Float[Tensor, "patch width"]]:
    """Films' position tables as `position_table` gives `sized`'s; what is no such table is dropped."""
    old, new = grid_of(model), grid_of(sized)
    shapes = [[one.rows, one.cols] for one in (new, old)]
    fitting = [table.to(model.pos_embed) for table in tables if table.shape == model.pos_embed.shape]
    if new.patches != old.patches or shapes[0] != shapes[1]:
        fitting = [positions.resized(model, table, *shapes) for table in fitting]
    return [copied(table[0, -new.patches :]) for table in fitting]


def position_kind(model: nn.Module) -> str:
    """'learned', 'rotary', 'relative', several joined by ' + ', or 'none'."""
    kinds = []
    if isinstance(getattr(model, "pos_embed", None), nn.Parameter):
        kinds.append("learned")
    if getattr(model, "rope", None) is not None:
        kinds.append("rotary")
    names = (name for name, _ in model.named_parameters())
    relative = any("relative_position_bias_table" in name or "rel_pos" in name for name in names)
    return " + ".join(kinds + ["relative"] * relative) or "none"
