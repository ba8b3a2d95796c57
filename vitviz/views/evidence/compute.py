"""Numbers of the Attribution view: logit attribution, maps of other methods, predictions of single patches,
effects of ablated components, and the upstream sources of a head along a trail of heads to the output.
"""

from dataclasses import replace

import numpy as np

from vitviz import analyses
from vitviz.errors import UnsupportedModel, WrongSetting
from vitviz.traces.localized_text import LocalizedText, text_to_json
from vitviz.views import lazy, shared
from vitviz.views.base import original_context
from vitviz.views.subject import Settings, ViewContext

TRAIL = r"|\d{1,3}\.\d{1,3}(-\d{1,3}\.\d{1,3}){0,11}"  # heads from the output back, counted from 1
WRITER = r"|embedding|positions|constant|(bias|mlp)\.\d{1,3}|head\.\d{1,3}\.\d{1,3}"
SHOWN = 5  # most likely classes in the picker
BEST = 3  # most likely classes named per patch
EDITED = "Gradient maps need the full model. Restore the removed parts, or use direct logit attribution."
ONE_ONLY = {  # by readout: why a patch alone has no prediction
    "attention": (
        "Patches have no predictions of their own here, because the classifier reads attention pooling,"
        " which weighs all patches together."
    ),
    "class and average": (
        "Patches have no predictions of their own here, because the classifier reads the class token and"
        " the mean of the patches side by side."
    ),
}


def target(subject: ViewContext, settings: Settings) -> shared.ClassTarget:
    """Return the target class as an int, or (a, b) for class a rather than b."""
    return shared.parse_target(subject, settings["target"])


def likeliest(subject: ViewContext) -> list[int]:
    """Return the classes of the largest logits, as ints, for the picker and the logit lens."""
    return subject.trace.logits.topk(min(SHOWN, subject.trace.logits.numel())).indices.tolist()


def compares_with_mean(trace) -> bool:
    """True if logits can be shown relative to the mean class: not for a sigmoid head or a head of values.

    Classes given as vectors can always be compared with their mean.
    """
    if trace is None:
        return True
    return trace.head_type == "softmax" or trace.classes is not None


def target_column(subject: ViewContext, settings: Settings, table):
    """Return the target's column of a table (row, class).

    For a pair, the second column is subtracted. If the setting "relative" is on, the mean class is
    subtracted.
    """
    classes = target(subject, settings)
    if isinstance(classes, tuple):
        return table[:, classes[0]] - table[:, classes[1]]
    return table[:, classes] - (table.mean(dim=-1) if settings["relative"] == "yes" else 0)


