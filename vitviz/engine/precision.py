"""How far a model in bfloat16 is from the same one in float32, found out on a picture.

bfloat16 keeps 8 bits of a number's significand where float32 keeps 24: a value is off by up to 2^-9 of itself at every
step, and the differences grow through the layers. By how much depends on the weights, so it is measured: the picture
goes through the float32 model too, on the CPU, and all attention and all class probabilities are compared. Both are
computed from the two records in float32. It shows the distance on one picture, which is no bound for others.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine import capture
from vitviz.engine.record import attention_of
from vitviz.trace import Deviation, Trace

_ROWS = 512  # queries at a time: N x N for all heads need not stand in memory


def deviation(trace: Trace, exact: nn.Module, pixels: Float[Tensor, "1 channel height width"]) -> Deviation:
    """The distance of a trace from what the `exact` model, on the CPU in float32, does with the same pixels."""
    with torch.no_grad(), capture.recorded(exact) as recording:
        logits = exact(pixels)
    largest, biases = 0.0, {}
    for mine, (call,) in zip(trace.layers, recording.calls, strict=True):
        true = attention_of(call, 0, trace.grid, torch.device("cpu"), biases)
        for start in range(0, trace.grid.tokens, _ROWS):
            rows = slice(start, start + _ROWS)
            largest = max(largest, (mine.weights(rows).cpu() - true.weights(rows)).abs().max().item())
    if trace.logits is None:
        return Deviation(largest, None)
    difference = torch.softmax(trace.logits.cpu().double(), -1) - torch.softmax(logits[0].double(), -1)
    return Deviation(largest, difference.abs().max().item())
