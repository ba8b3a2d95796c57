"""Models in memory as checkpoints: a timm model, a transformers model or a custom PyTorch module.

vitviz uses a float32 copy of the current weights, so that training continues undisturbed. Every copy is
verified: on two noise images its output must equal the given model's, or the model is refused. For a custom
module, this output also determines settings that tensors do not (heads, activation, epsilon, the order of a
flattened patch): of all candidates, the one with equal output is chosen. If two numbers of heads match, the
user must state the setting. The choice is then verified with random weights, so that a branch with a small
scale cannot hide another attention.
"""

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from types import MethodType
from typing import Any

import timm
import torch
from torch import Tensor, nn

from vitviz.engine import memory, placement, readout_stages
from vitviz.engine.adapters.own_module import channels_of, classifier_type, loaded_own, require_normalised
from vitviz.engine.adapters.proposal import propose_mapping
from vitviz.engine.adapters.weight_loading import FilledModel, build_empty, fill_weights, fuse_attention
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.formats import huggingface, inference, naflex, processors, timm_config
from vitviz.engine.formats.families import FAMILIES, require_plain
from vitviz.engine.formats.mapping import PATCH_ORDERS, NameMap, to_toml
from vitviz.engine.formats.overrides import ACTIVATIONS, Overrides, possible_block_forms, possible_poolings
from vitviz.engine.forward import capture, copies
from vitviz.engine.forward.own_pass import evaluating
from vitviz.engine.forward.recording import check_plain
from vitviz.engine.forward.tracing import grid_of
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.errors import CheckpointError, UnsupportedModel, VitvizError, first_line

_numbers = itertools.count(1)
_ALIKE = {torch.float32: 1e-4, torch.float64: 1e-4}  # relative to the largest output; 0.05 for others
_APART = 10.0  # required ratio of the runner-up's error to the best one's
_EPSILONS = (1e-6, 1e-5, 1e-12)
_LINEAR = set("head qkv q_proj k_proj v_proj proj fc1 fc1_g fc1_x fc2".split())  # timm's names
_HEADS_CALLED = ("num_heads", "num_attention_heads", "n_heads", "nhead", "heads", "n_head")
_NAME_IT = "Pass a mapping of its tensor names (mapping='file.toml'), or a timm model."


def loaded_of(
    model: nn.Module, overrides: Overrides, size: tuple[int, int] | None = None, name: str | None = None,
    mapping: NameMap | None = None, options: Mapping[str, Any] | None = None,
) -> Loaded:  # fmt: skip
    """Return a model as `verified_copy` or, if that is impossible, as the user's own module (`loaded_own`).

    `options` are the user's statements about an own module; if there are any, no copy is tried.
    """
    options = {key: value for key, value in (options or {}).items() if value is not None}
    if options and mapping is not None:
        raise VitvizError(
            f"Both mapping and {next(iter(options))} were given. A module with a mapping is read as a timm"
            " model; leave one of them out."
        )
    if not isinstance(model, nn.Module):
        raise VitvizError(
            "Expected a timm model, a transformers model or a PyTorch module, but got a"
            f" {type(model).__name__}. For a file or a name, call vitviz.load."
        )
    inner, refused = _unwrapped(model), None
    _require_weights(inner, type(inner).__name__)
    try:
        if not options:
            return verified_copy(inner, overrides, size, name, mapping)
    except Exception as error:  # the model's code may raise anything
        missing = isinstance(error, VitvizError) and not isinstance(error, UnsupportedModel | CheckpointError)
        if missing or mapping is not None:  # a setting, or no own module is meant
            raise
        refused = error
    try:
        overrides = _with_own_normalisation(inner, overrides)
        loaded = loaded_own(inner, overrides, size, name, record=_record_of(inner, overrides), **options)
        loaded.model.findings |= {} if refused is None else {"no timm twin": str(refused)}
        return loaded
    except UnsupportedModel:
        if isinstance(refused, VitvizError) and (_is_of("timm.", inner) or _is_of("transformers.", inner)):
            raise refused from None  # a library's model: the reason is known by its name
        raise


