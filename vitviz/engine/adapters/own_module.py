"""Find blocks, patches and tokens in a user's module that has no timm twin, by running it.

The blocks are the longest run of modules of one type. The grid follows from the first convolution or linear
layer that runs and from the length of the sequence, and is proven: patches of an image are changed by the
digits of their number, and the tokens that change at the first block must spell each number once. Tokens of
an overlapping convolutional stem depend on several patches: their centres must form the grid. The attention
is proven by the truth check of `forward.recording`, as everywhere. Tokens must keep their order inside the
blocks and between them. Which tokens the output reads is found in `own_readout`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from vitviz.engine.adapters.own_readout import (
    ASSUMED,
    default_query,
    describe_readout,
    readout_of_own,
    with_class_token,
)
from vitviz.engine.adapters.weight_loading import FilledModel
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.forward import copies, hooks
from vitviz.engine.forward.own_model import OwnModel
from vitviz.engine.forward.own_pass import ONCE_IN_ORDER, record_pass, run_pass
from vitviz.engine.forward.recording import Recording, check_truth
from vitviz.engine.forward.tracing import attentions_of
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.grid import Grid
from vitviz.traces.head_type import HeadType, require_head_type
from vitviz.traces.trace import select_images

_numbers = itertools.count(1)
_SIZES = ("image_size", "img_size", "input_size")  # attributes that tell the input size
SMALL = 1e-4  # change of a token, relative to the spread of all
_DRAWS = 8  # of noise, for the centre of the pixels of a token
_MOST_PREFIX = 32  # more tokens than this before the patches are not plausible
CPU = torch.device("cpu")
RANDOM = "{kind} draws random numbers in evaluation mode (dropout, masks). Results are those of one draw."
IN_PLACE = "{kind} is used in place, not copied. Changes of its weights change the results of this Inspector."


@in_float32()
def loaded_own(
    model: nn.Module, overrides: Overrides, size: tuple[int, int] | None = None, name: str | None = None,
    blocks: str | None = None, output: str | int | None = None,
    patch: tuple[int, int] | None = None, prefix: Sequence[str] | None = None,
    record: FilledModel | None = None,
) -> Loaded:  # fmt: skip
    """Return a user's module, wrapped for an inspector without a copy in timm's form.

    `record` has the preprocessing and classes of a library's model. The user's settings replace them.
    Raises UnsupportedModel if its attention, tokens or grid cannot be read truthfully, and VitvizError if
    mean and std, the size or the output has to be said.
    """
    kind = type(model).__name__
    require_normalised(overrides, kind)
    if isinstance(model, torch.jit.ScriptModule) or "eval" in vars(model):  # torch.export replaces eval
        raise UnsupportedModel(
            f"{kind} was traced or exported, so its blocks do not run as modules. Pass the module from which"
            " it was made."
        )
    module, in_place = _float32_copy(model)
    size = size or _size(model)
    channels = channels_of(module, overrides.mean)
    noise = torch.randn(1, channels, *size, generator=torch.Generator().manual_seed(0))
    own = OwnModel(module, [], output, in_place)
    called = _called_parts(own, noise)
    path, layers = _blocks(own, blocks, kind, called)
    own.blocks = nn.ModuleList(layers)
    own.blocks_given = blocks is not None
    own.embedding = next((part for part in called if isinstance(part, nn.Conv2d | nn.Linear)), None)
    recording, logits = record_pass(own, noise)
    tokens, own.embed_dim = recording.tokens[0].shape[1:]
    own.own_grid, own.order = _grid(own, noise, size, patch, prefix, tokens)
    own.num_classes = 0 if logits is None else logits.shape[-1]
    _prove(own, noise, kind, overrides.heads)
    _require_same_order(own, noise, tokens, kind)
    reading = "not known"
    if logits is not None:
        own.own_readout = readout_of_own(own, noise, tokens)
        if own.own_readout is None:
            query = default_query(own.own_grid)
            own.assumption = ASSUMED.format(kind=kind, query=query)
            reading = f"not known; query='auto' is assumed to be the {query}"
        else:
            if prefix is None:
                own.own_grid = with_class_token(own.own_grid, own.own_readout)
            reading = describe_readout(own.own_grid, own.own_readout)
    warned = own.random and RANDOM.format(kind=kind), in_place and IN_PLACE.format(kind=kind), own.assumption
    own.assumption = " ".join(filter(None, warned))
    call = recording.calls[0][0]
    read = "around which their tokens read overlapping pixels"
    found = read if own.overlapping else "found by changing each patch"
    own.findings = {
        "module": f"{kind}, {'used in place' if in_place else 'a float32 copy'}",
        "blocks": f"{path}: {len(layers)} x {type(layers[0]).__name__}"
        f"{', as given; attention outside them is not shown' if own.blocks_given else ''}",
        "attention": f"{call.q.shape[1]} heads of"
        f" {call.q.shape[-1]}{'' if call.mask is None else ', with a bias'}, verified in every"
        " block",
        "patches": f"{own.own_grid.rows} x {own.own_grid.cols} of {own.own_grid.patch}, {found}",
        "patch embedding": "not found"
        if own.embedding is None
        else f"{called[own.embedding]}: {type(own.embedding).__name__}",
        "prefix tokens": f"{', '.join(own.own_grid.prefix_names) or 'none'} (named by number)",
        "output": "no class scores" if logits is None else f"{own.num_classes} numbers",
        "tokens read by the output": reading,
        "not known": "weights of the readout, norms, MLPs: no attribution, ablation or gradient",
    }
    known = {"interpolation": "bicubic", "crop_pct": 1.0} | ({} if record is None else record.data)
    data = overrides.data({**known, "input_size": (channels, *size)})
    labels, head_type = overrides.labels or (), overrides.head_type
    if record is not None and record.model.num_classes == own.num_classes:
        labels, head_type = labels or record.labels, head_type or record.head_type
    head_type = classifier_type(labels, head_type, own.num_classes, kind)
    own.name = name or f"{kind} in memory {next(_numbers)}"
    checkpoint = Checkpoint(
        own.name, None, "memory", "", (channels, *size),
        sum(parameter.numel() for parameter in module.parameters()),
        note="This module has no timm equivalent and is inspected directly; describe() lists what was"
             " found.",
    )  # fmt: skip
    return Loaded(checkpoint, own, Preprocessing.from_config(data), tuple(labels), head_type)


def channels_of(model: nn.Module, mean: Sequence[float] | None = None) -> int:
    """Return the number of channels that a model reads: the length of `mean` unless it is 3.

    Otherwise 3, or that of its first convolution if none reads RGB.
    """
    if mean is not None and len(mean) != 3:
        return len(mean)
    read = [part.in_channels for part in model.modules() if isinstance(part, nn.Conv2d)]
    return 3 if not read or 3 in read else read[0]


def require_normalised(overrides: Overrides, kind: str) -> None:
    """Raise VitvizError if the user did not state mean and std."""
    if not overrides.normalised:
        raise VitvizError(
            f"{kind} does not specify the normalisation of its input. Pass mean=… and std=…, for pixel"
            " values from 0 to 1, such as mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)."
        )


def classifier_type(
    labels: Sequence[str] | None, head_type: HeadType | None, classes: int, kind: str
) -> HeadType:
    """Return the head type, softmax if unspecified.

    Raises VitvizError if the type or the number of labels does not fit the number of classes.
    """
    if labels and len(labels) != classes:
        raise VitvizError(f"Given {len(labels)} labels; {kind} has {classes} classes.")
    if head_type is None and classes == 1:
        raise VitvizError(
            f"{kind} has one output of unknown meaning. Pass head_type='sigmoid' if it is the logit of a yes"
            " or no, or head_type='value' for a regression."
        )
    require_head_type(head_type or "softmax", classes, kind)
    return head_type or "softmax"


def _float32_copy(model: nn.Module) -> tuple[nn.Module, bool]:
    """Return a float32 copy in evaluation mode and False; (model, True) if it cannot be copied."""
    # a forward set on a module belongs to that module, also in a copy, unless it is a plain method
    given = ((part, vars(part)["forward"]) for part in model.modules() if "forward" in vars(part))
    plain = (getattr(one, "__self__", 0) is part and one.__func__.__closure__ is None for part, one in given)
    if any(hasattr(part, "_hf_hook") for part in model.modules()) or not all(plain):
        return model, True
    try:
        twin = hooks.copy_without_hooks(copies.with_permanent_weights(model), {}).float().eval()
        twin.requires_grad_(False)
    except Exception:  # adapters, quantised and traced modules have their own rules of copying
        return model, True
    for parent in list(twin.modules()):
        parent._compiled_call_impl = None
        for name, part in parent.named_children():
            if isinstance(inner := getattr(part, "_orig_mod", None), nn.Module):
                setattr(parent, name, inner)  # compiled parts run as they were written
    return twin, False


def _blocks(
    own: OwnModel, path: str | None, kind: str, called: Collection[nn.Module]
) -> tuple[str, list[nn.Module]]:
    """Return the path and modules of the blocks: those at `path`, else the longest called run of one type."""
    model = own.module
    if path is not None:
        try:
            layers = list(model.get_submodule(path).children())
        except AttributeError:
            layers = []
        if not layers:
            raise VitvizError(
                f"{kind} has no modules in blocks={quoted(path)}. Its sequences of equal modules are"
                f" {_describe(_runs(model))}."
            )
        return path, layers
    runs = {
        path: run for path, run in _runs(model).items()
        if any(part in called for one in run for part in one.modules())
    }  # fmt: skip
    if not runs:
        if own.repeated:
            raise UnsupportedModel(f"{kind} calls {own.repeated} several times. {ONCE_IN_ORDER}")
        raise UnsupportedModel(
            f"{kind} has no sequence of equal modules that could be transformer blocks. Pass their path as"
            " blocks='…'."
        )
    sizes = {
        path: (len(run), sum(one.numel() for part in run for one in part.parameters()))
        for path, run in runs.items()
    }  # fmt: skip
    largest = {path: run for path, run in runs.items() if sizes[path] == max(sizes.values())}
    if len(largest) > 1:
        raise VitvizError(
            f"{kind} has several sequences of equal modules: {_describe(largest)}. Pass the path of its"
            f" blocks: blocks={quoted(next(iter(largest)))}."
        )
    return next(iter(largest.items()))


def _describe(runs: dict[str, list[nn.Module]]) -> str:
    """Return runs of equal modules as text: path, number and type of each; "none" if there is none."""
    return ", ".join(f"{path} ({len(run)} x {type(run[0]).__name__})" for path, run in runs.items()) or "none"


def _runs(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Return the outermost runs of modules of one type that have parts of their own, by path."""
    runs: dict[str, list[nn.Module]] = {}
    for path, module in model.named_modules():
        if any(path.startswith(f"{outer}.") for outer in runs):
            continue
        for _, group in itertools.groupby(module.children(), type):
            run = [part for part in group if any(True for _ in part.children())]
            listed = isinstance(module, nn.ModuleList | nn.Sequential) and len(module) == 1
            if len(run) > 1 or (listed and run):
                runs[path] = max(run, runs.get(path, []), key=len)
    return runs


