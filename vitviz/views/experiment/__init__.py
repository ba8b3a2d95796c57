"""Drop patches or shuffle them, and watch the answer: an experiment for a classroom, on one's own picture.

A view of its own rather than a fold of Positions, which is of the weights alone and is there for no picture.
The page asks for one point of the curves after the other: they grow as they are found, the bar says how far
it is, and stopping is not asking on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz.errors import UnsupportedModel, WrongSetting
from vitviz.sentence import Sentence, said, travelling
from vitviz.views.base import Item, View, Words
from vitviz.views.controls import Choice, Whole
from vitviz.views.shared import likeliest, packed, passes_of
from vitviz.views.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

DRAWS = 10  # seeds 1 to 10: `inspector.experiment(image, shuffle=3)` is the third draw of single patches
SHARES = tuple(range(0, 101, 10))  # per cent of the patches that are dropped
TOLD = 3  # likeliest classes of a draw
WAYS = {"drop": ("dropped", "black"), "shuffle": ("shuffled",)}
_NO_HEAD = "{checkpoint} has no classifier, so there is no answer that could be watched."
_EDITED = "The experiment is on the whole model. Put back what was taken away."
_ONE_PATCH = "{checkpoint} sees a single patch, so there is nothing to drop or to shuffle."


class Experiment(View):
    slug = "experiment"
    title = "Experiment"
    exact = True
    on_request = True
    every_patch = True
    unprinted = (
        "Its curves come point by point and are no figure for print; take them as PNG or numbers instead."
    )
    words = Words(
        what=(
            "How much of a picture does the model need, and does it mind where the patches stand? Patches are"
            " dropped or shuffled at random, and the model is asked again."
        ),
        how=(
            "Guess first, then press the button: how many patches can go before the answer does, and is a"
            " jumbled picture still what it was? Move along the curve to see what the model was shown."
        ),
        definition=(
            "Draw $d$ of 10 has a random order of the $N$ patches. With the share $p$ dropped, its first"
            " $\\lfloor p N \\rfloor$ are taken away: left out, so that the model computes on the other"
            " tokens alone, or painted black. Shuffled, square pieces of whole patches change places by a"
            " random order other than their own. Watched is the class that the whole picture is most likely"
            " to show: its probability $\\bar x$, or the share of draws in which it stays the likeliest. The"
            " band is $\\bar x \\pm 2 s / \\sqrt{10}$ with $s$ the standard deviation over draws. Nothing"
            " dropped is the plain answer; everything dropped is what the model says to an empty picture:"
            " one without patches, of the mean colour where the answer is read from patches, or a black"
            " one."
        ),
        source=(
            "Naseer et al. 2021 (arXiv 2105.10497): random PatchDrop, and shuffled patches; not in the paper"
        ),
        caveat=(
            "It is one picture, and another will differ. Random holes are no objects in front of others, and"
            " a probability can stay high for a wrong answer. That an answer survives the shuffle does not"
            " say that the model ignores places: only that it did not need them here."
        ),
    )
    controls = (
        Choice(
            "kind", "Patches are",
            options=(("drop", "dropped"), ("shuffle", "shuffled")),
        ),
        Choice("score", "Watched", options=(("probability", "Probability"), ("kept", "Answer kept"))),
        Whole("step", maximum=len(SHARES) - 1, default=5),  # the point of the curves that is looked at
        Whole("draw", minimum=1, maximum=DRAWS, default=1),
    )  # fmt: skip
    items = (
        Item(
            "probability", "way step draw",
            "of the whole picture's answer: patches left out and painted black, or shuffled; NaN where that"
            " does not exist",
            depends=("kind",),
        ),
        Item("kept", "way step draw", "1 where the answer stays the likeliest, else 0", depends=("kind",)),
        Item("steps", "step", "how many patches are dropped; shuffled, in how many pieces",
             "int32", depends=("kind",)),
        Item(
            "orders", "order draw patch",
            "in which order patches are dropped; shuffled, which patch stands at each place, by step",
            "int32", depends=("kind",),
        ),
        Item("point", "byte", "one step's answers, as JSON", "uint8", ("kind", "step"), taken=False),
    )  # fmt: skip

    def unsupported(self, subject: Subject) -> str | None:
        trace = subject.trace
        if trace.logits is None:
            return Sentence(_NO_HEAD, checkpoint=subject.checkpoint)
        if subject.grid.patches == 1:
            return Sentence(_ONE_PATCH, checkpoint=subject.checkpoint)
        return Sentence(_EDITED) if trace.without else None

    def drawn_from(self, subject: Subject) -> tuple[Item, ...]:
        return tuple(self.declared(name) for name in ("orders", "steps", "point"))

    def summary(self, subject: Subject) -> dict[str, Any]:
        return {"answer": likeliest(subject.trace, 1)[0], "draws": DRAWS, "shares": list(SHARES)}

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        kind, grid = settings["kind"], subject.grid
        if name == "orders":
            return _orders(grid, kind)
        if name == "steps":
            return _steps(grid, kind)
        steps = len(_steps(grid, kind))
        if name in ("probability", "kept"):
            points = [_scores(subject, kind, step) for step in range(steps)]
            return np.stack([_numbers(point, name) for point in points], axis=1)
        if settings["step"] >= steps:
            raise WrongSetting(f"Given step={settings['step']}; expected one of 0 to {steps - 1}.")
        return packed(_told(subject, kind, settings["step"]))

    def texts(self) -> set[str]:
        return super().texts() | {_NO_HEAD, _EDITED, _ONE_PATCH}


# ----- what is asked, draw by draw


def _orders(grid, kind: str) -> np.ndarray:
    from vitviz.analyses import permutation, piece_sides, shuffled_pieces

    if kind == "drop":
        return np.stack([[permutation(grid.patches, draw) for draw in range(1, DRAWS + 1)]])
    plain = [np.arange(grid.patches)] * DRAWS
    moved = [
        [shuffled_pieces(grid, side, draw) for draw in range(1, DRAWS + 1)] for side in piece_sides(grid)
    ]
    return np.stack([plain, *moved])


def _steps(grid, kind: str) -> np.ndarray:
    from vitviz.analyses import piece_sides

    if kind == "drop":
        return np.array([share * grid.patches // 100 for share in SHARES])
    return np.array([1, *(grid.patches // side**2 for side in piece_sides(grid))])


def _answers(subject: Subject, way: str, step: int) -> Tensor | str:
    """Logits, draw x class, or why this way does not exist; made once and kept with the picture."""
    once = subject.once_by_passes if step else subject.once  # nothing done is known
    return once(f"experiment {way} {step}", lambda: _asked(subject, way, step))


def _asked(subject: Subject, way: str, step: int) -> Tensor | str:
    import torch

    from vitviz.analyses import patches_kept
    from vitviz.engine.passes.experiments import answers_in_order

    trace, grid = subject.trace, subject.grid
    if step == 0:
        return trace.logits.expand(DRAWS, -1)  # nothing was done: no pass, and the plain answer to the bit
    answer = int(trace.logits.argmax())
    passes = passes_of(subject, answer, "dropped" if way == "shuffled" else way)
    if way == "shuffled":
        orders = torch.from_numpy(_orders(grid, "shuffle")[step])
        return answers_in_order(passes.model, passes.pixels, grid, orders)
    draws = range(1, DRAWS + 1) if SHARES[step] < 100 else (1,)  # of an empty picture there is one
    kept = np.stack([patches_kept(grid, SHARES[step], draw) for draw in draws])
    try:
        return passes.answers(torch.from_numpy(kept)).expand(DRAWS, -1)
    except UnsupportedModel as reason:
        return said(reason)


# ----- what is made of the answers


def _scores(subject: Subject, kind: str, step: int) -> list[dict[str, Tensor] | str]:
    """By way: the scores of each draw, or why there are none."""
    from vitviz.analyses.trials.answers import scored

    answer = int(subject.trace.logits.argmax())
    found = [_answers(subject, way, step) for way in WAYS[kind]]
    return [one if isinstance(one, str) else scored(one.double(), (answer,), answer) for one in found]


def _numbers(point: list[dict[str, Tensor] | str], score: str) -> np.ndarray:
    return np.stack([np.full(DRAWS, np.nan) if isinstance(one, str) else one[score] for one in point])


def _told(subject: Subject, kind: str, step: int) -> list[dict[str, Any]]:
    """By way: mean and error of each score, every draw's, and its likeliest classes with their shares."""
    from vitviz.analyses import mean_and_error

    told = []
    for way, scores in zip(WAYS[kind], _scores(subject, kind, step), strict=True):
        if isinstance(scores, str):
            told.append({"refused": travelling(scores)})
            continue
        tops = [_likeliest(subject, logits) for logits in _answers(subject, way, step)]
        drawn = {name: scores[name].tolist() for name in ("probability", "kept")}
        means = {name: mean_and_error(scores[name]) for name in drawn}
        told.append({"draws": drawn, "means": means, "tops": tops})
    return told


def _likeliest(subject: Subject, logits: Tensor) -> list[list[Any]]:
    from dataclasses import replace

    found = likeliest(replace(subject.trace, logits=logits), TOLD)
    return [[one["name"], one["probability"]] for one in found]
