"""How alike two checkpoints, two depths or two moments of a training are, over a set of pictures."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import BLUE, ORANGE, Chart, Matrix, Scale, Series, to_json
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec
from vitviz.errors import WrongSetting
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import Item, Needs, View, ViewTexts, as_json, drawing_item
from vitviz.views.controls import Choice, IntSetting
from vitviz.views.printing import PrintStyle, join_texts, over_which
from vitviz.views.shared import json_bytes
from vitviz.views.subject import Settings, ViewContext

SKIPS = ("attention_patches", "mlp_patches", "attention_class", "mlp_class")
CURVES = ("distance", "distance_of_even", "entropy", *SKIPS)
NO_SET = (
    "This is over a set of pictures: in Python, hand in a survey with what vitviz.surveys.LAYERS measures."
)
TAKEN_AWAY = (
    "This is over a set of pictures, which the whole model looks at. Put back what was taken away, and it is"
    " here again."
)
NO_SECOND = (
    "There is no second checkpoint. Choose one under “Comparison and input size”, or compare with the same."
)
NO_FILM = (
    "No steps of this checkpoint's training were kept, or this set has not been looked at by any of them yet."
)
NO_CLASS = "{checkpoint} has no class token. Compare the mean of the patches, or all tokens."
TOO_FEW = "{count} of these pictures are too few to compare: choose four or more, better a hundred."
UP = {
    "distance": "Distance of attention (px)",
    "distance_of_even": "Distance, of that of even attention",
    "entropy": "Entropy of attention, all queries (nats)",
    "attention": "Skip over attention",
    "mlp": "Skip over MLP",
}
LOST = "{checkpoint} has no such curve: its blocks are not understood, or it has no class token."


class SimilarityView(View):
    title = "Similarity"
    needs = Needs.SET
    averages = True
    paired = True
    every_patch = True
    words = ViewTexts.from_text(r"""
        Layers of two models may tell pictures apart in the same way: a square is bright where two depths do.

        Choose a second checkpoint, look for blocks of depths that do the same, or follow the training.

        Every depth gives a matrix $K = X X^T$ of how alike any two pictures are to it, a row of $X$ being a
        picture's mean patch, class token or all tokens, raw; depth 0 enters block 1, depth $l$ leaves block
        $l$. Over minibatches $b$ of up to 8 pictures, CKA is $\sum_b H(K_b, L_b) / \sqrt{\sum_b H(K_b, K_b)
        \sum_b H(L_b, L_b)}$ with the unbiased $H(K, L) = \frac{1}{n(n-3)} (\mathrm{tr}\, \tilde K \tilde L +
        \frac{1^T \tilde K 1 \; 1^T \tilde L 1}{(n-1)(n-2)} - \frac{2}{n-2} 1^T \tilde K \tilde L 1)$,
        diagonals of $\tilde K$ and $\tilde L$ set to zero. ± is the standard error by a jackknife over
        minibatches. *Distance* and *entropy* are means over a layer's heads. *Skip over branch* is $\|t_i\| /
        \|a_i\|$ for what attention adds and $\|t_i + a_i\| / \|m_i\|$ for what the MLP adds, of the class
        token or a mean over the patches.

        Nguyen, Raghu and Kornblith 2021; Raghu et al. 2021; not in the paper

        CKA does not say what two depths have in common, nor that the model uses it, and a few directions of
        much variance can decide it alone. The pictures that come with vitviz are 20 parts of four
        photographs: enough for a first look, too few for a statement about a model.
    """)
    controls = (
        Choice(
            "tokens",
            "Tokens",
            "What stands for a picture",
            options=(
                ("patches", "Mean of the patches"),
                ("class", "Only the class token"),
                ("all", "All of them"),
            ),
        ),
        Choice(
            "against",
            "Compared with",
            options=(("own", "The same"), ("beside", "The second checkpoint"), ("film", "Its training")),
        ),
        Choice(
            "curve",
            "Curve",
            options=(
                ("distance", "How far heads look"),
                ("entropy", "How widely heads spread"),
                ("attention", "Skip over attention"),
                ("mlp", "Skip over MLP"),
            ),
        ),
        # a step of the training, from 0, that is asked to look at the pictures
        IntSetting("frame", passing=True),
    )
    arrays = {
        "pictures": "",
        **{before + name: axis for name in CURVES for before, axis in (("", "layer"), ("second_", "other"))},
    }
    items = (
        Item(
            "cka", "depth other",
            "CKA of each depth with the other's; of its training, each depth with itself at every step kept",
            depends=("tokens", "against"),
        ),
        Item(
            "error", "depth other", "its standard error, NaN for fewer than four minibatches",
            depends=("tokens", "against"),
        ),
        as_json("matrix", "both", "tokens", "against"),
        drawing_item("steps", "other", "steps of the training", dtype="int32"),
        drawing_item("looked", "one", "pictures that a step has looked at", "frame", dtype="int32"),
        Item("curves", "curve layer", "by layer: " + ", ".join(CURVES)),
    )  # fmt: skip

    charted = ("tokens", "curve")
    extra_strings = (NO_SET, TAKEN_AWAY)

    def unsupported(self, subject: ViewContext) -> str | None:
        drawn_of, survey = {"similarity", "distance", "entropy"}, subject.survey
        known = subject.sampled if survey is None else drawn_of <= {one.name for one in survey.measures}
        if not known:
            return NO_SET
        return TAKEN_AWAY if subject.trace is not None and subject.trace.without else None

    def drawn_from(self, subject: ViewContext) -> tuple[Item, ...]:
        gone = {"curves", "cka", "error", "steps", *(() if subject.film() else ("looked",))}
        return tuple(item for item in self.items if item.name not in gone)

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """What is known without any pass."""
        beside, survey, film = subject.beside, subject.survey, subject.film()
        missing = {} if beside else {"beside": NO_SECOND}
        missing |= {} if film else {"film": NO_FILM}
        return {
            "pictures": None if survey is None else sum(len(one.pictures) for one in survey.grams),
            "beside": None if beside is None else beside.checkpoint,
            "missing": missing,
            "steps": len(film) if survey is None else 0,  # of the training, to be gone through one by one
        }

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        if name in ("cka", "error"):
            compare = analyses.cka if name == "cka" else analyses.cka_error
            return self._compared(subject, settings, compare)
        if name == "matrix":
            return json_bytes(to_json(self.matrix(subject, settings)))
        if name in ("steps", "looked"):
            return np.asarray(
                list(subject.film()) if name == "steps" else [_survey_next_step(subject, settings)]
            )
        found = curves(subject)
        return np.stack([found[one] for one in CURVES])

    def chart(self, subject: ViewContext, settings: Settings) -> Chart:
        """A line for each checkpoint that has such a curve, and who has none: of different inputs as a share
        of even attention's distance, of different numbers of blocks over the relative depth.
        """
        shown = [subject, *([subject.beside] if subject.beside else [])]
        curve = name = settings["curve"]
        whose = LocalizedText("mean over a layer’s heads")
        if curve == "distance" and len({one.grid.pixels for one in shown}) > 1:
            curve = name = "distance_of_even"
        if curve in ("attention", "mlp"):
            of_class = settings["tokens"] == "class"
            name = f"{curve}_{'class' if of_class else 'patches'}"
            whose = LocalizedText("of the class token" if of_class else "mean over the patches")
        found = [curves(one)[name] for one in shown]
        relative = len({len(values) for values in found}) > 1
        series, lost = [], []
        for one, values, colour in zip(shown, found, (BLUE, ORANGE), strict=False):
            known, blocks = np.isfinite(values), np.arange(1, len(values) + 1)
            if not known.any():
                lost.append(LocalizedText(LOST, checkpoint=one.checkpoint))
                continue
            x = (blocks / len(blocks) if relative else blocks)[known]
            also = {"number": blocks[known], "checkpoint": [one.checkpoint] * len(x)}
            told = (LocalizedText("block {number} of {checkpoint}"),)
            like = {"line": True, "dots": True, "told": told, "also": also}
            series.append(Series(x, values[known], one.checkpoint, colour, **like))
        options = next(dict(control.options) for control in self.controls if control.name == "curve")
        most = max((float(one.y.max()) for one in series), default=0.0)
        along = LocalizedText(
            "relative depth (block / number of blocks)" if relative else "number of the block"
        )
        ends = (0.0, 1.03) if relative else (0.4, max(map(len, found)) + 0.6), (0.0, 1.08 * most or 1.0)
        title, unit = (
            join_texts(LocalizedText(options[settings["curve"]]), whose),
            "px" if curve == "distance" else "",
        )
        like = {"whole": not relative, "aspect": 0.78, "unit": unit, "notes": tuple(lost)}
        return Chart(along, LocalizedText(UP[curve]), *ends, title, tuple(series), **like)

    def matrix(self, subject: ViewContext, settings: Settings) -> Matrix:
        """CKA of any two depths, or of each with itself at every step of the training."""
        values, error = (self.item(subject, name, settings) for name in ("cka", "error"))
        film = settings["against"] == "film"
        other = second(subject) if settings["against"] == "beside" else subject
        steps = self.item(subject, "steps", settings) if film else range(values.shape[1])
        along = LocalizedText("step of the training") if film else _depth(other)
        down, cols = _depth(subject), tuple(map(str, steps))
        axis, sure = "{name}: {value}", np.isfinite(error) & (subject.survey is not None)
        none = join_texts(LocalizedText("no CKA"), LocalizedText("all pictures are the same at this depth"))

        def cell_text(one: float, off: float, known: bool) -> LocalizedText:
            value = f"{one:.3f}" + (f" ± {off:.3f}" if known else "")
            return LocalizedText("Likeness (CKA) {value}", value=value) if np.isfinite(one) else none

        told = (
            LocalizedText("{said}", said=np.vectorize(cell_text, otypes=[object])(values, error, sure)),
            LocalizedText(axis, name=down, value=[[row] for row in range(len(values))]),
            LocalizedText(axis, name=along, value=[cols]),
        )
        title = LocalizedText(
            "Each depth with itself during the training" if film else "How alike depths tell pictures apart"
        )
        scale, rows = (
            Scale("viridis", 0.0, 1.0, LocalizedText("Likeness (CKA)")),
            map(str, range(len(values))),
        )
        return Matrix(values, scale, along, down, title, rows=tuple(rows), cols=cols, told=told)

    def plate(self, subject: ViewContext, settings: Settings, asked: PrintStyle) -> FigureSpec:
        """The matrix; with detail the chosen curve of every checkpoint in view, block by block, beside it."""
        matrix, notes = self.matrix(subject, settings), self._notes(subject, settings)
        if not asked.detail:
            return FigureSpec(((matrix,),), notes, width=NARROW, second=settings["against"] == "beside")
        chart, more = self.chart(subject, settings), {"second": subject.beside is not None}
        if not chart.series:
            return FigureSpec(((matrix,),), notes + chart.notes, width=NARROW, **more)
        return FigureSpec(((matrix, chart),), notes + chart.notes, ((1.0, 1.1),), WIDE, **more)

    def _notes(self, subject: ViewContext, settings: Settings) -> tuple[LocalizedText, ...]:
        """Over which pictures it is, how sure, and what empty squares are."""
        values, error = (np.asarray(self.item(subject, name, settings)) for name in ("cka", "error"))
        notes = [over_which(subject)]
        if np.isfinite(error).any():
            notes.append(LocalizedText("Standard error: at most ± {error}.", error=f"{np.nanmax(error):.3f}"))
        if np.isnan(values).any():
            notes.append(LocalizedText("Empty squares: no CKA, as all pictures are the same at this depth."))
        return tuple(notes)

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """The matrix, and those of the curves that there are; of the second checkpoint too."""
        survey = surveyed(subject)
        found = {name: self.item(subject, name, settings) for name in ("cka", "error")}
        found["pictures"] = np.asarray(sum(len(one.pictures) for one in survey.grams))
        found |= _known(curves(subject), "")
        if settings["against"] == "film":
            found["steps"] = self.item(subject, "steps", settings)
        if subject.beside is not None:
            beside = _known(curves(subject.beside), "second_")
            found |= {"second_checkpoint": np.asarray(subject.beside.checkpoint), **beside}
        return found

    def _compared(self, subject: ViewContext, settings: Settings, compare) -> np.ndarray:
        tokens, own = settings["tokens"], surveyed(subject)
        if settings["against"] != "film":
            other = own if settings["against"] == "own" else surveyed(second(subject))
            return compare(_grams(own, tokens), _grams(other, tokens), tokens).numpy()
        steps = subject.film()
        if not steps:
            raise WrongSetting(LocalizedText(NO_FILM))
        found = [compare(_grams(own, tokens), _grams(one, tokens), tokens).diag() for one in steps.values()]
        return np.stack([one.numpy() for one in found], axis=1)


def surveyed(subject: ViewContext) -> Any:
    """The survey that is shown: of the visitor's set, or of the pictures that come with vitviz."""
    return subject.sampled() if subject.survey is None else subject.survey