@in_float32()
def verified_copy(
    inner: nn.Module, overrides: Overrides, size: tuple[int, int] | None = None, name: str | None = None,
    mapping: NameMap | None = None,
) -> Loaded:  # fmt: skip
    """Copy a model in memory for an inspector.

    `overrides` holds the user's settings and `size` the input size (height, width); None means unspecified.
    Raises UnsupportedModel for a model that is no plain ViT or whose copy gives another output, VitvizError
    for a missing setting: mean and std, heads, or a mapping of the tensors' names.
    """
    kind = type(inner).__name__
    inner = copies.with_permanent_weights(inner)
    if kind == "ViTMAEForPreTraining":  # of which only the encoder is shown, as from a file
        inner = inner.vit
    taken = _library_copy(inner, overrides)
    if taken is None:
        overrides = _with_own_normalisation(inner, overrides)
        taken = matching_vit(inner, kind, overrides, mapping)
    overrides.applied(taken.model, kind)
    _prove(inner, taken, kind)
    if size is not None and size != tuple(taken.data["input_size"][-2:]):
        taken = _at_size(taken, size, kind)
    data = overrides.data(taken.data)
    known = Checkpoint(
        name or f"{kind} in memory {next(_numbers)}", taken.architecture, "memory", "",
        tuple(data["input_size"]), sum(parameter.numel() for parameter in taken.model.parameters()),
        note=" ".join(taken.notes),
    )  # fmt: skip
    names = overrides.labels or taken.labels
    head_type = classifier_type(names, overrides.head_type or taken.head_type, taken.model.num_classes, kind)
    if _is_of("transformers.models.vit_mae", inner):
        taken.model.assumption = f"{kind} removes random patches in each pass. Here all patches are kept."
    ready = taken.model.eval().requires_grad_(False)
    readout_stages.pooling_or_none(ready)  # fails where modules hold no tensors, as quantised ones do
    return Loaded(known, ready, Preprocessing.from_config(data), tuple(names), head_type)


def _with_own_normalisation(model: nn.Module, overrides: Overrides) -> Overrides:
    """Return the settings with the mean and std of timm's configuration of a model, unless given."""
    config = getattr(model, "pretrained_cfg", None)
    if overrides.normalised or not isinstance(config, Mapping) or not {"mean", "std"} <= set(config):
        return overrides
    return replace(overrides, mean=tuple(config["mean"]), std=tuple(config["std"]))


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside the wrappers of torch.compile, parallel training and accelerate.

    For mixed precision, accelerate replaces `forward` by an autocast version with rounded output. The
    function then returns a shallow copy with the original `forward`; the training model keeps the autocast.
    """
    parallel = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
    inner = getattr(model, "module" if parallel else "_orig_mod", None)
    if isinstance(inner, nn.Module):
        return _unwrapped(inner)
    original = vars(model).get("_original_forward")
    if original is None:
        return model
    twin = copy.copy(model)
    del twin._original_forward
    bound = getattr(original, "__self__", None) is model
    twin.forward = MethodType(original.__func__, twin) if bound else original
    return _unwrapped(twin)


def _require_weights(model: nn.Module, kind: str) -> None:
    """Raise UnsupportedModel if weights are on the device meta, which holds shapes and no numbers."""
    empty = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if empty:
        raise UnsupportedModel(
            f"{len(empty)} parameters of {kind}, such as {empty[0]}, are on the meta device and have no"
            " values. Load the weights first, without off-loading (accelerate's device_map or cpu_offload)."
        )


def _is_of(library: str, model: nn.Module) -> bool:
    """Return True if the model's class, or a base class, is from a module starting with `library`."""
    return any(base.__module__.startswith(library) for base in type(model).__mro__)


