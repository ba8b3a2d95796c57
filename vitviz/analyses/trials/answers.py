"""The answers to many sets of patches: every set once, those of one size together, and what they score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz import stopping

SCORES = ("kept", "probability", "logit")
Answers = Callable[[Int[Tensor, "batch kept"]], Float[Tensor, "batch class"]]
Told = Callable[[int, int], None]  # how many sets are done, of how many
_SETS = 64  # in one request


class Asked:
    """Sets of patches to be asked about, and their logits once `ask` has been called; the order within a set
    is nothing.
    """

    def __init__(self) -> None:
        self._logits: dict[tuple[int, ...], Tensor | None] = {}

    def add(self, kept: Iterable[Tensor]) -> list[tuple[int, ...]]:
        """Remembers sets to be asked about; their keys."""
        keys = [tuple(sorted(one.tolist())) for one in kept]
        for key in keys:
            self._logits.setdefault(key, None)
        return keys

    def ask(self, answers: Answers, told: Told | None = None) -> int:
        """Asks about every set that has no answer yet, the largest first; how many there were."""
        by_size = defaultdict(list)
        for key, found in self._logits.items():
            if found is None:
                by_size[len(key)].append(key)
        total, done = sum(map(len, by_size.values())), 0
        for size in sorted(by_size, reverse=True):
            for start in range(0, len(by_size[size]), _SETS):
                stopping.check()
                some = by_size[size][start : start + _SETS]
                logits = answers(torch.tensor(some, dtype=torch.long).view(len(some), size))
                self._logits.update(zip(some, logits.double(), strict=True))
                done += len(some)
                if told is not None:
                    told(done, total)
        return total

    def logits(self, keys: list[tuple[int, ...]]) -> Float[Tensor, "set class"]:
        """What was answered."""
        return torch.stack([self._logits[key] for key in keys])


def scored(
    logits: Float[Tensor, "set class"], classes: tuple[int, ...], answer: int
) -> dict[str, Float[Tensor, " set"]]:
    """Three scores: whether the answer is still the model's own, and the explained class's probability and
    logit.

    For a rather than b the logit is the difference, and the probability that of a among the two.

    >>> found = scored(torch.tensor([[2.0, 1.0], [0.0, 0.0]]), (0, 1), answer=0)
    >>> found["logit"].tolist(), round(found["probability"][0].item(), 3)
    ([1.0, 0.0], 0.731)
    """
    kept = (logits.argmax(dim=-1) == answer).double()
    if len(classes) == 2:
        logit = logits[:, classes[0]] - logits[:, classes[1]]
        return {"kept": kept, "probability": torch.sigmoid(logit), "logit": logit}
    return {
        "kept": kept,
        "probability": torch.softmax(logits, dim=-1)[:, classes[0]],
        "logit": logits[:, classes[0]],
    }
