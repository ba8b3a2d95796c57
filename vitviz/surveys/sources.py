"""Image sources: folders, lists, tables, tar files and data sets of the Hugging Face hub.

A source yields its images unread, in the same order on every iteration.

Tar files are shards in webdataset format: members with the same stem belong together, such as 7.jpg and
7.cls. Python's tarfile only lists the members. Each image is then read at its offset in the file, by any
thread, and a resumed survey skips finished images without reading them. The webdataset library streams
members through a pipeline and cannot name, skip or seek them. A compressed tar cannot be seeked and is
rejected. A data set of the hub (hf:NAME, hf:NAME:SPLIT; requires the library datasets) is streamed: only the
images that are used are downloaded. The hub's revision identifies the data set, because listing it would
download the images.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from vitviz.errors import ImageError, VitvizError, first_line, quoted
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.unicode import escape_unencodable


@dataclass(frozen=True)
class Slice:
    """Byte range of a large file, read on demand by any thread or process."""

    path: str
    start: int
    length: int

    def read(self) -> bytes:
        """Return the bytes; fewer if the file is truncated."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            return file.read(self.length)


@dataclass(frozen=True)
class Unread:
    """Placeholder for images that could not be listed, with the reason."""

    reason: str


@dataclass(frozen=True)
class SourceImage:
    """Image of a source that has not been read yet."""

    name: str  # name within the source, such as "cats/7.jpg"
    data: Any  # any input of `open_image`, a Slice, or Unread
    label: str | int | None = None  # true class as given by the source

    def __post_init__(self) -> None:
        for name in ("name", "label"):
            given = getattr(self, name)
            # keeps a LocalizedText
            if isinstance(given, str) and (details := escape_unencodable(given)) != given:
                object.__setattr__(self, name, details)

    @property
    def picture(self) -> Any:
        """Return an input for `open_image`; raise ImageError for a folder that could not be listed."""
        if isinstance(self.data, Unread):
            raise ImageError(self.data.reason)
        return self.data.read() if isinstance(self.data, Slice) else self.data

    @property
    def mark(self) -> bytes:
        """Return bytes that identify the unread image: name, label and size; for arrays a hash."""
        return f"{self.name}\0{self.label}\0{_size(self.data)}\n".encode("utf-8", "surrogateescape")


class Source(Protocol):
    """Protocol of an image source.

    Every iteration yields the same items. Memory is bounded by the names of one directory.
    """

    kind: str  # description, such as "folder of classes"
    where: str

    def __iter__(self) -> Iterator[SourceImage]: ...


@dataclass(frozen=True)
class SourceSummary:
    """Number of images in a source, and the SHA-256 of their names, labels and sizes (not of pixels)."""

    count: int
    digest: str


def summarise(source: Source) -> SourceSummary:
    """Return a source's image count and hash, from its `described` or by listing it; images are unread."""
    own = getattr(source, "described", None)
    if own is not None:
        return own()
    digest, count = hashlib.sha256(), 0
    for item in source:
        digest.update(item.mark)
        count += 1
    return SourceSummary(count, digest.hexdigest())


def _size(data: Any) -> int | str:
    """Return an identity of image data: a file's or slice's size in bytes, or the SHA-256 of data in memory.

    "missing" for a path without a file; "unknown" for anything but a file, slice, bytes, image or array.
    """
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
    """Images handed over in Python, named by position from 1; with `by_path`, a path is its own name.

    If `pictures` is an iterator, the list can be iterated only once.
    """

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
    """All images in a folder and its subfolders, sorted by name and recognised by suffix.

    Hidden files and folders are excluded.
    An unreadable subfolder is yielded as one `Unread` item and is counted as one skipped image. If the folder
    itself contains no image, the top-level subfolder of each image names its class.
    """

    where: str
    classes: bool

    @classmethod
    def open_folder(cls, path: str | os.PathLike) -> ImageFolder:
        """Open a folder.

        Raises:
            VitvizError: If the folder contains no image.
        """
        for name, reason in _walk(str(path), ""):
            if not reason:  # images of the folder itself come before those of subfolders
                return cls(str(path), classes="/" in name)
        raise VitvizError(
            f"There is no image in the folder {os.path.basename(path)}: expected files ending in"
            f" {', '.join(SUFFIXES)}."
        )

    @property
    def kind(self) -> str:
        """The source's type, for the settings: "folder of classes" or, without classes, "folder"."""
        return "folder of classes" if self.classes else "folder"

    def __iter__(self) -> Iterator[SourceImage]:
        for name, reason in _walk(self.where, ""):
            parts = name.split("/")
            data = Unread(reason) if reason else os.path.join(self.where, *parts)
            yield SourceImage(name, data, parts[0] if self.classes else None)


