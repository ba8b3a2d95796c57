"""Similarity (CKA) of two checkpoints, two depths or two training steps, over a set of images."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import BLUE, ORANGE, Chart, Matrix, Scale, Series, to_json
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec
from vitviz.errors import WrongSetting
from vitviz.traces.localized_text import LocalizedText, text_to_json
from vitviz.views.base import Item, Needs, View, ViewTexts, as_json, chart_item, drawing_item
from vitviz.views.controls import Choice, Control, IntSetting
from vitviz.views.parts import ExportDefaults, Scope
from vitviz.views.printing import PrintStyle, image_count_text, join_texts
from vitviz.views.shared import json_bytes
from vitviz.views.subject import Settings, ViewContext

SKIPS = ("attention_patches", "mlp_patches", "attention_class", "mlp_class")
CURVES = ("distance", "distance_of_even", "entropy", *SKIPS)
NO_SECOND = (
    "There is no second checkpoint. Choose one under “Comparison and input size”, or compare with the same"
    " checkpoint."
)
NO_HISTORY = (
    "{checkpoint} has no stored training steps, or none of them has processed this image set yet. Compare"
    " with the same checkpoint, or choose a second one under “Comparison and input size”."
)
EARLIEST = "{checkpoint} is the earliest stored training step itself. Choose a later step to compare with it."
NO_FILM = "This checkpoint has no stored training steps, or none of them has processed this image set yet."
NO_CLASS = "{checkpoint} has no class token. Compare the mean patch tokens, or all tokens."
TOO_FEW = "{count} images are too few to compare. Choose at least four, ideally a hundred."
UP = {
    "distance": "Attention distance (px)",
    "distance_of_even": "Attention distance / uniform attention",
    "entropy": "Attention entropy, all queries (nats)",
    "attention": "Skip / attention norm ratio",
    "mlp": "Skip / MLP norm ratio",
}
EMPTY = "Empty squares: CKA is undefined, because all images are identical at this depth."
LOST = "{checkpoint} has no such curve: its layers are of an unsupported type, or it has no class token."


def _offered_controls(controls: tuple[Control, ...], subject: ViewContext) -> tuple[Control, ...]:
    """Return the controls; "against" opens with the second checkpoint, else with the untrained model."""
    opening = "before" if subject.beside is None else "beside"
    return tuple(replace(field, default=opening) if field.name == "against" else field for field in controls)


def _skipped_items(subject: ViewContext) -> tuple[str, ...]:
    """Return the names of the items not to request: the matrix and the chart hold them."""
    return ("curves", "cka", "error", "steps", *(() if subject.film() else ("looked",)))


class SimilarityView(View):
    title = "Similarity"
    needs = Needs.SET
    scope = Scope(every_patch=True, averages=True, paired=True, offered=_offered_controls)
    words = ViewTexts.read(__file__)
    controls = (
        Choice(
            "tokens", "Tokens", "The tokens that represent an image",
            options=(
                ("patches", "Mean patch token"), ("class", "Only the class token"), ("all", "All tokens"),
            ),
        ),
        Choice(
            "against", "Compare against",
            options=(
                ("own", "The same checkpoint"), ("beside", "The second checkpoint"),
                ("before", "The earliest training step"), ("film", "All training steps"),
            ),
        ),
        Choice(
            "curve", "Curve",
            options=(
                ("distance", "Mean attention distance"), ("entropy", "Mean attention entropy"),
                ("attention", "Skip / attention norm ratio"), ("mlp", "Skip / MLP norm ratio"),
            ),
        ),
        IntSetting("frame", passing=True),  # training step, from 0, that surveys the images
    )  # fmt: skip
    items = (
        Item(
            "cka", "depth other",
            "CKA of every two depths; over the training, of each depth with itself at every stored step",
            depends=("tokens", "against"),
        ),
        Item(
            "error", "depth other", "standard error of the CKA, NaN for fewer than four minibatches",
            depends=("tokens", "against"),
        ),
        as_json("matrix", "both", "tokens", "against"),
        drawing_item("steps", "other", "steps of the training", dtype="int32"),
        drawing_item("looked", "one", "images that a step has processed", "frame", dtype="int32"),
        Item("curves", "curve layer", "by layer: " + ", ".join(CURVES)),
        chart_item("tokens", "against", "curve"),
    )  # fmt: skip
    export = ExportDefaults(
        arrays={
            "pictures": "",
            **dict.fromkeys(CURVES, "layer"),
            **{f"second_{name}": "other" for name in CURVES},
        },
        skipped=_skipped_items,
    )

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return the reason, for the page, why there is nothing to compare; None if there is none.

        It is that image set or measures are missing, or that the run has an ablation.
        """
        drawn_of, survey = {"similarity", "distance", "entropy"}, subject.survey
        known = subject.sampled if survey is None else drawn_of <= {entry.name for entry in survey.measures}
        if not known:
            return LocalizedText(
                "This view needs an image set. In Python, pass a survey with the measures"
                " vitviz.surveys.LAYERS."
            )
        if subject.trace is not None and subject.trace.without:
            return LocalizedText(
                "This view runs an image set through the full model. Restore removed parts first."
            )
        return None

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the facts that need no forward pass."""
        beside, survey, film = subject.beside, subject.survey, subject.film()
        missing = {} if beside else {"beside": NO_SECOND}
        if not film:
            none = LocalizedText(NO_HISTORY, checkpoint=subject.checkpoint)
            missing |= {"film": NO_FILM, "before": text_to_json(none)}
        elif subject.checkpoint.endswith(f"@{min(film)}"):
            missing["before"] = text_to_json(LocalizedText(EARLIEST, checkpoint=subject.checkpoint))
        return {
            "pictures": None if survey is None else sum(len(gram.pictures) for gram in survey.grams),
            "beside": None if beside is None else beside.checkpoint,
            "missing": missing,
            "earliest": min(film, default=None),
            "steps": len(film) if survey is None else 0,  # training steps to survey one by one
        }

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return a declared item by name; "looked" surveys the set with one more training step first."""
        if name in ("cka", "error"):
            compare = analyses.cka if name == "cka" else analyses.cka_error
            return self._compared(subject, settings, compare)
        if name == "matrix":
            return json_bytes(to_json(self.matrix(subject, settings)))
        if name == "steps":
            return np.asarray(list(subject.film()))
        if name == "looked":
            return np.asarray([_survey_next_step(subject, settings)])
        result = layer_curves(survey_to_show(subject))
        return np.stack([result[curve] for curve in CURVES])

    def chart(self, subject: ViewContext, settings: Settings) -> Chart:
        """Return the selected curve of this checkpoint and of the one that it is compared with.

        Notes name checkpoints without the curve.

        If input sizes differ, distances are relative to those of uniform attention. If numbers of layers
        differ, the x axis is the relative depth.
        """
        base, other = survey_to_show(subject), compared_survey(subject, settings)
        itself = settings["against"] == "before" and other and other.checkpoint == base.checkpoint
        surveys = [base, other] if other and not itself else [base]
        curve = name = settings["curve"]
        whose = LocalizedText("mean over a layer’s heads")
        if curve == "distance" and len({survey.grid.pixels for survey in surveys}) > 1:
            curve = name = "distance_of_even"
        if curve in ("attention", "mlp"):
            of_class = settings["tokens"] == "class"
            name = f"{curve}_{'class' if of_class else 'patches'}"
            whose = LocalizedText("of the class token" if of_class else "mean over the patches")
        result = [layer_curves(survey)[name] for survey in surveys]
        relative = len({len(values) for values in result}) > 1
        series, lost = [], []
        for survey, values, colour in zip(surveys, result, (BLUE, ORANGE), strict=False):
            finite, blocks = np.isfinite(values), np.arange(1, len(values) + 1)
            if not finite.any():
                lost.append(LocalizedText(LOST, checkpoint=survey.checkpoint))
                continue
            x = (blocks / len(blocks) if relative else blocks)[finite]
            also = {"number": blocks[finite], "checkpoint": [survey.checkpoint] * len(x)}
            details = (LocalizedText("layer {number} of {checkpoint}"),)
            arguments = {"line": True, "dots": True, "told": details, "also": also}
            series.append(Series(x, values[finite], survey.checkpoint, colour, **arguments))
        options = next(dict(control.options) for control in self.controls if control.name == "curve")
        maximum = max((float(line.y.max()) for line in series), default=0.0)
        x_label = LocalizedText("relative depth (layer / number of layers)" if relative else "layer")
        ends = (0.0, 1.03) if relative else (0.4, max(map(len, result)) + 0.6), (0.0, 1.08 * maximum or 1.0)
        title = join_texts(LocalizedText(options[settings["curve"]]), whose)
        arguments = {"whole": not relative, "aspect": 0.78, "notes": tuple(lost)}
        arguments["unit"] = "px" if curve == "distance" else ""
        return Chart(x_label, LocalizedText(UP[curve]), *ends, title, tuple(series), **arguments)

    def matrix(self, subject: ViewContext, settings: Settings) -> Matrix:
        """Return the CKA of every two depths, or of each depth with itself at every training step."""
        values, error = (self.item(subject, name, settings) for name in ("cka", "error"))
        film = settings["against"] == "film"
        pair = settings["against"] in ("beside", "before")
        other = compared_survey(subject, settings).checkpoint if pair else subject.checkpoint
        steps = self.item(subject, "steps", settings) if film else range(values.shape[1])
        x_label = LocalizedText("training step") if film else _depth_axis_title(other)
        down, cols = _depth_axis_title(subject.checkpoint), tuple(map(str, steps))
        axis, sure = "{name}: {value}", np.isfinite(error) & (subject.survey is not None)
        none = join_texts(LocalizedText("no CKA"), LocalizedText("all images are identical at this depth"))

        def cell_text(mean: float, error: float, measured: bool) -> LocalizedText:
            value = f"{mean:.3f}" + (f" ± {error:.3f}" if measured else "")
            return LocalizedText("CKA similarity {value}", value=value) if np.isfinite(mean) else none

        details = (
            LocalizedText("{said}", said=np.vectorize(cell_text, otypes=[object])(values, error, sure)),
            LocalizedText(axis, name=down, value=[[row] for row in range(len(values))]),
            LocalizedText(axis, name=x_label, value=[cols]),
        )
        title = LocalizedText("CKA between depths")
        if film:
            title = LocalizedText("Each depth compared with itself during training")
        scale = Scale("viridis", 0.0, 1.0, LocalizedText("CKA similarity"))
        rows = tuple(map(str, range(len(values))))
        return Matrix(values, scale, x_label, down, title, rows=rows, cols=cols, told=details)

    def _notes(self, subject: ViewContext, settings: Settings) -> tuple[LocalizedText, ...]:
        """Return the notes on the number of images, the standard error and empty squares."""
        values, error = (np.asarray(self.item(subject, name, settings)) for name in ("cka", "error"))
        notes = [image_count_text(subject)]
        if np.isfinite(error).any():
            notes.append(LocalizedText("Standard error: at most ± {error}.", error=f"{np.nanmax(error):.3f}"))
        if np.isnan(values).any():
            notes.append(LocalizedText(EMPTY))
        return tuple(notes)

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the matrix and the available curves, also of the checkpoint that it is compared with."""
        survey = survey_to_show(subject)
        result = {name: self.item(subject, name, settings) for name in ("cka", "error")}
        result["pictures"] = np.asarray(sum(len(gram.pictures) for gram in survey.grams))
        result |= _available_curves(layer_curves(survey), "")
        if settings["against"] == "film":
            result["steps"] = self.item(subject, "steps", settings)
        if (other := compared_survey(subject, settings)) is not None:
            curves = _available_curves(layer_curves(other), "second_")
            result |= {"second_checkpoint": np.asarray(other.checkpoint), **curves}
        return result

    def _compared(self, subject: ViewContext, settings: Settings, compare) -> np.ndarray:
        """Return `compare` (CKA or its error): (depth, the other's depth), or (depth, training step).

        Raise WrongSetting if there is no checkpoint or history to compare with.
        """
        tokens, against, base = settings["tokens"], settings["against"], survey_to_show(subject)
        if against != "film":
            other = base if against == "own" else compared_survey(subject, settings)
            if other is None:
                none = LocalizedText(NO_HISTORY, checkpoint=subject.checkpoint)
                raise WrongSetting(LocalizedText(NO_SECOND) if against == "beside" else none)
            return compare(_grams(base, tokens), _grams(other, tokens), tokens).numpy()
        steps = subject.film()
        if not steps:
            raise WrongSetting(LocalizedText(NO_FILM))
        result = [compare(_grams(base, tokens), _grams(s, tokens), tokens).diag() for s in steps.values()]
        return np.stack([diagonal.numpy() for diagonal in result], axis=1)


def spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return the matrix; with detail also the selected curve of every checkpoint in view, by layer."""
    matrix, notes = view.matrix(subject, settings), view._notes(subject, settings)
    if not style.detail:
        return FigureSpec(((matrix,),), notes, width=NARROW, second=settings["against"] == "beside")
    second = subject.beside is not None and settings["against"] != "before"
    chart, more = view.chart(subject, settings), {"second": second}
    if not chart.series:
        return FigureSpec(((matrix,),), notes + chart.notes, width=NARROW, **more)
    return FigureSpec(((matrix, chart),), notes + chart.notes, ((1.0, 1.1),), WIDE, **more)


def survey_to_show(subject: ViewContext) -> Any:
    """Return the survey to show: of the visitor's set, or of the images that come with vitviz."""
    return subject.sampled() if subject.survey is None else subject.survey


def compared_survey(subject: ViewContext, settings: Settings) -> Any | None:
    """Return the survey of the earliest training step or of the second checkpoint; None if there is none."""
    if settings["against"] == "before":
        film = subject.film()
        return film[min(film)] if film else None
    return None if subject.beside is None else survey_to_show(subject.beside)


def _depth_axis_title(checkpoint: str) -> LocalizedText:
    """Return the title of an axis of depths: that of the named checkpoint."""
    return LocalizedText("depth of {checkpoint}", checkpoint=checkpoint)


def layer_curves(survey: Any) -> dict[str, np.ndarray]:
    """Return each of CURVES by layer; NaN if it is not available.

    Units: px for "distance", nats for "entropy", ratios for the others.
    """
    distance, names = survey.mean("distance").mean(axis=1), survey.quantities
    result = {
        "distance": distance,
        "distance_of_even": distance / analyses.uniform_distance(survey.grid),
        "entropy": survey.mean("entropy").mean(axis=1),
    }
    none = np.full_like(distance, np.nan)
    return result | {key: survey.mean(f"skip.{key}") if f"skip.{key}" in names else none for key in SKIPS}


def _survey_next_step(subject: ViewContext, settings: Settings) -> int:
    """Survey the images with training step `frame` (from 0), if not cached; return the image count."""
    film, frame = subject.film(), settings["frame"]
    if frame >= len(film):
        raise WrongSetting(f"frame={frame} is not valid; expected a step of the training, below {len(film)}.")
    return film[list(film)[frame]].images


def _available_curves(curves: Mapping[str, np.ndarray], before: str) -> dict[str, np.ndarray]:
    """Return the curves that are not entirely NaN, by name with the prefix `before`."""
    return {before + name: values for name, values in curves.items() if not np.isnan(values).all()}


def _grams(survey: Any, tokens: str):
    """Return a survey's Gram matrices, one object per minibatch.

    Raise WrongSetting for fewer than four images, or if `tokens` is a missing class token.
    """
    if not survey.grams:
        raise WrongSetting(LocalizedText(TOO_FEW, count=survey.images))
    if tokens not in survey.grams[0].of:
        raise WrongSetting(LocalizedText(NO_CLASS, checkpoint=survey.checkpoint))
    return survey.grams
