"""How things are written for the page."""

from __future__ import annotations


def line_of(checkpoint) -> str:
    """A checkpoint in a line: name, parameters, and for those of the hub data, licence and whether it is on
    disk.

    Of those in the weights folder name and size are enough: they stand in the narrow picker, and the facts
    say the rest.
    """
    hub = checkpoint.source == "hub"
    count = millions(checkpoint.parameters) if checkpoint.parameters else ""  # a damaged file's is not known
    size = f"≈ {count} parameters" if count and hub else count
    more = (
        checkpoint.trained_on,
        checkpoint.licence,
        "on disk" if checkpoint.on_disk else "to be downloaded",
    )
    parts = (checkpoint.name, size, *(more if hub else ()))
    return " · ".join(part for part in parts if part)


def millions(count: int) -> str:
    """A number of parameters as people say it.

    >>> millions(3_672_968), millions(86_567_656), millions(1_234_567_890)
    ('3.67 M', '86.6 M', '1.23 G')
    """
    scale, unit = (1e9, "G") if count >= 999.5e6 else (1e6, "M")
    digits = max(0, 2 - len(str(int(count / scale))) + 1)
    return f"{count / scale:.{min(2, digits)}f} {unit}"


__all__ = ["line_of", "millions"]