def _walk(root: str, below: str) -> Iterator[tuple[str, str]]:
    """Yield (name, "") for every image and (name, reason) for every unreadable subfolder.

    Names are relative to the root, with slashes on every system. The files of a folder come before its
    subfolders.

    Raises:
        VitvizError: If the root cannot be read.
    """
    try:
        with os.scandir(os.path.join(root, below)) as entries:
            each = [one for one in entries if one.name[0] != "."]
        result = sorted((one.is_dir(follow_symlinks=False), one.name) for one in each)
    except OSError as error:
        if not below:
            raise _unreadable(Path(root), error) from None
        yield below, f"This folder could not be read ({first_line(error)})."
        return
    for is_folder, name in result:
        if is_folder:
            yield from _walk(root, f"{below}{name}/")
        elif name.lower().endswith(SUFFIXES):
            yield below + name, ""


PATHS = ("path", "image", "file", "file_name", "filename", "picture")
LABELS = ("label", "class", "target")


@dataclass(frozen=True)
class ImageTable:
    """Image list in CSV or Parquet. Paths are relative to the table; see `PATHS` and `LABELS` for columns."""

    where: str

    @property
    def kind(self) -> str:
        """The source's type, for the settings, by suffix: "list in Parquet" or "list in CSV"."""
        return "list in Parquet" if self.where.lower().endswith((".parquet", ".pq")) else "list in CSV"

    def __iter__(self) -> Iterator[SourceImage]:
        rows = (_rows_of_parquet if self.kind == "list in Parquet" else _rows_of_csv)(self.where)
        try:
            for number, (path, label) in enumerate(rows, start=1):
                if not path:
                    line = f"Line {number} of {Path(self.where).name}"
                    raise VitvizError(f"{line} names no image; expected a path in each line.")
                yield SourceImage(str(path), os.path.join(os.path.dirname(self.where), str(path)), label)
        except VitvizError:
            raise
        except (OSError, ValueError, csv.Error) as error:
            raise _unreadable(Path(self.where), error) from None


def _unreadable(path: Path, error: Exception) -> VitvizError:
    """Return the error for a path that cannot be read, with the first line of its cause."""
    return VitvizError(
        f"{path.name[:200]} cannot be read: {first_line(error)}. Check the path, its permissions, and that it"
        " is such a file."
    )


def _rows_of_csv(path: str) -> Iterator[tuple[str, str | None]]:
    """Yield (image path, label) per row of a CSV file with a header; None for an empty label."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        column, label = _columns(reader.fieldnames or (), path)
        for row in reader:
            yield row[column], (row[label] or None) if label else None


def _rows_of_parquet(path: str) -> Iterator[tuple[str, Any]]:
    """Yield (image path, label) per row of a Parquet file; None without a label column.

    Raise VitvizError if pyarrow is missing.
    """
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
    """Return a table's path column and label column, matched without case; None for no labels.

    Raise VitvizError if no column is in PATHS.
    """
    by_lower = {str(name).strip().lower(): name for name in names}
    result = next((by_lower[name] for name in PATHS if name in by_lower), None)
    if result is None:
        raise VitvizError(
            f"{Path(path).name} has the columns {', '.join(map(str, names)) or 'none'}; expected the images'"
            f" paths in one called {', '.join(PATHS[:-1])} or {PATHS[-1]}, and labels, if any, in"
            f" {' or '.join(LABELS)}."
        )
    return result, next((by_lower[name] for name in LABELS if name in by_lower), None)


LARGEST = 65_536  # bytes; larger members are not labels


@dataclass(frozen=True)
class TarShards:
    """Images of tar files; labels come from a .cls or .txt member of the same stem, or "label" in .json."""

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
    """Yield each member of a tar file: shared stem, full name, suffix from the first dot, byte range."""
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
            f"{Path(path).name} cannot be read as a tar file ({error}); expected one that is complete and"
            " not compressed. Unpack a .tar.gz to a .tar, or download it again."
        ) from None
    except OSError as error:
        raise _unreadable(Path(path), error) from None


def _label(known: str | int | None, ending: str, place: Slice) -> str | int | None:
    """Return an image's label after one more member of its stem: .cls wins, else the first label stays."""
    if place.length > LARGEST or (ending != ".cls" and known is not None):
        return known
    if ending in (".cls", ".txt"):
        return place.read().decode("utf-8", "replace").strip() or None
    try:
        details = json.loads(place.read()) if ending == ".json" else None
    except ValueError:
        return known
    label = details.get("label") if isinstance(details, dict) else known
    return label if isinstance(label, str | int) and not isinstance(label, bool) else None