def second(subject: ViewContext) -> ViewContext:
    """The checkpoint beside; WrongSetting where there is none."""
    if subject.beside is None:
        raise WrongSetting(LocalizedText(NO_SECOND))
    return subject.beside


def _depth(subject: ViewContext) -> LocalizedText:
    return LocalizedText("depth of {checkpoint}", checkpoint=subject.checkpoint)


def curves(subject: ViewContext) -> dict[str, np.ndarray]:
    """Each of CURVES by layer: px, a share, nats and ratios; NaN where there is no such thing."""
    survey = surveyed(subject)
    distance, known = survey.mean("distance").mean(axis=1), survey.quantities
    found = {
        "distance": distance,
        "distance_of_even": distance / analyses.uniform_distance(survey.grid),
        "entropy": survey.mean("entropy").mean(axis=1),
    }
    none = np.full_like(distance, np.nan)
    return found | {one: survey.mean(f"skip.{one}") if f"skip.{one}" in known else none for one in SKIPS}


def _survey_next_step(subject: ViewContext, settings: Settings) -> int:
    """Lets one step of the training look at the pictures, which is kept; how many they were."""
    film, frame = subject.film(), settings["frame"]
    if frame >= len(film):
        raise WrongSetting(f"Given frame={frame}; expected a step of the training, below {len(film)}.")
    return film[list(film)[frame]].images


def _known(found: Mapping[str, np.ndarray], before: str) -> dict[str, np.ndarray]:
    return {before + name: values for name, values in found.items() if not np.isnan(values).all()}


def _grams(survey: Any, tokens: str):
    if not survey.grams:
        raise WrongSetting(LocalizedText(TOO_FEW, count=survey.images))
    if tokens not in survey.grams[0].of:
        raise WrongSetting(LocalizedText(NO_CLASS, checkpoint=survey.checkpoint))
    return survey.grams
