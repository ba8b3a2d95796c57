"""Measures of a survey, against formulas over whole attention matrices."""

import numpy as np
import pytest
import torch

import vitviz
from vitviz.analyses.effects import Edge
from vitviz.analyses.sufficient_edges import SufficientEdges
from vitviz.analyses.upstream import Writer
from vitviz.engine.studies import circuits
from vitviz.errors import VitvizError
from vitviz.surveys import MEASURES, Quantity

SAMPLES = ("chelsea", "coffee", "astronaut", "rocket")


@pytest.fixture(scope="module")
def inspector(small_inspector):
    return small_inspector


@pytest.fixture(scope="module")
def images():
    return [vitviz.sample_image(name) for name in SAMPLES]


@pytest.fixture(scope="module")
def survey(inspector, images):
    labelled = list(zip(images, ("tabby", 3, "6", "class 0"), strict=True))
    # words needs sentences as classes (see test_words.py), and similarity four images a batch
    measures = [name for name in MEASURES if name not in ("words", "similarity")]
    return vitviz.survey(labelled, inspector, measures, batch=3, classes={"tabby": 0})


@pytest.fixture(scope="module")
def attention(inspector, images):
    """Return image x layer x head x query x key in float64."""
    traces = [inspector.trace(picture) for picture in images]
    return np.stack(
        [np.stack([trace.attention(layer).double().numpy() for layer in range(2)]) for trace in traces]
    )


def test_distance_prefix_mass_and_entropy_match_formulas(survey, attention):
    positions = np.stack(np.meshgrid(np.arange(4), np.arange(4), indexing="ij"), -1).reshape(-1, 2) * 8.0
    lengths = np.sqrt(((positions[:, None] - positions[None]) ** 2).sum(-1))
    patches = attention[..., 1:, 1:]
    distance = (patches * lengths).sum(-1).mean(-1)
    renormalised = ((patches * lengths).sum(-1) / patches.sum(-1)).mean(-1)
    entropy = -(attention * np.log(attention.clip(1e-300))).sum(-1).mean(-1)
    expected = {
        "distance": distance,
        "renormalised": renormalised,
        "prefix_mass": attention[..., 1:, 0].mean(-1),
        "entropy": entropy,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(survey.mean(name), values.mean(0), rtol=2e-5, err_msg=name)
        np.testing.assert_allclose(
            survey.error(name), values.std(0, ddof=1) / 2, rtol=1e-3, atol=1e-7, err_msg=name
        )


def test_accuracy_and_lens_match_model(survey, inspector, images):
    labels, first, five, loss, agrees, correct = [0, 3, 6, 0], [], [], [], [], []
    model = inspector.model
    for picture, label in zip(images, labels, strict=True):
        trace = inspector.trace(picture)
        with torch.no_grad():
            named = [int(model.forward_head(model.norm(tokens[None])).argmax()) for tokens in trace.tokens]
        order = np.argsort(-trace.logits.numpy(), kind="stable")
        first.append(order[0] == label)
        five.append(label in order[:5])
        loss.append(np.log(np.exp(trace.logits.double().numpy()).sum()) - float(trace.logits[label]))
        agrees.append([one == order[0] for one in named])
        correct.append([one == label for one in named])
    for name, values in (
        ("first", first),
        ("first_five", five),
        ("loss", loss),
        ("agrees", agrees),
        ("lens.correct", correct),
    ):
        np.testing.assert_allclose(
            survey.mean(name), np.mean(np.asarray(values, float), axis=0), rtol=1e-5, atol=1e-9, err_msg=name
        )
    assert survey.mistakes.labelled == 4 and survey.mistakes.right == sum(first)


def test_attribution_measure_sums_to_predicted_logit(survey, inspector, images):
    logits = np.stack([inspector.trace(picture).logits.double().numpy() for picture in images])
    answer = (logits.max(axis=1) - logits.mean(axis=1)).mean()
    lines = survey.mean("heads").sum() + survey.mean("mlps").sum() + survey.mean("rest")
    assert lines == pytest.approx(answer, rel=1e-4) and float(survey.mean("answer")) == pytest.approx(
        answer, rel=1e-5
    )
    assert survey.mean("heads").shape == (2, 2) and np.abs(survey.mean("heads")).max() > 0.1


def test_smallest_part_sizes_are_shares_of_edges(inspector, images, monkeypatch):
    rows = torch.tensor([[-1.0, 1.0, -1.0, 1.0]])
    curve = ((0, -1.0), (10, 1.0), (20, -1.0), (30, 0.5), (40, 1.0))
    margins, counts = {"share": rows, "random": rows}, (0, 10, 20, 40)
    edges = (Edge(Writer("embedding"), 1, 0),) * 40
    part = SufficientEdges(edges, torch.zeros(40), counts, margins, "mean", curve)
    monkeypatch.setattr(circuits, "sufficient_edges", lambda *asked, **given: part)
    survey = vitviz.survey(images[:1], inspector, ["smallest_part"])
    assert [float(survey.mean(name)) for name in ("smallest_preserving", "preserving_from", "tried")] == [
        0.25, 0.75, 5,
    ]  # fmt: skip
    assert survey.mean("stands_by_share").tolist() == [0, 1, 0, 1]


def test_custom_measure_is_averaged(inspector, images):
    class Norms:
        name, says = "norms", "token norms"
        quantities = (Quantity("norms", "layer", "Norms", ""),)

        def of(self, seen):
            return {"norms": [tokens.norm(dim=-1).mean().item() for tokens in seen.trace.tokens]}

    result = vitviz.survey(images[:2], inspector, [Norms(), "distance"])
    expected = np.mean(
        [
            [tokens.norm(dim=-1).mean().item() for tokens in inspector.trace(picture).tokens]
            for picture in images[:2]
        ],
        axis=0,
    )
    np.testing.assert_allclose(result.mean("norms"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        (["bogus"], "no measure 'bogus'; expected one of distance"),
        ([], "at least one measure"),
        ([5], "no measure 5"),
    ],
)
def test_unknown_measures_raise(inspector, images, measures, message):
    with pytest.raises(VitvizError, match=message):
        vitviz.survey(images, inspector, measures)


def test_accuracy_without_labels_raises(inspector, images):
    with pytest.raises(VitvizError, match="Picture 1 has no label; accuracy needs"):
        vitviz.survey(images, inspector, ["accuracy"])


def test_unknown_average_raises_with_known_names(survey):
    with pytest.raises(VitvizError, match="no average 'bogus'; it has distance.distance"):
        survey.mean("bogus")


def test_compute_ahead_keeps_order_and_raises_errors():
    import threading
    import time

    from vitviz.surveys.rows import compute_ahead

    def slow(number):
        time.sleep(0.01 * (number % 3))
        if number == 7:
            raise KeyError(number)
        return number

    others = set(threading.enumerate())  # a survey of another test may still be reading
    running = compute_ahead(iter(range(9)), slow, depth=4)
    assert [next(running) for _ in range(7)] == list(range(7))
    with pytest.raises(KeyError):
        next(running)
    assert not [one for one in {*threading.enumerate()} - others if one.name.startswith("vitviz-reading")]


def test_compute_ahead_reads_at_most_depth_items():
    from vitviz.surveys.rows import compute_ahead

    read = []
    running = compute_ahead(
        (read.append(number) or number for number in range(1000)), lambda number: number, depth=5
    )
    next(running)
    assert len(read) == 5
    running.close()
