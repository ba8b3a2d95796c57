"""One picture looked into, and every result that the public names give of it."""

import pytest
import torch

import vitviz
from vitviz.traces.samples import samples


@pytest.fixture(scope="session")
def inspector():
    return vitviz.load("vitviz-tiny", device="cpu")


@pytest.fixture(scope="session")
def image():
    return vitviz.sample_image("chelsea")


@pytest.fixture(scope="session")
def trace(inspector, image):
    return inspector.trace(image)


@pytest.fixture(scope="session")
def results(inspector, image, trace):
    """Public name -> what it gives."""
    pictures = [vitviz.sample_image(one.name) for one in samples()]
    width = len(inspector.labels)
    vectors = torch.randn(3, width, generator=torch.Generator().manual_seed(0))
    asked = inspector.with_classes(vitviz.Classes(["red", "round", "fur"], vectors))
    rollout = vitviz.rollout(trace, fusion="max", discard=0.9)
    return {
        "check": vitviz.check(inspector, on_finding=lambda found: found.group == "weights"),
        "checkpoints": vitviz.checkpoints(),
        "training_snapshots": vitviz.training_snapshots("vitviz-tiny"),
        "load": inspector,
        "Inspector": inspector,
        "Checkpoint": inspector.checkpoint,
        "Grid": trace.grid,
        "Trace": trace,
        "Classes": vitviz.Classes(["a cat", "a dog"], [[3.0, 4.0], [0.0, 2.0]]),
        "text": vitviz.Classes(["a photo of a cat"], [[1.0, 0.0]], "sigmoid", 10.0, -2.0, "some clip"),
        "Ablation": vitviz.Ablation(heads=[(4, 1)], patches=[0, 17]),
        "attention_distance": vitviz.attention_distance(trace),
        "rollout": rollout,
        "token_components": vitviz.token_components(trace, 8),
        "token_norms": vitviz.token_norms(trace),
        "token_similarity": vitviz.token_similarity(trace, 8, 100),
        "embedding_filters": vitviz.embedding_filters(inspector),
        "filter_responses": vitviz.filter_responses(inspector, trace),
        "logit_attribution": vitviz.logit_attribution(inspector, trace, 0),
        "logit_lens": vitviz.logit_lens(inspector, trace),
        "position_similarity": vitviz.position_similarity(inspector),
        "saliency": vitviz.saliency(inspector, trace, 0),
        "faithfulness": vitviz.faithfulness(inspector, image, 0, methods=["ledger"], draws=2),
        "perturbation": vitviz.perturbation(inspector, trace, draws=2),
        "survey": vitviz.survey([image, vitviz.sample_image("coffee")], inspector, ["distance", "lens"]),
        "cka": vitviz.cka(vitviz.survey(pictures, inspector, ["similarity"], batch=4)),
        "heads_in_words": vitviz.survey(pictures, asked, ["words"]).words,
        "upstream_contributions": vitviz.upstream_contributions(inspector, trace, 0, 7, 1),
        "attention_score_attribution": vitviz.attention_score_attribution(inspector, trace, 2, 0, 0, 100),
        "attribution_paths": vitviz.attribution_paths(inspector, trace, 0, count=5, opened=4),
        "edge_ablation": vitviz.edge_ablation(inspector, trace, 0, 7, 1, count=8),
        "sufficient_edges": vitviz.sufficient_edges(inspector, trace, draws=1),
        "overlay": vitviz.overlay(image, rollout),
        "show": vitviz.show("positions", inspector),
    }
