"""Most likely class, such as a sentence, of each patch: the class, its cosine and the legend of colours.

The cosines are those of each patch alone (`vitviz.analyses.saliency.dense`). Seven classes have their own
colour: those with the most patches. The map does not show whether the most likely class is in the image.
"""

from textwrap import wrap

import numpy as np

from vitviz.analyses.protocol import TITLES
from vitviz.charts.chart import GREY, Series, number
from vitviz.charts.mpl.spec import NARROW, FigureSpec, Map, TextTable
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText, not_applicable
from vitviz.views import lazy
from vitviz.views.evidence.compute import EDITED
from vitviz.views.printing import grid_aspect, model_crop
from vitviz.views.shared import passes_of
from vitviz.views.subject import Settings, ViewContext

COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")  # Okabe and Ito
FEW = "naming the most likely class needs at least two given classes, such as sentences"
TITLE = "Most likely class of each patch, by {method}"
ADDS = "Cosines of each patch alone with each class; they do not sum to the logit."


def has_several_classes(subject: ViewContext) -> bool:
    """True if the trace has at least two classes given as vectors, such as sentences."""
    classes = subject.trace and subject.trace.classes
    return classes is not None and len(classes.labels) > 1


def likeliest_by_patch(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the most likely class of every patch and its cosine: (row, col, pair)."""
    classes, method = subject.trace.classes, settings["patchwise"]
    if not has_several_classes(subject):
        raise UnsupportedModel(not_applicable(subject.checkpoint, LocalizedText(FEW)))
    if subject.trace.without:
        raise UnsupportedModel(LocalizedText(EDITED))

    def make():
        scores = lazy.dense.patch_scores(passes_of(subject, 0), method)
        best = ((scores - classes.bias) / classes.scale).max(dim=0)
        return np.stack([best.indices.numpy(), best.values.numpy()], axis=-1).astype(np.float32)

    return subject.once_by_passes(f"likeliest {method}", make)


def legend_entries(subject: ViewContext, settings: Settings) -> list[tuple[int | None, str, str]]:
    """Return the legend as (class, name, colour); class None, if any, comes last for all other classes."""
    labels, result = subject.trace.labels, likeliest_by_patch(subject, settings)[..., 0].astype(int)
    frequent = np.argsort(-np.bincount(result.ravel(), minlength=len(labels)), kind="stable")[: len(COLOURS)]
    entries = [(i, labels[i], colour) for i, colour in zip(sorted(frequent.tolist()), COLOURS, strict=False)]
    others = len(labels) - len(entries)
    return entries + ([(None, LocalizedText("{count} other classes", count=others), GREY)] if others else [])


def arrays(subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
    """Return the arrays for export; the class is -1 where the largest cosine is below the threshold."""
    result, cosines = np.moveaxis(likeliest_by_patch(subject, settings).astype(float), -1, 0)
    codes = np.where(cosines >= settings["least"], result, -1).astype(int)
    return {"likeliest": codes, "cosines": cosines, "class_names": np.asarray(subject.trace.labels)}


def spec(subject: ViewContext, settings: Settings, style) -> FigureSpec:
    """Return the classes over the grey image, and the legend with the percentage of patches per class."""
    entries, result = legend_entries(subject, settings), arrays(subject, settings)
    indices = [index for index, *_ in entries]
    places = [-1 if i < 0 else indices.index(i if i in indices else None) for i in result["likeliest"].flat]
    codes = np.reshape(places, result["likeliest"].shape)
    colours = np.asarray([[*bytes.fromhex(colour[1:])] for *_, colour in entries], np.uint8)
    title = LocalizedText(TITLE, method=TITLES[settings["patchwise"]])
    values, grey = np.where(codes < 0, np.nan, result["cosines"]), model_crop(subject, style, grey=True)
    panel = Map(title, grey, values, colours[codes], opacity=0.72, aspect=grid_aspect(subject.grid))
    none = LocalizedText("None: cosine below {least}", least=number(settings["least"]))
    rows, samples = [], []
    for place, (_, name, colour) in enumerate((*entries, (None, none, ""))):
        first, *lines = [name] if isinstance(name, LocalizedText) else wrap(name, 48) or [name]
        share = np.mean(codes == (place if colour else -1))
        rows += [(first, f"{number(100 * share)} %"), *((line, "") for line in lines)]
        sample = Series(np.empty(0), np.empty(0), colour=colour, thick=2.0)
        samples += [sample] * bool(colour) * (1 + len(lines))
    table = TextTable((LocalizedText("Class"), LocalizedText("Patches")), tuple(rows), series=tuple(samples))
    return FigureSpec(((panel,), (table,)), (LocalizedText(ADDS),), width=NARROW)
