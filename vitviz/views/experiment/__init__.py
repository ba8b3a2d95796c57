"""Drop patches or shuffle them, and watch the answer: an experiment for a classroom, on one's own picture.

A view of its own rather than a fold of Positions, which is of the weights alone and is there for no picture.
The page asks for one point of the curves after the other: they grow as they are found, the bar says how far
it is, and stopping is not asking on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz.analyses.protocol import DRAWS, EDITED, NO_HEAD, ONE_PATCH, SCORES, SHARES, WAYS
from vitviz.errors import UnsupportedModel, WrongSetting
from vitviz.figures.chart import SEVERAL, Chart, Series, spoken
from vitviz.record.sentence import Sentence, said, travelling
from vitviz.views.base import Item, View, Words, as_json
from vitviz.views.controls import Choice, Whole
from vitviz.views.printing import joined
from vitviz.views.shared import likeliest, packed
from vitviz.views.subject import Subject

if TYPE_CHECKING:
    from torch import Tensor

    from vitviz.analyses.experiment import Experiment as Found
    from vitviz.record.grid import Grid

NAMES = {"dropped": "left out of the sequence", "black": "painted black", "shuffled": "shuffled"}
TOLD = 3  # likeliest classes of a draw


class Experiment(View):
    slug = "experiment"
    title = "Experiment"
    on_request = True
    every_patch = True
    words = Words.of(
        r"""
        How much of a picture does the model need, and does the order matter? Patches go or move at random.

        Guess how many patches can go before the answer does, press the button, then move along the curve.

        Draw $d$ of 10 has a random order of the $N$ patches. With the share $p$ dropped, its first $\lfloor p
        N \rfloor$ are taken away: left out, so that the model computes on the other tokens alone, or painted
        black. Shuffled, square pieces of whole patches change places by a random order other than their own.
        Watched is the class that the whole picture is most likely to show: its probability $\bar x$, or the
        share of draws in which it stays the likeliest. The band is $\bar x \pm 2 s / \sqrt{10}$ with $s$ the
        standard deviation over draws. Nothing dropped is the plain answer; everything dropped is what the
        model says to an empty picture: one without patches, of the mean colour where the answer is read from
        patches, or a black one.

        Naseer et al. 2021 (arXiv 2105.10497): random PatchDrop, and shuffled patches; not in the paper

        It is one picture, and another will differ. Random holes are no objects in front of others, and a
        probability can stay high for a wrong answer. That an answer survives the shuffle does not say that
        the model ignores places: only that it did not need them here.
        """
    )
    controls = (
        Choice(
            "kind", "Patches are",
            options=(("drop", "dropped"), ("shuffle", "shuffled")),
        ),
        Choice("score", "Watched", options=(("probability", "Probability"), ("kept", "Answer kept"))),
        Whole("step", maximum=len(SHARES) - 1, default=5),  # the point of the curves that is looked at
        Whole("draw", minimum=1, maximum=DRAWS, default=1),
        Whole("known", maximum=len(SHARES), passing=True),  # up to which point the chart goes
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
        as_json("point", "one step's answers", "kind", "step"),
    )  # fmt: skip

    charted = ("kind", "score", "known")
    also = (NO_HEAD, EDITED, ONE_PATCH)

    def unsupported(self, subject: Subject) -> str | None:
        from vitviz.analyses.experiment import why_not

        return why_not(subject.trace)

    def drawn_from(self, subject: Subject) -> tuple[Item, ...]:
        return tuple(self.declared(name) for name in ("orders", "steps", "point", "chart"))

    def at_hand(self, subject: Subject, settings: Mapping[str, Any]) -> bool:
        from vitviz.analyses.experiment import steps_of

        kind = settings["kind"]
        steps = range(1, len(steps_of(subject.grid, kind)))
        return all(subject.made(_name(way, step)) for way in WAYS[kind] for step in steps)

    def summary(self, subject: Subject) -> dict[str, Any]:
        return {"answer": likeliest(subject.trace, 1)[0], "draws": DRAWS, "shares": list(SHARES)}

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        from vitviz.analyses.experiment import orders_of, steps_of

        kind, grid = settings["kind"], subject.grid
        if name == "orders":
            return orders_of(grid, kind)
        steps = steps_of(grid, kind)
        if name == "steps":
            return steps
        if name in SCORES:
            return _numbers(self.whole(subject, kind), name)
        if settings["step"] >= len(steps):
            raise WrongSetting(f"Given step={settings['step']}; expected one of 0 to {len(steps) - 1}.")
        return packed(_told(subject, kind, settings["step"]))

    def whole(self, subject: Subject, kind: str) -> Found:
        """All steps, each made once."""
        from vitviz.analyses.experiment import experiment_of

        return experiment_of(subject.trace, kind, lambda way, step: _known(subject, way, step))

    def answered(self, subject: Subject, kind: str, step: int) -> list[list[Any] | None]:
        """By way: the likeliest classes of every draw with their shares, None where it does not exist."""
        return [one.get("tops") for one in _told(subject, kind, step)]

    def chart(self, subject: Subject, settings: Mapping[str, Any]) -> Chart:
        """Mean and band of every way, at as many points as are known."""
        from vitviz.analyses import mean_and_error
        from vitviz.analyses.experiment import scores_of, steps_of

        kind, score, drop = settings["kind"], settings["score"], settings["kind"] == "drop"
        steps = steps_of(subject.grid, kind)
        x, known = np.asarray(SHARES if drop else range(1, len(steps) + 1), float), settings["known"]
        answer, label = int(subject.trace.logits.argmax()), likeliest(subject.trace, 1)[0]["name"]
        of = Sentence("probability of {class}", **{"class": label})
        of = Sentence("draws that keep the answer") if score == "kept" else of
        done = [done_at(subject.grid, kind, step) for step in range(len(steps))]
        series, notes = [], [Sentence("Bands: twice the standard error over {count} draws.", count=DRAWS)]
        for way, colour in zip(WAYS[kind], SEVERAL, strict=False):
            found = [_answers(subject, way, step) for step in range(min(known, len(steps)))]
            refused = next((one for one in found if isinstance(one, str)), None)
            if refused is not None:
                notes.append(Sentence("{name}: {value}", name=way_name(way), value=refused))
                continue
            means = [mean_and_error(scores_of(one, answer, subject.trace)[score]) for one in found]
            mean, error = np.asarray(means, float).reshape(-1, 2).T
            more = {
                "band": (np.clip(mean - 2 * error, 0, 1), np.clip(mean + 2 * error, 0, 1)),
                "of": {"step": range(len(found))},
                "said": [spoken(100 * one, 200 * spread, "%") for one, spread in means],
                "told": (joined(of, way_name(way), by=", "), "{done}"),
                "also": {"done": done[: len(found)]},
            }
            series.append(Series(x[: len(found)], mean, way_name(way), colour, True, True, **more))
        ticks = [(at, f"{at:.0f} %") for at in x[::2]] if drop else zip(x, map(str, steps), strict=True)
        return Chart(
            Sentence("patches dropped" if drop else "pieces that change places"),
            of,
            (-2.0, 106.0) if drop else (0.7, len(x) + 0.3),
            (0.0, 1.0),
            Sentence("{name}: {value}", name=Sentence("The answer to the whole picture"), value=label),
            tuple(series),
            percent=True,
            ticks=tuple(ticks),
            notes=tuple(notes),
        )


def way_name(way: str) -> Sentence:
    """How patches are taken away, or moved."""
    return Sentence(NAMES[way])


def done_at(grid: Grid, kind: str, step: int) -> Sentence:
    """What was done at a point of the curves."""
    from vitviz.analyses.experiment import steps_of

    if step == 0:
        return Sentence("the whole picture")
    count, patches = int(steps_of(grid, kind)[step]), grid.patches
    if kind == "drop":
        told = {"share": SHARES[step], "count": count, "patches": patches}
        return Sentence("{share} % of the patches dropped: {count} of {patches}", **told)
    side = round((patches / count) ** 0.5)
    return Sentence("{count} pieces of {side} × {side} patches shuffled", count=count, side=side)


def _answers(subject: Subject, way: str, step: int) -> Tensor | str:
    """Logits, draw x class, or why this way does not exist; made once and kept with the picture."""
    from vitviz.engine.asking import experiments  # with torch, which a page being built has no use for

    def asked() -> Tensor | str:
        try:
            return experiments.answers(subject.inspector, subject.trace, way, step)
        except UnsupportedModel as reason:
            return said(reason)

    once = subject.once_by_passes if step else subject.once  # nothing done is known
    return once(_name(way, step), asked)


def _name(way: str, step: int) -> str:
    """What the answers at a step are kept under."""
    return f"experiment {way} {step}"


def _known(subject: Subject, way: str, step: int) -> Tensor:
    """The same; UnsupportedModel where there are none."""
    found = _answers(subject, way, step)
    if isinstance(found, str):
        raise UnsupportedModel(found)
    return found


def _numbers(found: Found, score: str) -> np.ndarray:
    """Way, step, draw; not a number where a way does not exist."""
    known, missing = getattr(found, score), np.full((len(found.steps), DRAWS), np.nan)
    return np.stack([known.get(way, missing) for way in WAYS[found.kind]])


def _told(subject: Subject, kind: str, step: int) -> list[dict[str, Any]]:
    """By way: mean and error of each score, every draw's, and its likeliest classes with their shares."""
    from vitviz.analyses import mean_and_error
    from vitviz.analyses.experiment import scores_of

    told, answer = [], int(subject.trace.logits.argmax())
    for way in WAYS[kind]:
        logits = _answers(subject, way, step)
        if isinstance(logits, str):
            told.append({"refused": travelling(logits)})
            continue
        scores = scores_of(logits, answer, subject.trace)
        drawn = {name: draws.tolist() for name, draws in scores.items() if name in SCORES}
        means = {name: mean_and_error(scores[name]) for name in drawn}
        tops = [likeliest(replace(subject.trace, logits=one), TOLD) for one in logits]
        named = [[[one["name"], one["probability"]] for one in found] for found in tops]
        told.append({"draws": drawn, "means": means, "tops": named})
    return told