def _of_timm(model: nn.Module, overrides: Overrides) -> FilledModel:
    """Copy a plain ViT of timm with its record; raise VitvizError if no normalisation is known."""
    record = dict(getattr(model, "pretrained_cfg", None) or {})
    if not record and overrides.mean is None:
        raise VitvizError(
            f"{type(model).__name__} has no timm configuration with the normalisation of its input. Pass"
            " mean=… and std=…, for pixel values from 0 to 1."
        )
    architecture = str(record.get("architecture") or type(model).__name__)
    modules = (base.__module__ for base in type(model).__mro__)
    if next(module for module in modules if module.startswith("timm.")).rpartition(".")[2] not in FAMILIES:
        require_plain(architecture)  # raises with the reason if timm has this name
        raise UnsupportedModel(f"{architecture} is not a plain Vision Transformer.")
    embedding = getattr(model, "patch_embed", None)
    size = getattr(embedding, "img_size", None) or tuple(record.get("input_size", (3, 224, 224)))[-2:]
    copied = copies.placed_copy(model, memory.CPU, torch.float32, copy=True)
    fuse_attention(copied)
    _forget_training(copied)
    _merge_linear(copied)
    copied = naflex.to_plain_vit(copied, tuple(size), architecture)
    data = {**record, "input_size": (channels_of(copied), *size)}
    tag = str(data.get("tag") or "")
    labels = timm_config.labels_of(record, model.num_classes, tag)
    notes = [] if overrides.mean else ["Mean and deviation are those of its timm configuration."]
    notes += timm_config.inactive_settings_note(record)
    return FilledModel(copied, architecture, data, notes=tuple(notes), labels=labels)


def _merge_linear(model: nn.Module) -> None:
    """Replace each linear map made of several layers by one `nn.Linear`.

    Examples are LoRA and `Sequential(Dropout, Linear)`. The outputs for unit vectors are the weights.
    """
    for path, part in list(model.named_modules()):
        widths = [one.in_features for one in part.eval().modules() if isinstance(one, nn.Linear)]
        if type(part) is nn.Linear or path.rpartition(".")[2] not in _LINEAR:
            continue
        for width in dict.fromkeys(widths):
            with _computing(), suppress(RuntimeError):  # another layer's width than the input's
                rows = torch.cat([torch.zeros(1, width), torch.eye(width), torch.randn(8, width)])
                outputs = part(rows if path == "head" else rows[None]).flatten(0, -2)
                bias, weight, answers = outputs.split([1, width, 8])
                merged = nn.Linear(*weight.shape)
                merged.weight.copy_((weight - bias).mT)
                merged.bias.copy_(bias[0])
                if _difference(merged(rows[-8:]), answers) <= 1e-5:
                    parent, _, name = path.rpartition(".")
                    setattr(model.get_submodule(parent), name, merged)


def _at_size(filled: FilledModel, size: tuple[int, int], kind: str) -> FilledModel:
    """Return the filled model with another input size (height, width); raise VitvizError if it is invalid."""
    if not hasattr(filled.model, "set_input_size"):
        own = tuple(filled.data["input_size"][-2:])
        raise UnsupportedModel(f"{kind} has a fixed input of {own[0]} x {own[1]} pixels.")
    placement.require_size(size, grid_of(filled.model), filled.model, memory.CPU, kind)
    return replace(filled, data={**filled.data, "input_size": (filled.data["input_size"][0], *size)})


def _of_transformers(model: nn.Module, kind: str) -> FilledModel:
    """Build timm's ViT for a transformers model in memory, with a copy of its weights and settings."""
    config = model.config.to_dict()
    tensors = huggingface.to_timm(state_of(model), str(config["model_type"]))
    build, entry = huggingface.builder(config, tensors, kind)
    ours = build_empty(build, kind, tensors)
    fill_weights(ours, tensors, kind, f"its configuration ({config['model_type']})")
    data, _ = processors.data_config(config, None)
    classifier = {one: getattr(huggingface, one)(config, ours.num_classes) for one in ("labels", "head_type")}
    return FilledModel(ours, entry, data, **classifier)


