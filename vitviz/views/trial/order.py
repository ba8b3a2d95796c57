"""In which order methods are asked about: chance first, which others are measured by; the dear ones last."""

from vitviz.analyses.protocol import DENSE, TITLES

FIRST = ("random", "centre", "ledger", "frozen")
LAST = ("integrated_gradients", "leave_one_out")
TOGETHER = 3  # cheap methods whose sets of patches are asked about at once: fewer, fuller passes
ORDER = (*FIRST, *(name for name in TITLES if name not in (*FIRST, *DENSE, *LAST)), *DENSE, *LAST)


def group_of(method: str) -> tuple[str, ...]:
    """The methods that are tried together with this one, in order; a dear one, and chance, are tried alone.

    >>> group_of("frozen"), group_of("leave_one_out")
    (('centre', 'ledger', 'frozen'), ('leave_one_out',))
    """
    cheap = [name for name in ORDER[1:] if name not in LAST]
    if method not in cheap:
        return (method,)
    start = cheap.index(method) // TOGETHER * TOGETHER
    return tuple(cheap[start : start + TOGETHER])
