"""Edge cases of sources: order, extensions, labels of several kinds, columns of hub datasets."""

import io
import json
import os
import sys
import tarfile
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from vitviz.engine.images.opening import open_image
from vitviz.errors import VitvizError
from vitviz.surveys.run import Plan
from vitviz.surveys.sources import SourceImage, source_of, summarise


def random_png(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (9, 8, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


class ReversedEntries(list):
    """A folder listing in reverse order, as a filesystem may return it."""

    def __enter__(self):
        return reversed(sorted(self, key=lambda entry: entry.name))

    def __exit__(self, *_):
        return None


def test_folder_order_is_independent_of_filesystem(tmp_path, monkeypatch):
    for name in ("b.PNG", "a.JPEG", "c.Tiff", "notes.txt"):
        (tmp_path / name).write_bytes(random_png(1))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.png").write_bytes(random_png(2))
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: ReversedEntries(scandir(path)))
    names = [item.name for item in source_of(tmp_path)]
    assert names == ["a.JPEG", "b.PNG", "c.Tiff", "below/a.png"]


def test_source_digest_covers_names_labels_content_and_order():
    one = [SourceImage("a.png", b"1234", "cat"), SourceImage("b.png", b"12345", "dog")]

    def digest(items):
        return summarise(source_of(items)).digest

    others = [
        [SourceImage("a.png", b"1234", "dog"), one[1]],  # another label
        [SourceImage("c.png", b"1234", "cat"), one[1]],  # another name
        [SourceImage("a.png", b"4321", "cat"), one[1]],  # other content
        one[::-1],  # another order
    ]
    assert len({digest(one), *map(digest, others)}) == 5 and digest(one) == digest(list(one))


def test_file_of_another_size_changes_digest(tmp_path):
    (tmp_path / "a.png").write_bytes(random_png(1))
    before = summarise(source_of(tmp_path)).digest
    (tmp_path / "a.png").write_bytes(random_png(1) + b"more")
    assert summarise(source_of(tmp_path)).digest != before


def test_list_line_without_path_raises(tmp_path):
    (tmp_path / "a.png").write_bytes(random_png(1))
    (tmp_path / "list.csv").write_text("path,label\na.png,cat\n,dog\n")
    with pytest.raises(VitvizError, match="Line 2 of list.csv names no image"):
        list(source_of(tmp_path / "list.csv"))


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_shards_prefix_names_and_keep_samples_separate(tmp_path):
    write_tar(tmp_path / "x.tar", [("7.seg.png", random_png(1)), ("7.cls", b"3"), ("8.png", random_png(2))])
    write_tar(
        tmp_path / "y.tar",
        [("7.png", random_png(3)), ("7.txt", b"words"), ("9.png", random_png(4)), ("9.json", b"[]")],
    )
    found = [(item.name, item.label) for item in source_of(tmp_path)]
    assert found == [
        ("x.tar/7.seg.png", "3"),
        ("x.tar/8.png", None),
        ("y.tar/7.png", "words"),
        ("y.tar/9.png", None),
    ]


def test_cls_label_takes_precedence_over_txt_and_json(tmp_path):
    members = [
        ("1.png", random_png(1)),
        ("1.cls", b"4"),
        ("1.json", json.dumps({"label": 5}).encode()),
        ("1.txt", b"a cat"),
    ]
    for offset in range(3):
        write_tar(tmp_path / f"{offset}.tar", [members[0], *members[1 + offset :], *members[1 : 1 + offset]])
        assert [item.label for item in source_of(tmp_path / f"{offset}.tar")] == ["4"]


@pytest.mark.parametrize("asked", [{"limit": 0}, {"part": 0}, {"seed": 3}])
def test_invalid_plan_raises(asked):
    source = source_of([random_png(1)])
    with pytest.raises(VitvizError, match="expected a whole number from 1|pass its size as limit"):
        Plan(source, summarise(source), **asked)


class StreamedDataset:
    """A dataset as the `datasets` library returns it: typed columns and single rows."""

    info = SimpleNamespace(
        version="1.2.0", download_checksums={"a": 1}, splits={"test": SimpleNamespace(num_examples=2)}
    )

    def __init__(self, library, decoded=True):
        self.features = {
            "text": "Value",
            "photo": library.Image(),
            "kind": library.ClassLabel(["cat", "dog"]),
        }
        self._library, self._decoded = library, decoded

    def cast_column(self, name, kind):
        assert name == "photo"
        return StreamedDataset(self._library, kind.decode)

    def __iter__(self):
        for number, kind in enumerate((1, -1)):
            photo = (
                "decoded already" if self._decoded else {"bytes": random_png(number), "path": f"{number}.png"}
            )
            yield {"text": "x", "photo": photo, "kind": kind}


@pytest.fixture
def hub(monkeypatch):
    """Replace the library `datasets` by the part that is used."""
    library, asked = ModuleType("datasets"), []
    library.Image = type("Image", (), {"__init__": lambda self, decode=True: setattr(self, "decode", decode)})
    library.ClassLabel = type(
        "ClassLabel", (), {"__init__": lambda self, names: setattr(self, "names", names)}
    )
    library.load_dataset = lambda name, **more: asked.append((name, more)) or StreamedDataset(library)
    monkeypatch.setitem(sys.modules, "datasets", library)
    return library, asked


def test_hub_dataset_streams_bytes_and_class_names(hub):
    source = source_of("hf:zoo/animals:test")
    items = list(source)
    assert [(item.name, item.label) for item in items] == [("test/0.png", "dog"), ("test/1.png", -1)]
    assert np.array_equal(open_image(items[0].picture), open_image(random_png(0)))
    assert hub[1][0] == ("zoo/animals", {"split": "test", "streaming": True})
    found = summarise(source)
    assert found.count == 2 and found.digest != summarise(source_of("hf:zoo/animals:train")).digest
    assert summarise(source_of("hf:zoo/animals")).count == 0, "the length of this split is unknown"


def test_unavailable_hub_dataset_raises(hub, monkeypatch):
    def fails(name, **more):
        raise RuntimeError("no such data set\nand a long trace")

    monkeypatch.setattr(hub[0], "load_dataset", fails)
    with pytest.raises(VitvizError, match=r"zoo \(train\) is not to be had: no such data set$"):
        list(source_of("hf:zoo"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(VitvizError, match=r"pip install 'vitviz\[hub\]'"):
        list(source_of("hf:zoo"))