def _library_copy(model: nn.Module, overrides: Overrides) -> FilledModel | None:
    """Return the copy of a model of timm or transformers; None for any other module."""
    if _is_of("timm.models.", model):
        return _of_timm(model, overrides)
    return _of_transformers(model, type(model).__name__) if _is_of("transformers.models.", model) else None


def _record_of(model: nn.Module, overrides: Overrides) -> FilledModel | None:
    """Return a library model's copy, for its preprocessing and classes; None if it cannot be copied."""
    with suppress(Exception):  # the model is inspected directly because something in it differs
        return _library_copy(model, overrides)


def _forget_training(model: nn.Module) -> None:
    """Remove training hooks from the copy and disable gradient checkpointing, which conflicts with hooks."""
    for module in model.modules():
        if hasattr(module, "grad_checkpointing"):
            module.grad_checkpointing = False
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            hooks.clear()


def _prove(model: nn.Module, filled: FilledModel, kind: str) -> None:
    """Raise UnsupportedModel if the copy's output, or the tokens of a library's model, differ from its own.

    A classifier of zeros has the same output for all tokens.
    """
    for path, part in model.named_modules() if _is_of("timm.", model) else ():
        if "forward" in vars(part) and not hasattr(part, "_hf_hook"):  # accelerate's does not matter
            raise UnsupportedModel(f"The forward of {path or kind} was replaced, so it is not timm's.")
    size = tuple(filled.data["input_size"])
    with capture.recording(filled.model) as recording:
        ours, last = _tokens(filled.model, size), []
    check_plain(recording, grid_of(filled.model).tokens, kind)

    def keep(module, args, output):
        output = getattr(output, "last_hidden_state", output)
        output = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(output, Tensor) and output.shape == ours.shape:
            last[:] = [output.detach()]

    with ExitStack() as stack:
        of_library = _is_of("timm.models.", model) or _is_of("transformers.models.", model)
        for part in model.modules() if of_library else ():
            stack.callback(part.register_forward_hook(keep).remove)
        theirs = reference_outputs(model, size, kind)
    error = output_difference(filled.model, size, theirs)
    if last and theirs.ndim == 2:
        error = max(error, _difference(ours, last[0].to("cpu", torch.float32)))
    if not error <= tolerance(model):
        raise UnsupportedModel(
            f"The output of {kind} differs from that of its timm copy, by {error:.2g} of the largest value:"
            " hooks, adapters or custom code change what it computes."
        )


def tolerance(model: nn.Module) -> float:
    """Return the largest relative difference of outputs at which a copy counts as equal, by dtype.

    1e-4 for float32 and float64, else 0.05.
    """
    return _ALIKE.get(next(model.parameters()).dtype, 0.05)


def _noise(size: tuple[int, int, int]) -> Tensor:
    return torch.randn(2, *size, generator=torch.Generator().manual_seed(0))


@contextmanager
def _of_whole_images(model: nn.Module) -> Iterator[Callable[[Tensor], Any]]:
    """Yield the model's forward; a ViT-MAE drops no random patches inside the `with`."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) != "vit_mae":
        yield model
        return
    patches, ratio = model.embeddings.patch_embeddings.num_patches, config.mask_ratio
    config.mask_ratio = 0.0
    try:
        # the patches are sorted by this noise
        yield lambda pixels: model(pixels, noise=torch.arange(patches).expand(len(pixels), -1))
    finally:
        config.mask_ratio = ratio


def reference_outputs(model: nn.Module, size: tuple[int, int, int], kind: str) -> Tensor:
    """Return the output of a user's model for two noise images of a size (channels, height, width).

    Training modes and torch's RNG are restored.
    """
    first = next(model.parameters())
    try:
        devices = [first.device] if first.device.type == "cuda" else []
        unrounded = torch.autocast(first.device.type, enabled=False)
        seeded, whole = torch.random.fork_rng(devices), _of_whole_images(model)
        with evaluating(model), torch.no_grad(), unrounded, seeded, whole as forward:
            output: Any = forward(_noise(size).to(first.device, first.dtype))
    except VitvizError:
        raise
    except Exception as error:  # user code
        raise UnsupportedModel(
            f"{kind} cannot process a batch of two images of {size[1]} x {size[2]} pixels:"
            f" {first_line(error)}."
        ) from error
    for key in ("logits", "last_hidden_state"):
        if isinstance(getattr(output, key, None), Tensor):
            output = getattr(output, key)
    if isinstance(output, tuple | list):
        output = next((value for value in output if isinstance(value, Tensor)), None)
    if not isinstance(output, Tensor) or output.ndim not in (2, 3):
        raise UnsupportedModel(f"{kind} returns a {type(output).__name__}; expected class scores.")
    return output.detach().to("cpu", torch.float32)


def output_difference(model: nn.Module, size: tuple[int, int, int], theirs: Tensor) -> float:
    """Return the largest difference of our model's noise outputs from `theirs`, relative to their maximum."""
    with _computing():
        ours = _tokens(model, size) if theirs.ndim == 3 else model.eval()(_noise(size))
    return _difference(ours, theirs)