def _size(model: nn.Module) -> tuple[int, int]:
    """Return the input size that a module's configuration or parts tell, else 224 x 224."""
    owners: Iterator[Any] = itertools.chain([getattr(model, "config", None)], model.modules())
    for owner, name in itertools.product(owners, _SIZES):
        size = getattr(owner, name, None)
        size = (size, size) if isinstance(size, int) and not isinstance(size, bool) else size
        if isinstance(size, tuple | list) and len(size) >= 2 and all(isinstance(side, int) for side in size):
            return tuple(size[-2:])
    return 224, 224


def _called_parts(own: OwnModel, noise: Tensor) -> dict[nn.Module, str]:
    """Return the parts that run on an image, in the order of their first call, with their paths.

    Note in `own` whether random numbers are drawn, and a part with parts of its own that runs repeatedly.
    """
    called: dict[nn.Module, str] = {}
    with ExitStack() as stack:
        for path, part in own.module.named_modules():

            def note(part, args, path=path) -> None:
                if part in called and any(True for _ in part.children()):
                    own.repeated = own.repeated or path
                called.setdefault(part, path)

            stack.callback(part.register_forward_pre_hook(note).remove)
        own.random = bool(run_pass(own, noise, {})[1].random)
    return called


def _grid(
    own: OwnModel, noise: Tensor, size: tuple[int, int], patch: tuple[int, int] | None,
    prefix: Sequence[str] | None, tokens: int,
) -> tuple[Grid, Tensor | None]:  # fmt: skip
    """Return the proven grid, and the tokens' order; None if it is prefix, then patches by rows."""
    kind, (height, width) = type(own.module).__name__, size
    if patch is not None and min(patch) < 1:
        raise VitvizError(f"patch={quoted(patch)} is not valid; expected pixels from 1, such as (16, 16).")
    stride = getattr(own.embedding, "stride", None)
    sides = [(side, side) for side in range(1, min(size) + 1) if height % side == 0 and width % side == 0]
    sides = [patch] if patch else [*([stride] if stride else []), *sides]
    for rows, cols in ((height // tall, width // wide) for tall, wide in sides):
        if rows * cols and 0 <= tokens - rows * cols <= _MOST_PREFIX:
            break
    else:
        raise UnsupportedModel(
            f"{kind} has {tokens} tokens for {height} x {width} pixels, which fits no grid of square"
            " patches. Pass patch=(height, width), or another size=…."
        )
    embedded = run_pass(own, noise, {}, first_only=True)[0].embedded
    if isinstance(own.embedding, nn.Conv2d) and rows * cols < embedded[0, 0].numel() <= tokens:
        raise UnsupportedModel(
            f"{kind} embeds {embedded[0, 0].numel()} patches, of which {rows * cols} lie inside its input: it"
            " pads or resizes the image. Pass an input size that needs no padding as size=…."
        )
    order = _order(own, noise, rows, cols)
    before = tokens - rows * cols
    if sorted(order) != list(range(tokens)):
        order, own.overlapping = _order_by_centres(own, noise, rows, cols), True
    if sorted(order) != list(range(tokens)):
        raise UnsupportedModel(
            f"{kind} has {tokens} tokens at its first block, but they do not correspond one to one to a grid"
            f" of {rows} x {cols} patches: some patches are dropped, merged or mixed. If patches are not"
            " square, pass patch=(height, width)."
        )
    if prefix is None:
        registers = [f"register {number + 1}" for number in range(before)]
        behind = before and order[0]  # tokens behind the patches: no class token
        prefix = registers if behind else ["class", *registers][:before]
    if not all(isinstance(name, str) for name in prefix):
        raise VitvizError(f"prefix={quoted(prefix)} is not valid; expected a name for each prefix token.")
    if len(prefix) != before:
        raise VitvizError(f"Given {len(prefix)} prefix tokens; {kind} has {before}.")
    grid = Grid(rows, cols, (height // rows, width // cols), tuple(prefix))
    return grid, None if order == list(range(tokens)) else torch.tensor(order)


def _order(own: OwnModel, noise: Tensor, rows: int, cols: int) -> list[int]:
    """Return the token indices in the order prefix, patches by rows, from the patch that changes each.

    Empty if a token follows from several patches, or a patch changes no token or several.
    """
    count, (height, width) = rows * cols, noise.shape[-2:]
    other = torch.randn(noise.shape, generator=torch.Generator().manual_seed(1))
    numbers = torch.arange(1, count + 1).view(rows, cols)
    numbers = numbers.repeat_interleave(height // rows, 0).repeat_interleave(width // cols, 1)
    padded = torch.zeros(height, width, dtype=torch.long)
    padded[: numbers.shape[0], : numbers.shape[1]] = numbers

    def first(pixels: Tensor) -> Tensor:
        return run_pass(own, pixels, {}, first_only=True)[0].tokens[0]

    plain, changed = first(noise), first(other)
    codes = torch.zeros(len(plain), dtype=torch.long, device=plain.device)
    least = 1e-2 * (changed - plain).norm(dim=-1)
    for digit in range(count.bit_length()):
        mixed = first(torch.where((padded >> digit & 1).bool(), other, noise))
        new, old = (mixed - changed).norm(dim=-1), (mixed - plain).norm(dim=-1)
        if (torch.minimum(new, old) > least).any():
            return []
        codes += (new < old).long() << digit
    before = [place for place, code in enumerate(codes.tolist()) if code == 0]
    places = {code: place for place, code in enumerate(codes.tolist()) if code}
    return before + [places[code] for code in range(1, count + 1)] if len(places) == count else []


def _order_by_centres(own: OwnModel, noise: Tensor, rows: int, cols: int) -> list[int]:
    """Return the token indices (prefix, patches by rows) by the centres of the pixels read; [] for no grid.

    The squared change of a token adds up over the pixels that are changed by independent noise, so noise of
    variance proportional to a coordinate gives the centre's coordinate. In a grid, after a common shift of
    at most one patch, each must lie within 0.75 patches of its place, and 0.4 from its neighbours. At the
    border the centres move inwards.
    """
    generator, (height, width) = torch.Generator().manual_seed(2), noise.shape[-2:]
    y = ((torch.arange(height) + 0.5) * rows / height)[:, None]
    x = (torch.arange(width) + 0.5) * cols / width
    plain, energy = run_pass(own, noise, {}, first_only=True)[0].tokens[0], []
    for variance in [torch.ones(height, width), y.expand(height, width), x.expand(height, width)]:
        draws = torch.randn((_DRAWS, *noise.shape), generator=generator.manual_seed(3)) * variance.sqrt() / 10
        changed = [run_pass(own, noise + draw, {}, first_only=True)[0].tokens[0] for draw in draws]
        energy.append(sum((one - plain).double().square().sum(-1).cpu() for one in changed))
    read = energy[0] > 1e-6 * energy[0].max()
    if int(read.sum()) != rows * cols:
        return []
    places, tall, wide = read.nonzero()[:, 0], *(part[read] / energy[0][read] for part in energy[1:])
    by_row = tall.argsort().view(rows, cols)
    order = torch.cat([row[wide[row].argsort()] for row in by_row])
    cells = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)) + 0.5
    centres = torch.stack([tall[order], wide[order]], 1)
    shifts, grid = centres - cells, centres.view(rows, cols, 2)
    common = shifts.median(0).values
    gaps = torch.cat([grid[..., 0].diff(dim=0).flatten(), grid[..., 1].diff(dim=1).flatten()])
    if common.abs().max() > 1 or (shifts - common).abs().max() > 0.75 or (gaps < 0.4).any():
        return []
    return [*(~read).nonzero()[:, 0].tolist(), *places[order].tolist()]


def _prove(own: OwnModel, noise: Tensor, kind: str, heads: int | None) -> None:
    """Raise UnsupportedModel if recomputed attention times v is not what enters the projection.

    Raises VitvizError if the user stated another number of heads.
    """
    recording, _ = record_pass(own, noise)
    calls = [call for (call,) in recording.calls]
    if heads not in (None, calls[0].q.shape[1]):
        raise VitvizError(f"heads={heads} does not fit: {kind} has {calls[0].q.shape[1]} heads.")
    layers = select_images(tuple(attentions_of(calls, own.own_grid, CPU)), 0)
    own.tolerance = 1e-4 if next(own.module.parameters()).dtype == calls[0].q.dtype == torch.float32 else 0.05
    check_truth(recording.entered, layers, kind, own.tolerance)


def _require_same_order(own: OwnModel, noise: Tensor, tokens: int, kind: str) -> None:
    """Raise UnsupportedModel unless a token keeps its place inside the blocks and between them.

    Tokens are changed at the input of every block, where q, k and v must follow from the same tokens, and
    then at the output of every block but the last, where the next input must. A block's output mixes tokens,
    so it is refused only if its rows follow the tokens of the input in another order. Small changes,
    in addition, leave an order that depends on the tokens nearly the same in all passes.
    """
    numbers, last = torch.arange(tokens), len(own.blocks) - 1
    expected = numbers if own.order is None else own.order.cpu()
    plain: dict[tuple[str, int], Tensor] = {}  # by moment and layer, of the first pass, which changes nothing

    def rows_of(given: Tensor) -> Tensor:
        return given.detach().clone().reshape(tokens, -1)

    def run(moment: str, changed: Tensor, small: float = 1.0) -> tuple[Recording, list[Tensor]]:
        """Run with some tokens changed at a moment; return the recording and all inputs but the first."""
        inputs: list[Tensor] = []

        def change(layer: int, given: Tensor) -> Tensor:
            rows = plain.setdefault((moment, layer), rows_of(given))
            other = torch.randn(rows.shape, generator=torch.Generator().manual_seed(layer)).to(rows)
            mixed = torch.where(changed.to(rows.device)[:, None], rows + small * other * rows.std(), rows)
            return mixed.reshape(given.shape)

        def note(given: Tensor) -> None:
            inputs.append(rows_of(given))

        changes: dict[tuple[str, int], tuple] = {("input", layer): (note,) for layer in range(1, last + 1)}
        for layer in range(last + (moment == "input")):
            changes[moment, layer] = (*changes.get((moment, layer), ()), partial(change, layer))
        return record_pass(own, noise, changes)[0], inputs

    def inside(changed: Tensor, small: float = 1.0) -> list[Tensor]:
        recording, _ = run("input", changed, small)
        calls = (call for (call,) in recording.calls)
        parts = [one[0].transpose(0, 1).flatten(1) for call in calls for one in (call.q, call.k, call.v)]
        return [*parts, *(rows[0] for rows in recording.tokens[1:])]

    def between(changed: Tensor) -> list[Tensor]:
        return run("output", changed)[1]

    def refuse(place: str, compared: str) -> None:
        raise UnsupportedModel(
            f"{kind} has other tokens at the {place} than at the {compared}: it reorders or mixes them there,"
            " so the tokens of its maps are not known. Reorder them before the first block instead."
        )

    found = _sources(inside, numbers)
    attention, outputs = found[: 3 * last + 3], found[3 * last + 3 :]
    for place, (known, sources) in enumerate(attention):
        if (known & (sources != expected)).any():
            refuse(f"attention of block {place // 3 + 1}", "block's input")
    if own.tolerance < 0.05 and not own.in_place:
        outputs += _sources(partial(inside, small=SMALL), numbers, SMALL)[3 * last + 3 :]
    for block, (known, sources) in enumerate(outputs):
        moved, unique = known & (sources != expected), len(sources.unique())
        if moved.any() and (unique == tokens or (unique > 0.9 * tokens and moved.sum() > tokens / 2)):
            refuse(f"output of block {block % (last + 1) + 1}", "block's input")
    for block, (known, sources) in enumerate(_sources(between, numbers) if last else [], 1):
        if (known & (sources != numbers)).any():
            refuse(f"input of block {block + 1}", f"output of block {block}")


def _sources(
    run: Callable[[Tensor], list[Tensor]], numbers: Tensor, small: float = 1.0
) -> list[tuple[Bool[Tensor, " token"], Int[Tensor, " token"]]]:
    """Return, for each tensor of `run`, which rows follow from a token, and the number of that token.

    The digits of a token's number tell in which passes it is changed; `small` is the size of the changes.
    """
    plain, other = ([rows.float().cpu() for rows in run(changed)] for changed in (numbers < 0, numbers >= 0))
    known = [(a - b).norm(dim=-1) > 1e-3 * small * a.norm(dim=-1) for a, b in zip(plain, other, strict=True)]
    sources = [torch.zeros_like(numbers) for _ in plain]
    for digit in range((len(numbers) - 1).bit_length()):
        for place, rows in enumerate(run((numbers >> digit & 1).bool())):
            new, old = ((rows.float().cpu() - one[place]).norm(dim=-1) for one in (other, plain))
            sources[place] += (new < old).long() << digit
    return list(zip(known, sources, strict=True))
