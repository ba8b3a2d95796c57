"""Measure the deviation of a model in bfloat16 or TF32 from the float32 model on one image.

bfloat16 has an 8-bit significand, float32 one of 24 bits: every step has a relative error of up to 2^-9. TF32
truncates the factors of products, each by up to 2^-10. The differences grow through the layers. Their size
depends on the weights and is therefore measured: the image also passes through the float32 model on the CPU,
and all attention weights and class probabilities are compared in float32. The result is the deviation on one
image, not a bound for others.
"""

from contextlib import suppress

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.logit_account import largest_gap
from vitviz.analyses.logit_attribution import logit_terms
from vitviz.engine import readouts
from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import capture, tracing
from vitviz.engine.readout_stages import readout_stage_of
from vitviz.errors import UnsupportedModel
from vitviz.traces.trace import Deviation, Trace

_ROWS = 512  # queries per step, to avoid N x N weights of all heads in memory


@in_float32()
def deviation(trace: Trace, exact: nn.Module, pixels: Float[Tensor, "1 channel height width"]) -> Deviation:
    """Return a trace's deviation from the `exact` model (CPU, float32) on the same pixels."""
    with torch.no_grad(), capture.recording(exact) as recording:
        logits = exact(pixels)
    read = readouts.readout_weights(exact, trace.readout, recording.tokens[-1])
    queries = readouts.count_read_queries(exact)
    logits = None if trace.logits is None else logits
    names = ("checkpoint", "grid", "readout", "labels", "own_head_type")
    shared = {name: getattr(trace, name) for name in names}
    place = torch.device("cpu")
    (twin,) = tracing.to_trace_batch(recording, logits, shared, [trace.view], place, read, queries)
    largest = 0.0
    for mine, true in zip(trace.layers, twin.layers, strict=True):
        for start in range(0, trace.grid.tokens, _ROWS):
            rows = slice(start, start + _ROWS)
            largest = max(largest, (mine.weights(rows).cpu() - true.weights(rows)).abs().max().item())
    if trace.logits is None:
        return Deviation(largest, None)
    mine, true = trace.logits.cpu().double(), twin.logits.double()
    classes = (trace.scores(mine) - trace.scores(true)).abs().max().item()
    gap = None  # of the float32 model's attribution sum, relative to its largest logit
    with suppress(UnsupportedModel):
        gaps = largest_gap(logit_terms(twin, readout_stage_of(exact, twin.checkpoint)))
        gap = max(gaps) / twin.logits.abs().max().item()
    return Deviation(largest, classes, (mine - true).abs().max().item(), gap)
