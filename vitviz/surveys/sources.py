"""Where pictures come from: a folder, a list, a table, tar files, a data set of the hub; and the choice.

A source hands over its pictures unread, in the same order each time it is asked.

Tar files are shards in webdataset's form: members of one name belong together, such as 7.jpg with 7.cls. They
are read by Python's own tarfile for the listing alone: a picture is then read at its place in the file, by
any thread, and going on after a stop skips what is done without reading it. The webdataset library streams
members through a pipeline and cannot name, skip or seek them. A compressed tar has no places to seek, so it
is refused. A data set of the hub (hf:NAME, hf:NAME:SPLIT; needs the library datasets) is streamed: nothing
but what is looked at is downloaded. Its identity is the hub's revision: its listing is its pictures.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from vitviz.errors import ImageError, VitvizError, first_line, quoted
from vitviz.traces.localized_text import LocalizedText


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
class Unread:
    """What stands in the place of pictures that could not even be listed."""

    reason: str


@dataclass(frozen=True)
class SourceImage:
    """One picture that has not been read yet."""

    name: str  # within its source, such as "cats/7.jpg"
    data: Any  # whatever `open_image` takes, a Slice, or Unread
    label: str | int | None = None  # the true class, as the source says it

    def __post_init__(self) -> None:
        for name in ("name", "label"):
            given = getattr(self, name)
            if isinstance(given, str) and (told := written_out(given)) != given:  # else a sentence stays one
                object.__setattr__(self, name, told)

    @property
    def picture(self) -> Any:
        """What `open_image` takes; ImageError for a folder that could not be read."""
        if isinstance(self.data, Unread):
            raise ImageError(self.data.reason)
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

    def __iter__(self) -> Iterator[SourceImage]: ...


@dataclass(frozen=True)
class SourceSummary:
    """How many pictures a source lists, and the SHA-256 of their marks: names, labels, sizes, no pixels."""

    count: int
    digest: str


def summarise(source: Source) -> SourceSummary:
    """One pass over the listing, which reads no picture; a source that knows better says so itself."""
    own = getattr(source, "described", None)
    if own is not None:
        return own()
    digest, count = hashlib.sha256(), 0
    for item in source:
        digest.update(item.mark)
        count += 1
    return SourceSummary(count, digest.hexdigest())


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


@dataclass(frozen=True)
class ImageList:
    """Named by place, from 1; a path by itself where `by_path`. What can be gone through once is, once."""

    pictures: Iterable[Any]
    by_path: bool = True
    kind: str = "list"
    where: str = "handed over in Python"

    def __iter__(self) -> Iterator[SourceImage]:
        for number, given in enumerate(self.pictures, start=1):
            if isinstance(given, SourceImage):
                yield given
                continue
            picture, label = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
            path = self.by_path and isinstance(picture, str | os.PathLike)
            name = os.fspath(picture) if path else LocalizedText("Picture {number}", number=number)
            yield SourceImage(name, picture, label)


SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".avif")


@dataclass(frozen=True)
class ImageFolder:
    """All pictures in it and below, by name and by their ending; hidden ones are passed over.

    A folder below it that cannot be read stands in the place of its pictures, and is left out as one is.
    Where no picture lies in the folder itself, the first folder on the way to one names its class.
    """

    where: str
    classes: bool

    @classmethod
    def open_folder(cls, path: str | os.PathLike) -> ImageFolder:
        """VitvizError for a folder without pictures."""
        for name, reason in _walk(str(path), ""):
            if not reason:  # a folder's own pictures come before those below it
                return cls(str(path), classes="/" in name)
        raise VitvizError(
            f"There is no picture in the folder {os.path.basename(path)}: expected files ending in"
            f" {', '.join(SUFFIXES)}."
        )

    @property
    def kind(self) -> str:
        return "folder of classes" if self.classes else "folder"

    def __iter__(self) -> Iterator[SourceImage]:
        for name, reason in _walk(self.where, ""):
            parts = name.split("/")
            data = Unread(reason) if reason else os.path.join(self.where, *parts)
            yield SourceImage(name, data, parts[0] if self.classes else None)


def _walk(root: str, below: str) -> Iterator[tuple[str, str]]:
    """Names relative to the root, with slashes on every system: a folder's files first, then its folders'.
    Beside each "", or of a folder why it cannot be read; VitvizError where that is the root.
    """
    try:
        with os.scandir(os.path.join(root, below)) as entries:
            each = [one for one in entries if one.name[0] != "."]
        found = sorted((one.is_dir(follow_symlinks=False), one.name) for one in each)
    except OSError as error:
        if not below:
            raise _unreadable(Path(root), error) from None
        yield below, f"This folder could not be read ({first_line(error)})."
        return
    for is_folder, name in found:
        if is_folder:
            yield from _walk(root, f"{below}{name}/")
        elif name.lower().endswith(SUFFIXES):
            yield below + name, ""


PATHS = ("path", "image", "file", "file_name", "filename", "picture")
LABELS = ("label", "class", "target")


@dataclass(frozen=True)
class ImageTable:
    """Paths are relative to the table. Columns are found by name: see `PATHS` and `LABELS`."""

    where: str

    @property
    def kind(self) -> str:
        return "list in Parquet" if self.where.lower().endswith((".parquet", ".pq")) else "list in CSV"

    def __iter__(self) -> Iterator[SourceImage]:
        rows = (_of_parquet if self.kind == "list in Parquet" else _of_csv)(self.where)
        for number in count(1):
            try:
                path, label = next(rows)
            except StopIteration:
                return
            except VitvizError:
                raise
            except (OSError, ValueError, csv.Error) as error:
                raise _unreadable(Path(self.where), error) from None
            if not path:
                raise VitvizError(
                    f"Line {number} of {Path(self.where).name} names no picture; expected a path in each."
                )
            yield SourceImage(str(path), os.path.join(os.path.dirname(self.where), str(path)), label)


def _unreadable(path: Path, error: Exception) -> VitvizError:
    return VitvizError(
        f"{path.name[:200]} cannot be read: {first_line(error)}. Check the path, its permissions, and that"
        f" it is"
        " such a file."
    )


def _of_csv(path: str) -> Iterator[tuple[str, str | None]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        column, label = _columns(reader.fieldnames or (), path)
        for row in reader:
            yield row[column], (row[label] or None) if label else None


def _of_parquet(path: str) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise VitvizError(
            "A list in Parquet needs pyarrow; install it with pip install 'vitviz[data]', or write CSV."
        ) from None
    file = parquet.ParquetFile(path)
    column, label = _columns(file.schema_arrow.names, path)
    for batch in file.iter_batches(4096, columns=[name for name in (column, label) if name]):
        values: Mapping[str, list] = batch.to_pydict()
        yield from zip(values[column], values[label] if label else [None] * len(values[column]), strict=True)


def _columns(names, path: str) -> tuple[str, str | None]:
    by_lower = {str(name).strip().lower(): name for name in names}
    found = next((by_lower[name] for name in PATHS if name in by_lower), None)
    if found is None:
        raise VitvizError(
            f"{Path(path).name} has the columns {', '.join(map(str, names)) or 'none'}; expected the"
            f" pictures' paths in one called {', '.join(PATHS[:-1])} or {PATHS[-1]}, and labels, if there are"
            f" any, in {' or '.join(LABELS)}."
        )
    return found, next((by_lower[name] for name in LABELS if name in by_lower), None)


LARGEST = 65_536  # bytes of a label: no label is longer


@dataclass(frozen=True)
class TarShards:
    """One tar file after the other; a label is in .cls or .txt beside a picture, or "label" in .json."""

    paths: tuple[str, ...]
    where: str
    kind: str = "webdataset tar"

    def __iter__(self) -> Iterator[SourceImage]:
        for path in self.paths:
            shard = f"{Path(path).name}/" if len(self.paths) > 1 else ""
            for _, members in groupby(_members(path), key=lambda one: one[0]):
                pictures, label = [], None
                for _, name, ending, place in members:
                    if ending.endswith(SUFFIXES):
                        pictures.append((name, place))
                    else:
                        label = _label(label, ending, place)
                yield from (SourceImage(shard + name, place, label) for name, place in pictures)


def _members(path: str) -> Iterator[tuple[str, str, str, Slice]]:
    """Each with the key of those that belong together, its whole name, and its ending, from the first dot."""
    try:
        with tarfile.open(path, "r:") as shard:
            while (member := shard.next()) is not None:
                shard.members.clear()  # tarfile would keep every header until the end
                if not member.isfile():
                    continue
                folder, base = os.path.split(member.name)
                first, _, rest = base.partition(".")
                place = Slice(path, member.offset_data, member.size)
                yield os.path.join(folder, first), member.name, f".{rest.lower()}", place
    except tarfile.TarError as error:
        raise VitvizError(
            f"{Path(path).name} cannot be read as a tar file ({error}); expected one that is whole and not"
            " compressed. Unpack a .tar.gz to a .tar, or download it again."
        ) from None
    except OSError as error:
        raise _unreadable(Path(path), error) from None


def _label(known: str | int | None, ending: str, place: Slice) -> str | int | None:
    """What a member says beside its picture; .cls takes precedence, else what was met first."""
    if place.length > LARGEST or (ending != ".cls" and known is not None):
        return known
    if ending in (".cls", ".txt"):
        return place.read().decode("utf-8", "replace").strip() or None
    try:
        told = json.loads(place.read()) if ending == ".json" else None
    except ValueError:
        return known
    label = told.get("label") if isinstance(told, dict) else known
    return label if isinstance(label, str | int) and not isinstance(label, bool) else None


@dataclass(frozen=True)
class HubDataset:
    """The first column of pictures, and the first of classes or called label."""

    name: str
    split: str = "train"
    kind: str = "Hugging Face data set"

    @property
    def where(self) -> str:
        return f"hf:{self.name}:{self.split}"

    def __iter__(self) -> Iterator[SourceImage]:
        rows, image, label = self._columns()
        names = getattr(rows.features.get(label), "names", None) if label else None
        for number, row in enumerate(rows, start=1):
            data, told = row[image]["bytes"], row[label] if label else None
            told = names[told] if names and isinstance(told, int) and 0 <= told < len(names) else told
            yield SourceImage(f"{self.split}/{row[image].get('path') or number}", data, told)

    def described(self) -> SourceSummary:
        """How many pictures the hub names, 0 where it names none; the hash of name, split and revision."""
        rows = self._opened()
        checksums = sorted((rows.info.download_checksums or {}).items())
        told = f"{self.name}:{self.split}:{rows.info.version}:{checksums}"
        counts = rows.info.splits or {}
        count = counts[self.split].num_examples if self.split in counts else 0
        return SourceSummary(count, hashlib.sha256(told.encode()).hexdigest())

    def _columns(self) -> tuple[Any, str, str | None]:
        rows = self._opened()  # which says how the library is to be had
        from datasets import ClassLabel, Image

        image = next((name for name, kind in rows.features.items() if isinstance(kind, Image)), None)
        if image is None:
            named = ", ".join(rows.features)
            raise VitvizError(f"The data set {self.name} has no column of pictures; it has {named}.")
        classes = [name for name, kind in rows.features.items() if isinstance(kind, ClassLabel)]
        label = next((name for name in (*classes, "label") if name in rows.features), None)
        return rows.cast_column(image, Image(decode=False)), image, label

    def _opened(self) -> Any:
        try:
            import datasets
        except ImportError:
            raise VitvizError(
                "A data set of the hub needs the library datasets; install it with pip install 'vitviz[hub]'."
            ) from None
        try:
            rows = datasets.load_dataset(self.name, split=self.split, streaming=True)
        except Exception as error:  # the library raises nearly anything
            raise VitvizError(
                f"The data set {self.name} ({self.split}) is not to be had:"
                f" {str(error).splitlines()[0][:200]}"
            ) from None
        return rows if rows.features else rows._resolve_features()


EXPECTED = (
    "a folder of pictures or of one folder a class, a list in .csv or .parquet, a .tar in webdataset's form"
    " or a folder of them, hf:NAME for a data set of the hub, or in Python several pictures"
)


def source_of(given: Any) -> Source:
    """The source that is meant; VitvizError for what is none. A source or list is taken as it is.

    >>> source_of([b"..."]).kind
    'list'
    """
    if isinstance(given, str) and given.startswith("hf:"):
        name, _, split = given[3:].partition(":")
        return HubDataset(name, split or "train")
    if isinstance(given, str | os.PathLike):
        return _on_disk(Path(given).expanduser())
    one = isinstance(given, Image.Image | bytes) or hasattr(given, "__array__")
    if one or not isinstance(given, Iterable):
        raise VitvizError(
            f"Given {quoted(str(given))} for a set of pictures; expected {EXPECTED}, such as [picture]."
        )
    if hasattr(given, "kind") and hasattr(given, "where"):
        return given
    return ImageList(given if isinstance(given, list | tuple) else list(given))


def _on_disk(path: Path) -> Source:
    name = path.name.lower()
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:  # one above it may not be entered, or the name is too long
        raise _unreadable(path, error) from None
    if is_folder:
        shards = sorted(str(one) for one in path.glob("*.tar"))
        return TarShards(tuple(shards), str(path)) if shards else ImageFolder.open_folder(path)
    if not is_file:
        raise VitvizError(f"There is no folder or file {path.name}; expected {EXPECTED}.")
    if name.endswith(".tar"):
        return TarShards((str(path),), str(path))
    if name.endswith((".csv", ".parquet", ".pq")):
        return ImageTable(str(path))
    if name.endswith(SUFFIXES):
        raise VitvizError(
            f"Given the single picture {path.name} for a set of pictures; expected {EXPECTED}, such as"
            " [picture]."
        )
    raise VitvizError(f"{path.name} is no source of pictures; expected {EXPECTED}.")