def _difference(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference, relative to the maximum of `theirs`; infinite for another shape."""
    if ours.shape != theirs.shape or not (ours.isfinite().all() and theirs.isfinite().all()):
        return float("inf")
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()


def _tokens(model: nn.Module, size: tuple[int, int, int]) -> Tensor:
    """Return the last tokens of our model for the noise images."""
    with _computing():
        return model.eval().forward_features(_noise(size))


@contextmanager
def _computing() -> Iterator[None]:
    """Compute without gradients, rounding or random numbers, which a copied model may use, too."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.random.fork_rng([]):
        yield


def matching_vit(model: nn.Module, kind: str, overrides: Overrides, mapping: NameMap | None) -> FilledModel:
    """Return timm's plain ViT whose output equals a user's module's; raise UnsupportedModel if there is none.

    `kind` is the module's name in messages. Also raises UnsupportedModel if names and shapes do not identify
    the tensors, and VitvizError if mean and std or the number of heads are missing.
    """
    require_normalised(overrides, kind)
    tensors, rounded = state_of(model), next(model.parameters()).dtype not in _ALIKE
    if mapping is None and "blocks.0.attn.qkv.weight" not in tensors:
        mapping = _proposed(tensors, kind)

    @cache
    def theirs(size: tuple[int, int, int]) -> Tensor:
        outputs = partial(reference_outputs, model, size, kind)
        answers = _with_weights(model, _weights(model), outputs) if rounded else outputs()
        if answers.ndim == 2 and torch.equal(answers[0], answers[1]):
            raise VitvizError(
                f"{kind} gives the same output for every image, so its computation cannot be verified. Try"
                " again once its head is trained."
            )
        return answers

    nearest_first = partial(_nearest_first, model, kind, theirs, tensors, mapping)
    settings, limit = overrides.merged_with(mapping.given) if mapping else overrides, _ALIKE[torch.float32]
    best = nearest_first(settings)
    if best and best[0][0] > limit:  # try other block forms and poolings
        usual = best[0][1].model
        blocks = [settings.block] if settings.block else possible_block_forms(usual)
        pools = [settings.pool] if settings.pool else possible_poolings(usual)
        for block, pool in itertools.product(blocks, pools):
            candidates = nearest_first(replace(settings, block=block, pool=pool))
            best = candidates if candidates[0][0] < best[0][0] else best
            if best[0][0] <= limit:
                break
    if not best:
        raise UnsupportedModel(f"{kind} could not be rebuilt as a plain Vision Transformer. {_NAME_IT}")
    (error, taken, heads, rebuilt), rest = best[0], best[1:]
    rival = next((one for one in rest if one[2] != heads), None)
    if rival is not None and rival[0] >= _APART * max(error, 1e-9):
        rival = None
    if error <= limit and rival is None:

        def with_random_weights() -> float:
            return output_difference(rebuilt(state_of(model)), size, reference_outputs(model, size, kind))

        size = tuple(taken.data["input_size"])
        error = max(error, _with_weights(model, _weights(model, random=True), with_random_weights))
    if error > limit:
        raise UnsupportedModel(
            f"{kind} does not compute as a plain Vision Transformer with these weights does: {len(best)}"
            f" variants were tried, and the output of the nearest one differs by {error:.2g} of the largest"
            " value."
        )
    if rival is not None:
        raise VitvizError(
            f"{kind} gives the same output with {heads} and with {rival[2]} heads, as barely trained weights"
            " do. Pass heads=…"
        )
    return replace(taken, head_type=settings.head_type)


def _nearest_first(
    model: nn.Module, kind: str, theirs: Callable[[tuple[int, int, int]], Tensor],
    tensors: Mapping[str, Tensor], mapping: NameMap | None, overrides: Overrides,
) -> list[tuple[float, FilledModel, int, Callable[[Mapping[str, Tensor]], nn.Module]]]:  # fmt: skip
    """Return (error, ViT, heads, rebuild) of each number of heads' best plain ViT, smallest error first.

    `rebuild(tensors)` returns that ViT with other weights.
    """
    candidates = []
    notes = (f"Its tensors were read with this mapping:\n{to_toml(mapping)}",) if mapping else ()
    for order in _orders(tensors, mapping):
        named = replace(mapping, model={**mapping.model, "patch_order": order}) if order else mapping
        ours, entry, args = _filled(tensors, named, kind, overrides.heads)
        size = args["in_chans"], *args["img_size"]
        data = {"input_size": size, "interpolation": "bicubic", "crop_pct": 1.0}
        answers = theirs(size)
        epsilons = {part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)}
        for heads in [overrides.heads] if overrides.heads else _heads(model, args["embed_dim"]):
            error, settings = _nearest(ours, answers, replace(overrides, heads=heads), sorted(epsilons), kind)
            copy = copies.copy_sharing_weights(ours)
            settings.applied(copy, kind)
            rebuilt = partial(_rebuilt, named=named, kind=kind, settings=settings, heads=overrides.heads)
            candidates.append((error, FilledModel(copy, entry, data, notes=notes), heads, rebuilt))
    return sorted(candidates, key=lambda one: one[0])


