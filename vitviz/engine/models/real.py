"""Whether a file's tensors can be weights at all: real numbers in floating point."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from vitviz.errors import CheckpointError

# Tables of indices and counters, which some models keep beside their weights; what is no part of the model is
# refused later.
_COUNTED = re.compile(r"(^|[._])(index|indices|ids|tracked|step|steps|epoch|mask)$")


def require_real(tensors: Mapping[str, Tensor], name: str) -> None:
    """CheckpointError where a weight is integer, boolean or complex: copied into a model it would be cut off
    in silence.
    """
    wrong = [
        key
        for key, tensor in tensors.items()
        if not (tensor.is_floating_point() or _COUNTED.search(key) and not tensor.is_complex())
    ]
    if wrong:
        kind = str(tensors[wrong[0]].dtype).removeprefix("torch.")
        others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise CheckpointError(
            f"{name} holds {wrong[0]}{others} as {kind} numbers, where weights in floating point were"
            " expected. Integers are what quantised or wrongly converted weights look like: save the model's"
            " own float32, float16 or bfloat16 weights."
        )
