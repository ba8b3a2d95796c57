"""A source of pictures: what every kind of it hands over, in the same order each time it is asked."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Slice:
    """Some bytes of a large file, read when they are needed, by whichever thread or process needs them."""

    path: str
    start: int
    length: int

    def read(self) -> bytes:
        """These bytes; fewer where the file breaks off."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            return file.read(self.length)


@dataclass(frozen=True)
class Item:
    """One picture that has not been read yet."""

    name: str  # within its source, such as "cats/7.jpg"
    data: Any  # whatever `open_image` takes, or a Slice
    label: str | int | None = None  # the true class, as the source says it

    def __post_init__(self) -> None:
        for name in ("name", "label"):
            given = getattr(self, name)
            if isinstance(given, str) and (told := written_out(given)) != given:  # else a sentence stays one
                object.__setattr__(self, name, told)

    @property
    def picture(self) -> Any:
        """What `open_image` takes."""
        return self.data.read() if isinstance(self.data, Slice) else self.data

    @property
    def mark(self) -> bytes:
        """What tells a picture from another, unread: name, label and size in bytes; of arrays, all."""
        return f"{self.name}\0{self.label}\0{_size(self.data)}\n".encode("utf-8", "surrogateescape")


def written_out(text: str) -> str:
    """A text that any file can hold: bytes of a file's name that are no UTF-8 are spelled.

    >>> written_out("caf\\udce9.jpg")
    'caf\\\\udce9.jpg'
    """
    return text.encode("utf-8", "backslashreplace").decode()


class Source(Protocol):
    """Iterating yields the items; twice, the same ones. Memory is bounded by the names of one directory."""

    kind: str  # in words, such as "folder of classes"
    where: str

    def __iter__(self) -> Iterator[Item]: ...


@dataclass(frozen=True)
class Described:
    """How many pictures a source lists, and the SHA-256 of their marks: names, labels, sizes, no pixels."""

    count: int
    digest: str


def described(source: Source) -> Described:
    """One pass over the listing, which reads no picture; a source that knows better says so itself."""
    own = getattr(source, "described", None)
    if own is not None:
        return own()
    digest, count = hashlib.sha256(), 0
    for item in source:
        digest.update(item.mark)
        count += 1
    return Described(count, digest.hexdigest())


def _size(data: Any) -> int | str:
    if isinstance(data, Slice):
        return data.length
    if isinstance(data, str | Path):
        try:
            return Path(data).stat().st_size
        except (OSError, ValueError):
            return "missing"
    whole = data if isinstance(data, bytes) else data.tobytes() if hasattr(data, "tobytes") else None
    return hashlib.sha256(whole).hexdigest() if whole is not None else "unknown"
