"""Shards in webdataset's form: tar files in which members of one name belong together, such as 7.jpg with
7.cls.

Read by Python's own tarfile for the listing alone: a picture is then read at its place in the file, by any
thread, and going on after a stop skips what is done without reading it. The webdataset library streams
members through a pipeline and cannot name, skip or seek them. A compressed tar has no places to seek, so it
is refused.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vitviz.errors import VitvizError
from vitviz.surveys.items import Item, Slice
from vitviz.surveys.sources.folder import SUFFIXES

LARGEST = 65_536  # bytes of a label: no label is longer


@dataclass
class _Sample:
    """Members of one key, as far as they have been met."""

    key: str
    pictures: list[tuple[str, Slice]] = field(default_factory=list)
    label: str | int | None = None


@dataclass(frozen=True)
class Shards:
    """One tar file after the other; a label is what stands in .cls or .txt beside the picture, or "label" in
    .json.
    """

    paths: tuple[str, ...]
    where: str
    kind: str = "webdataset tar"

    def __iter__(self) -> Iterator[Item]:
        for path in self.paths:
            shard = f"{Path(path).name}/" if len(self.paths) > 1 else ""
            for sample in _samples(path):
                for name, place in sample.pictures:
                    yield Item(shard + name, place, sample.label)


def _samples(path: str) -> Iterator[_Sample]:
    sample: _Sample | None = None
    try:
        with tarfile.open(path, "r:") as shard:
            while (member := shard.next()) is not None:
                shard.members.clear()  # tarfile would keep every header until the end
                if not member.isfile():
                    continue
                folder, base = os.path.split(member.name)
                key, ending = (
                    os.path.join(folder, base.partition(".")[0]),
                    "." + base.partition(".")[2].lower(),
                )
                if sample is None or sample.key != key:
                    if sample is not None:
                        yield sample
                    sample = _Sample(key)
                _take(sample, member.name, ending, Slice(path, member.offset_data, member.size))
    except tarfile.TarError as error:
        raise VitvizError(
            f"{Path(path).name} cannot be read as a tar file ({error}); expected one that is whole and not"
            " compressed. Unpack a .tar.gz to a .tar, or download it again."
        ) from None
    if sample is not None:
        yield sample


def _take(sample: _Sample, name: str, ending: str, place: Slice) -> None:
    if ending.endswith(SUFFIXES):
        sample.pictures.append((name, place))
    elif (
        ending in (".cls", ".txt") and place.length <= LARGEST and (ending == ".cls" or sample.label is None)
    ):
        sample.label = place.read().decode("utf-8", "replace").strip() or None
    elif ending == ".json" and place.length <= LARGEST and sample.label is None:
        try:
            told = json.loads(place.read())
        except ValueError:
            return
        label = told.get("label") if isinstance(told, dict) else None
        sample.label = label if isinstance(label, str | int) and not isinstance(label, bool) else None
