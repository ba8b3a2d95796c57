"""How trials look in a notebook: maps on trial, and patches dropped or shuffled at random."""

from __future__ import annotations

from vitviz.analyses.experiment import Experiment
from vitviz.analyses.trials.trial import Trial
from vitviz.notebook import maps
from vitviz.notebook.parts import card, number, table


def trial_card(trial: Trial) -> str:
    head = ("map", "gap", "most relevant first", "least relevant first")
    rows = [(name, gap, *trial.areas(name)) for name, gap in trial.ranking()]
    mean, deviation = trial.chance()
    caption = (
        f"{trial.checkpoint}, patches removed as {trial.patches_as}: areas under the"
        " probability's curves, best first. Chance's"
        f" gap is {number(mean)} ± {number(deviation)}; a difference below twice that says"
        " nothing, nor does one picture of"
        " another."
    )
    return card("Maps on trial", table(head, rows), _refused(trial), caption=caption)


def experiment_card(found: Experiment) -> str:
    what, other = ("patches dropped", "") if found.kind == "drop" else ("pieces", ", shuffled")
    curves = [found.curve(way) for way in found.probability]
    kept = [found.curve(way, "kept") for way in found.probability]
    rows = [
        (count, *(_spread(*curve[step]) for curve in curves), *(f"{one[step][0]:.0%}" for one in kept))
        for step, count in enumerate(found.steps)
    ]
    head = (what, *found.probability, *(f"{way}: kept" for way in found.probability))
    draws = next((len(one[0]) for one in found.probability.values()), 0)
    far = found.deviation.classes if found.deviation else None
    rounded = f" Computed in {found.dtype}" if found.dtype != "float32" else ""
    rounded += f", whose probabilities lie up to {far:.2g} from float32's." if rounded and far else ""
    caption = (
        f"{found.checkpoint}: probability of {found.label}, the answer to the whole picture{other}: means"
        f" over {draws} draws ± twice their standard errors; kept: in how many it stays the"
        f" likeliest.{rounded}"
    )
    return card("Experiment", table(head, rows), _refused(found), caption=caption)


def _refused(found: Trial | Experiment) -> str:
    return "".join(f"<p><small>{name}: {reason}</small></p>" for name, reason in maps.safe(found.refused))


def _spread(mean: float, error: float) -> str:
    return f"{mean:.1%} ± {2 * error:.1%}"


__all__ = ["experiment_card", "trial_card"]