def _filled(
    tensors: Mapping[str, Tensor], named: NameMap | None, kind: str, heads: int | None
) -> tuple[nn.Module, str, dict[str, Any]]:
    """Return a plain ViT filled with a module's tensors, its timm name and its timm arguments."""
    translated = named.translated(tensors, kind) if named else dict(tensors)
    try:
        entry, args, _ = inference.architecture_of(translated, kind, heads or 1)
    except CheckpointError as error:
        raise UnsupportedModel(f"{error} {_NAME_IT}") from error
    ours = build_empty(partial(timm.create_model, entry, pretrained=False), kind, translated, **args)
    fill_weights(ours, translated, kind, f"what its tensors show ({entry})")
    return ours.eval().requires_grad_(False), entry, args


def _rebuilt(
    tensors: Mapping[str, Tensor], named: NameMap | None, kind: str, settings: Overrides, heads: int | None
) -> nn.Module:
    """Return a plain ViT filled with a module's tensors, with given settings."""
    ours, _, _ = _filled(tensors, named, kind, heads)
    settings.applied(ours, kind)
    return ours


def _with_weights(model: nn.Module, weights: Mapping[str, Tensor], compute: Callable[[], Any]) -> Any:
    """Return `compute()`, called while the module's parameters and buffers are replaced by `weights`."""

    class Holder(nn.Module):
        def forward(self):
            return compute()

    holder = Holder()
    holder.module = model
    weights = {f"module.{name}": value for name, value in weights.items()}
    return torch.func.functional_call(holder, weights, (), tie_weights=False)