@dataclass(frozen=True)
class HubDataset:
    """Data set of the Hugging Face hub: its first image column, and its first class column or "label"."""

    name: str
    split: str = "train"
    kind: str = "Hugging Face data set"

    @property
    def where(self) -> str:
        """The address hf:NAME:SPLIT of the data set, as accepted by `source_of`."""
        return f"hf:{self.name}:{self.split}"

    def __iter__(self) -> Iterator[SourceImage]:
        rows, image, label = self._columns()
        names = getattr(rows.features.get(label), "names", None) if label else None
        for number, row in enumerate(rows, start=1):
            data, details = row[image]["bytes"], row[label] if label else None
            if names and isinstance(details, int) and 0 <= details < len(names):
                details = names[details]
            yield SourceImage(f"{self.split}/{row[image].get('path') or number}", data, details)

    def described(self) -> SourceSummary:
        """Return the number of images on the hub (0 if unknown) and the hash of name, split and revision."""
        rows = self._opened()
        checksums = sorted((rows.info.download_checksums or {}).items())
        details = f"{self.name}:{self.split}:{rows.info.version}:{checksums}"
        counts = rows.info.splits or {}
        count = counts[self.split].num_examples if self.split in counts else 0
        return SourceSummary(count, hashlib.sha256(details.encode()).hexdigest())

    def _columns(self) -> tuple[Any, str, str | None]:
        """Return the rows with undecoded images, the image column, and the label column or None.

        Raise VitvizError if the data set has no image column.
        """
        rows = self._opened()  # raises with instructions if the library is missing
        from datasets import ClassLabel, Image

        image = next((name for name, kind in rows.features.items() if isinstance(kind, Image)), None)
        if image is None:
            named = ", ".join(rows.features)
            raise VitvizError(f"The data set {self.name} has no column of images; it has {named}.")
        classes = [name for name, kind in rows.features.items() if isinstance(kind, ClassLabel)]
        label = next((name for name in (*classes, "label") if name in rows.features), None)
        return rows.cast_column(image, Image(decode=False)), image, label

    def _opened(self) -> Any:
        """Return the split as a stream of rows whose features are known.

        Raise VitvizError if the library or the data set is not available.
        """
        try:
            import datasets
        except ImportError:
            raise VitvizError(
                "A data set of the hub needs the library datasets; install it with pip install 'vitviz[hub]'."
            ) from None
        try:
            rows = datasets.load_dataset(self.name, split=self.split, streaming=True)
        except Exception as error:  # the library raises many types of exceptions
            reason = str(error).splitlines()[0][:200]
            raise VitvizError(f"The data set {self.name} ({self.split}) is not to be had: {reason}") from None
        return rows if rows.features else rows._resolve_features()


EXPECTED = (
    "a folder of images or of one folder per class, a list in .csv or .parquet, a .tar in webdataset's form"
    " or a folder of them, hf:NAME for a data set of the hub, or in Python several images"
)


def source_of(given: Any) -> Source:
    """Return the source for a path, "hf:NAME", a list of images or a source.

    Raises:
        VitvizError: If the argument is not a source of images.

    >>> source_of([b"..."]).kind
    'list'
    """
    if isinstance(given, str) and given.startswith("hf:"):
        name, _, split = given[3:].partition(":")
        return HubDataset(name, split or "train")
    if isinstance(given, str | os.PathLike):
        return _image_source_at(Path(given).expanduser())
    one = isinstance(given, Image.Image | bytes) or hasattr(given, "__array__")
    if one or not isinstance(given, Iterable):
        given = quoted(str(given))
        raise VitvizError(f"{given} is not a source of images; expected {EXPECTED}, such as [image].")
    if hasattr(given, "kind") and hasattr(given, "where"):
        return given
    return ImageList(given if isinstance(given, list | tuple) else list(given))


def _image_source_at(path: Path) -> Source:
    """Return the images at a path: of a folder, of .tar shards, or of a .csv or .parquet list."""
    name = path.name.lower()
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:  # a parent folder is not accessible, or the name is too long
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
        given = f"the single image {path.name}"
        raise VitvizError(f"{given} is not a source of images; expected {EXPECTED}, such as [image].")
    raise VitvizError(f"{path.name} is not a source of images; expected {EXPECTED}.")
