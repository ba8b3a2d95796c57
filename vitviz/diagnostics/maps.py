"""Checks of the saliency map in use: better than random and than a blob, specific to class and weights.

    gap      area under the removal curve, least minus most relevant patches first (docs/trial.md)
    test     one-sided t of the paired differences over images, 5 % level
    weights  Spearman's correlation with the map of the model with random weights (Adebayo et al. 2018)

A map that is better than random need not show why the model predicts a class.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from vitviz.analyses.faithfulness.curves import t_quantile
from vitviz.analyses.faithfulness.evaluation import evaluate_methods
from vitviz.analyses.protocol import TITLES
from vitviz.diagnostics.finding import Finding, verdict
from vitviz.diagnostics.subject import CheckSubject, traces_of
from vitviz.engine.saliency_inputs import SaliencyInputs
from vitviz.engine.studies.saliency import class_sensitivity, parameter_randomisation
from vitviz.traces.localized_text import LocalizedText

SHARES = (0, 0.25, 0.5, 0.75, 1)
DRAWS, IMAGES = 2, 2
SAME_CLASS, SAME_WEIGHTS = 0.99, 0.9


def faithful(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the map with random maps and a blob in the centre, over all images."""
    gaps: dict[str, list[float]] = {"random": [], "centre": []}
    for trace in traces_of(subject):
        passes = SaliencyInputs(subject.inspector, trace, trace.prediction)
        names = [subject.method, "centre"]
        trial = evaluate_methods(passes, names, seed=subject.seed, shares=SHARES, draws=DRAWS, groups=0)
        if trial.refused:
            yield Finding("not_checked", "maps", "number", next(iter(trial.refused.values())), view="trial")
            return
        own = dict(trial.ranking())
        for other, values in gaps.items():
            values.append(own[subject.method] - own[other])
    baselines = {"random": LocalizedText("random maps"), "centre": LocalizedText("a blob in the centre")}
    for other, values in gaps.items():
        differences = torch.tensor(values, dtype=torch.float64)
        count, mean = len(values), differences.mean().item()
        error = differences.std().item() / count**0.5
        numbers = {"mean": f"{100 * mean:.1f}", "error": f"{100 * error:.1f}", "count": count}
        title, limit = TITLES[subject.method], 100 * (mean - t_quantile(0.05, count - 1) * error)
        name = f"faithful_{other}"
        yield verdict("faithful", limit, 0.0, name=name, title=title, baseline=baselines[other], **numbers)


def specific(subject: CheckSubject) -> Iterator[Finding]:
    """Find a map that does not change with the class."""
    correlations = []
    for trace in islice(traces_of(subject), IMAGES):
        if trace.logits.numel() > 1:
            first, second = trace.logits.topk(2).indices.tolist()
            alike = class_sensitivity(subject.inspector, trace, first, second, [subject.method])
            correlations += [value for value in alike.values() if value is not None]
    if correlations:
        mean = sum(correlations) / len(correlations)
        title, correlation = TITLES[subject.method], f"{mean:.2f}"
        yield verdict("same_for_classes", mean, SAME_CLASS, title=title, correlation=correlation)


def randomised(subject: CheckSubject) -> Iterator[Finding]:
    """Find a map that does not change when the head and the blocks get random weights, last ones first."""
    count, trace = len(subject.model.blocks), subject.traces[0]
    steps = (0, count // 2, count)
    by_step = parameter_randomisation(
        subject.inspector, trace.view, trace.prediction, [subject.method], steps, (subject.seed,)
    )[subject.method]
    values = [float("nan") if value is None else value for (value,) in by_step]
    title, correlations = TITLES[subject.method], ", ".join(f"{value:.2f}" for value in values)
    yield verdict("same_for_weights", values[-1], SAME_WEIGHTS, title=title, correlations=correlations)