def _weights(model: nn.Module, random: bool = False) -> dict[str, Tensor]:
    """Return a module's floating parameters and buffers, those in half precision as float32.

    With `random`, parameters are random, of a size at which every branch and every attention changes the
    output: matrices keep the variance; vectors, such as gains, have values from 0.5 to 1.5 of random sign.
    """
    generator, weights, made = torch.Generator().manual_seed(0), {}, {}
    for path, part in model.named_modules():  # each module once, and tied parameters with one value
        own = {"prefix": path, "recurse": False, "remove_duplicate": False}
        for name, tensor in itertools.chain(part.named_parameters(**own), part.named_buffers(**own)):
            if not tensor.is_floating_point():
                continue
            if id(tensor) not in made:
                value = tensor.detach() if tensor.dtype in _ALIKE else tensor.detach().float()
                if random and isinstance(tensor, nn.Parameter):
                    value = _random(tensor.shape, generator).to(value)
                made[id(tensor)] = value
            weights[name] = made[id(tensor)]
    return weights


def _random(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    values = torch.randn(shape, generator=generator)
    if len(sides := [side for side in shape if side > 1]) > 1:
        return values * (sides[0] / values.numel()) ** 0.5
    return values.sign() * (0.5 + torch.rand(shape, generator=generator))


def _nearest(
    ours: nn.Module, theirs: Tensor, overrides: Overrides, epsilons: list[float], kind: str
) -> tuple[float, Overrides]:
    """Return the smallest output error, and the settings of activation and epsilon that give it."""
    candidates, activations = [], [overrides.activation] if overrides.activation else ACTIVATIONS
    epsilons = [overrides.epsilon] if overrides.epsilon else epsilons or _EPSILONS
    for activation, epsilon in itertools.product(activations, epsilons):
        settings = replace(overrides, activation=activation, epsilon=epsilon)
        settings.applied(ours, kind)
        size = ours.patch_embed.proj.in_channels, *ours.patch_embed.img_size
        candidates.append((output_difference(ours, size, theirs), settings))
    return min(candidates, key=lambda one: one[0])


def _orders(tensors: Mapping[str, Tensor], mapping: NameMap | None) -> Iterable[str | None]:
    """Return candidate `patch_order`s; (None,) if patches are not flattened or the mapping states it."""
    if mapping is not None and not mapping.model.get("patch_order"):
        try:
            mapping.translated(tensors, "")
        except CheckpointError as error:
            return PATCH_ORDERS if "patch_order" in str(error) else (None,)
    return (None,)


def _proposed(tensors: Mapping[str, Tensor], kind: str) -> NameMap:
    """Return the mapping to timm's tensor names that shapes and usual names suggest.

    Raise UnsupportedModel if a tensor's role is ambiguous or one of timm's has no match.
    """
    proposal = propose_mapping(tensors)
    open_ = [*proposal.open, *(name for name in proposal.missing if not name.startswith("patch_order"))]
    if open_:
        raise UnsupportedModel(
            f"{kind} uses its own tensor names, and their shapes are ambiguous for"
            f" {', '.join(open_[:4])}{f' and {len(open_) - 4} more' if len(open_) > 4 else ''}. {_NAME_IT}"
            f" Inferred so far:\n{to_toml(proposal.mapping)}"
        )
    return proposal.mapping


def _heads(model: nn.Module, width: int) -> list[int]:
    """Return candidate numbers of heads: attributes of the module's parts, else divisors of the width."""
    counts = {
        value for part in model.modules() for called in _HEADS_CALLED
        if isinstance(value := getattr(part, called, None), int) and not isinstance(value, bool)
        and 0 < value <= width and width % value == 0
    }  # fmt: skip
    return sorted(counts) or [heads for heads in range(1, width // 4 + 1) if width % heads == 0]


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a module's weights in float32 on the CPU, without counters and computed index tables."""
    return {
        key: tensor.detach().to("cpu", torch.float32, copy=True) for key, tensor in model.state_dict().items()
        if tensor.is_floating_point() and not re.search(r"relative_position_index$", key)
    }  # fmt: skip
