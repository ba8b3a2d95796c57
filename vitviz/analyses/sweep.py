"""Distance, prefix mass and rollout in one backward pass over the layers: the page's first results.

The rollout's row vector is propagated from the last layer to the first anyway. The distance is computed from
each block of attention while that block is in the cache. Equations and sources: `distance` and `rollout`. The
sweep does not fuse heads by max or min and discards nothing, because that needs all heads together.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vitviz.analyses import attention_kernel
from vitviz.analyses.distance import Distances, distances, join_layer_readings, token_distances
from vitviz.analyses.query import QueryToken, query_weights
from vitviz.analyses.rollout import mix_step
from vitviz.analyses.streaming import read_layer
from vitviz.traces.trace import Trace


@dataclass(frozen=True)
class Sweep:
    """Results of `distances` and `rollout` for one trace."""

    distances: Distances
    rollout: Float[Tensor, "row col"]


def sweep(trace: Trace, query: QueryToken = "auto", residual: float = 0.5) -> Sweep:
    """Return the distances of all heads and the mean rollout of one query, from one pass over the attention.

    Args:
        trace: the trace.
        query: see `query_weights`.
        residual: weight of the skip connection, from 0 to 1.

    Returns:
        `Sweep`: distances (layer, head) in pixels, rollout (row, col) without a unit.

    Raises:
        VitvizError: unknown query.

    Source: see `distance` and `rollout`.

    >>> from vitviz.analyses.example import example_trace
    >>> seen = sweep(example_trace(layers=1))
    >>> seen.rollout.tolist(), seen.distances.prefix_mass.tolist()
    ([[0.125, 0.125, 0.125]], [[0.25, 0.25]])
    """
    vector, lengths, readings = query_weights(trace, query), token_distances(trace), []
    apart = attention_kernel.applies(trace.layers)  # the kernel computes the distances of all layers
    for attention in reversed(trace.layers):
        reading = read_layer(attention, trace.grid.prefix, None if apart else lengths, vector)
        vector = mix_step(vector, reading.carried, residual)
        readings.insert(0, reading)
    measured = distances(trace) if apart else join_layer_readings(readings, lengths)
    return Sweep(measured, trace.on_grid(vector.to(lengths)))