def prediction_change(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the target's score and logit for the original image and model, and now, as JSON.

    The target "top" is the class that was predicted originally. Two classes have a difference of logits and
    no score. `now` names the predicted class if the prediction has changed. Null if nothing was changed.
    """
    if subject.original is None:
        return shared.json_bytes(None)
    trace, was = subject.trace, original_context(subject).trace
    top = settings["target"] == "top"
    classes = target(original_context(subject) if top else subject, settings)
    name = shared.target_name(subject, str(classes) if top else settings["target"])
    pair = isinstance(classes, tuple)
    logits = [(run.logits[classes[0]] - run.logits[classes[1]] if pair else run.logits[classes]).item()
              for run in (was, trace)]  # fmt: skip
    moved = trace.prediction != was.prediction
    return shared.json_bytes({
        "name": text_to_json(name), "logits": logits,
        "scores": None if pair else [run.scores()[classes].item() for run in (was, trace)],
        "now": text_to_json(shared.class_name(trace, trace.prediction)) if moved else None,
    })  # fmt: skip


def account(subject: ViewContext, settings: Settings):
    """Return the attribution of the target's logit; with "difference" on, minus the original image's."""
    classes, relative = target(subject, settings), settings["relative"] == "yes"

    def account_for(context: ViewContext):
        name = f"account {classes} {relative}"
        return context.once(
            name, lambda: analyses.attribution_of(shared.shared_logit_terms(context), classes, relative)
        )

    account = account_for(subject)
    if settings.get("difference") == "on":
        return account.minus(account_for(original_context(subject)))
    return account


def contribution_map(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return contributions by patch (row, col): of all heads, the layers up to one, one layer or one head."""
    result, chosen, until = account(subject, settings), settings["chosen"], settings["until"]
    if not chosen and not until:
        return result.patches.numpy()
    if not chosen:
        return to_patch_map(subject, result.sources[:until].sum(dim=(0, 1)))
    layer, *head = (int(part) - 1 for part in chosen.split("."))
    about = subject.about
    if not (0 <= layer < about.layers and all(0 <= one < about.heads for one in head)):
        bounds = f"layer 1 to {about.layers}, head 1 to {about.heads}"
        raise WrongSetting(f"chosen={chosen} is not valid; expected {bounds}, such as 1.1.")
    sources = result.sources[layer, head[0]] if head else result.sources[layer].sum(dim=0)
    return to_patch_map(subject, sources)


def to_patch_map(subject: ViewContext, sources) -> np.ndarray:
    """Return the patches' part of an array by token (position from 0, prefix first): (row, col)."""
    return sources[subject.grid.prefix :].reshape(subject.grid.rows, subject.grid.cols).numpy()


def saliency_of_target(subject: ViewContext, settings: Settings):
    """Return the target's map by the selected saliency method; with "difference", minus the original's."""
    if subject.trace.without:
        raise UnsupportedModel(LocalizedText(EDITED))
    result = shared.shared_saliency_map(subject, target(subject, settings), settings["method"])
    if settings.get("difference") != "on":
        return result
    was = shared.shared_saliency_map(original_context(subject), target(subject, settings), settings["method"])
    constants = {name: value - was.constants[name] for name, value in result.constants.items()}
    prefix = None if result.prefix is None else result.prefix - was.prefix
    changed = {"answer": result.answer - was.answer, "prefix": prefix, "constants": constants}
    return replace(result, map=result.map - was.map, **changed)


def lens_of_input(subject: ViewContext, form: str):
    """Return the logit lens of the classifier's input, (depth, class).

    Form "now" recomputes the last norm at each depth; "share" holds its last deviation and accumulates to the
    logits.
    """
    lens = lazy.attribution.logit_lens
    return subject.once(f"lens {form}", lambda: lens(subject.inspector, subject.trace, form))


def patch_prediction_kind(subject: ViewContext) -> str:
    """Return the kind of a patch's own prediction: "reading", "probe", or the reason why there is none."""
    tail = subject.inspector.tail(subject.grid.pixels)
    return ONE_ONLY.get(tail.pooling.kind) or analyses.lens_kind(tail)


def _by_patch(subject: ViewContext, depth: int):
    """Return the classifier's output for every patch alone at a depth: (class, row, col)."""
    if patch_prediction_kind(subject) not in ("reading", "probe"):
        raise UnsupportedModel(LocalizedText(patch_prediction_kind(subject)))
    return analyses.lens_probabilities(shared.shared_logit_terms(subject), depth)


def target_by_patch(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the probability, or value, of the target class for every patch alone at a depth: (row, col)."""
    index = target(subject, settings)
    return _by_patch(subject, settings["depth"])[index[0] if isinstance(index, tuple) else index].numpy()


def likeliest_by_patch(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the most likely classes of every patch alone at a depth: (row, col, rank, pair).

    A pair is the class and its probability, or value. For a dropped patch, the probability is -1 and a value
    is NaN.
    """
    result = _by_patch(subject, settings["depth"])
    result = result if subject.trace.head_type == "value" else result.nan_to_num(nan=-1.0)
    top = result.topk(min(BEST, len(result)), dim=0)
    pairs = np.stack([top.indices.numpy(), top.values.numpy()], axis=-1)  # rank row col pair
    return np.moveaxis(pairs, 0, 2)


def layer_effects(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the drop of the target if each component of a layer is ablated alone: heads, then MLP."""
    return target_column(
        subject, settings, shared.ablation_drops(subject, settings["layer"] - 1).double()
    ).numpy()


def all_effects(subject: ViewContext, settings: Settings):
    """Return the effects of all layers as `vitviz.analyses.AblationEffects`."""
    drops = (shared.ablation_drops(subject, layer).double() for layer in range(subject.about.layers))
    result = lazy.torch.stack([target_column(subject, settings, drop) for drop in drops])
    logit, reference = account(subject, settings).logit, subject.inspector.reference().sentence
    return analyses.AblationEffects(logit, result[:, :-1], result[:, -1], "mean", reference)


def agreement(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return Pearson's correlation of direct contributions and ablation effects: [over heads, over MLPs]."""
    return np.asarray(analyses.agreement(all_effects(subject, settings), account(subject, settings)))


def trail(subject: ViewContext, settings: Settings) -> list[tuple[int, int]]:
    """Return the trail of heads from the output back, as (layer, head) from 0.

    The settings "trail" and "chosen" come first; otherwise the head with the largest contribution is used.
    """
    text = settings["trail"] or (settings["chosen"] if "." in settings["chosen"] else "")
    if not text:
        heads = account(subject, settings).heads
        return [divmod(int(heads.abs().argmax()), heads.shape[1])]
    result = [tuple(int(part) - 1 for part in step.split(".")) for step in text.split("-")]
    about = subject.about
    backwards = all(layer > below for (layer, _), (below, _) in zip(result, result[1:], strict=False))
    if not backwards or any(not (0 <= a < about.layers and 0 <= b < about.heads) for a, b in result):
        raise WrongSetting(
            f"trail={text} is not valid; expected heads of layer 1 to {about.layers}, head 1 to"
            f" {about.heads}, each in an earlier layer than the one before it, such as 8.2-5.1."
        )
    return result


def upstream_sources(subject: ViewContext, settings: Settings, steps: int | None = None):
    """Return the sources of the trail's last head with contributions; `steps` cuts the trail first."""
    *via, (layer, head) = trail(subject, settings)[:steps]
    classes, relative = target(subject, settings), settings["relative"] == "yes"
    return shared.shared_upstream(subject, classes, layer, head, via, relative)


def trail_json(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the trail with the contribution along it, as JSON: [layer, head, contribution], from 1."""
    result = enumerate(trail(subject, settings), 1)
    return shared.json_bytes(
        [[layer + 1, head + 1, upstream_sources(subject, settings, n).share] for n, (layer, head) in result]
    )


def writer_arrays(subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
    """Return the contributions of all sources for export; positions are NaN if the model has none."""
    result = upstream_sources(subject, settings)
    positions = np.nan if result.positions is None else result.positions
    others = result.share, result.total, result.embedding, positions, result.constant
    return {
        "written_by_heads": result.heads.numpy(),
        "written_by_layers": np.stack([result.biases.numpy(), result.mlps.numpy()]),
        "written_otherwise": np.asarray(others),
    }


def writer_map(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the contribution of the selected source, or of all, by the patch that the head attends to."""
    result, chosen = upstream_sources(subject, settings).by_token, settings["writer"]
    kind, *numbers = chosen.split(".")
    place = tuple(int(number) - 1 for number in numbers)
    about = subject.about
    if not chosen:
        ends = [term for term in (result.embedding, result.positions, result.constant) if term is not None]
        layered = result.heads.nansum(dim=(0, 1)) + (result.biases + result.mlps).nansum(dim=0)
        tokens = sum(ends) + layered
    else:
        valid = all(0 <= i < size for i, size in zip(place, (about.layers, about.heads), strict=False))
        tokens = result.of(lazy.upstream.Writer(kind, *place)) if valid else None
        if tokens is None:
            raise WrongSetting(f"writer={chosen} is not valid; this model has no such writer.")
    return to_patch_map(subject, tokens)
