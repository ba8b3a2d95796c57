"""Inputs of saliency methods for a small random float64 model, without a checkpoint."""

from types import SimpleNamespace

import torch

from tests.engine.constructions import pixels_for, small_model, trace_and_readout
from vitviz.analyses.logit_attribution import logit_terms
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.engine.saliency_inputs import SaliencyInputs


def small_saliency_inputs(
    construction="class", target=2, patches_as="dropped", model=None, seed=0
) -> SaliencyInputs:
    model = small_model(construction) if model is None else model
    pixels = pixels_for(model, seed)
    trace, tail = trace_and_readout(model, pixels)
    half = (0.5, 0.5, 0.5)
    inspector = SimpleNamespace(
        dtype="float32", device=torch.device("cpu"), checkpoint=SimpleNamespace(name="small"),
        preprocessing=Preprocessing(trace.grid.pixels, half, half), tail=lambda *_: tail,
        answered=lambda trace: trace,
        placed=SimpleNamespace(at=lambda size: model),
        forward=SimpleNamespace(prepare=lambda view, size: (view, size), pixels=lambda prepared: pixels),
    )  # fmt: skip
    inputs = SaliencyInputs(inspector, trace, target, patches_as)
    inputs.ledger = lambda: logit_terms(trace, tail)
    return inputs
