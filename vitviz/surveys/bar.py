"""How far a survey is: by whoever wants to be told, or by tqdm's bar, which notebooks and terminals know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vitviz.surveys.rows import Progress


@contextmanager
def told(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """`progress` itself; with True a bar, closed in the end."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(unit="picture") as bar:

        def tell(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield tell


__all__ = ["told"]
