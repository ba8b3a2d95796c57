"""How far a model in bfloat16 is from the same one in float32, found out on a picture.

bfloat16 keeps 8 bits of a number's significand where float32 keeps 24: a value is off by up to 2^-9 of itself
at every step, and the differences grow through the layers. By how much depends on the weights, so it is
measured: the picture goes through the float32 model too, on the CPU, and all attention and all class
probabilities are compared in float32. It shows the distance on one picture, no bound for others.
"""

from contextlib import suppress

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.logit_account import largest_gap
from vitviz.analyses.logit_attribution import ledger_of
from vitviz.engine import readouts
from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import capture, tracing
from vitviz.engine.readout_stages import tail_of
from vitviz.errors import UnsupportedModel
from vitviz.traces.trace import Deviation, Trace

_ROWS = 512  # queries at a time: N x N for all heads need not stand in memory


@in_float32()
def deviation(trace: Trace, exact: nn.Module, pixels: Float[Tensor, "1 channel height width"]) -> Deviation:
    """The distance of a trace from what the `exact` model (CPU, float32) does with the same pixels."""
    with torch.no_grad(), capture.recording(exact) as recording:
        logits = exact(pixels)
    read, queries = readouts.read(exact, trace.readout, recording.tokens[-1]), readouts.queries_read(exact)
    logits = None if trace.logits is None else logits
    shared = {
        name: getattr(trace, name) for name in ("checkpoint", "grid", "readout", "labels", "own_head_type")
    }
    place = torch.device("cpu")
    (twin,) = tracing.traces_of(recording, logits, shared, [trace.view], place, read, queries)
    largest = 0.0
    for mine, true in zip(trace.layers, twin.layers, strict=True):
        for start in range(0, trace.grid.tokens, _ROWS):
            rows = slice(start, start + _ROWS)
            largest = max(largest, (mine.weights(rows).cpu() - true.weights(rows)).abs().max().item())
    if trace.logits is None:
        return Deviation(largest, None)
    mine, true = trace.logits.cpu().double(), twin.logits.double()
    classes = (trace.scores(mine) - trace.scores(true)).abs().max().item()
    gap = None  # by which the float32 model's account fails to add up, of its largest logit; or it has none
    with suppress(UnsupportedModel):
        gaps = largest_gap(ledger_of(twin, tail_of(exact, twin.checkpoint)))
        gap = max(gaps) / twin.logits.abs().max().item()
    return Deviation(largest, classes, (mine - true).abs().max().item(), gap)
