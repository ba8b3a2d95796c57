"""What sources promise in their corners: order, endings, labels of several kinds, and the hub's columns."""

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


def png(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (9, 8, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


class Entries(list):
    """A folder as a filesystem may list it: in any order."""

    def __enter__(self):
        return reversed(sorted(self, key=lambda entry: entry.name))

    def __exit__(self, *_):
        return None


def test_a_folder_is_in_order_whatever_the_filesystem_says(tmp_path, monkeypatch):
    for name in ("b.PNG", "a.JPEG", "c.Tiff", "notes.txt"):
        (tmp_path / name).write_bytes(png(1))
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.png").write_bytes(png(2))
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: Entries(scandir(path)))
    names = [item.name for item in source_of(tmp_path)]
    assert names == ["a.JPEG", "b.PNG", "c.Tiff", "below/a.png"]


def test_the_hash_knows_names_labels_and_sizes():
    one = [SourceImage("a.png", b"1234", "cat"), SourceImage("b.png", b"12345", "dog")]

    def digest(items):
        return summarise(source_of(items)).digest

    others = [
        [SourceImage("a.png", b"1234", "dog"), one[1]],  # a label
        [SourceImage("c.png", b"1234", "cat"), one[1]],  # a name
        [SourceImage("a.png", b"4321", "cat"), one[1]],  # what is in it
        one[::-1],  # the order
    ]
    assert len({digest(one), *map(digest, others)}) == 5 and digest(one) == digest(list(one))


def test_a_file_of_another_size_is_another_source(tmp_path):
    (tmp_path / "a.png").write_bytes(png(1))
    before = summarise(source_of(tmp_path)).digest
    (tmp_path / "a.png").write_bytes(png(1) + b"more")
    assert summarise(source_of(tmp_path)).digest != before


def test_a_line_without_a_path_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(png(1))
    (tmp_path / "list.csv").write_text("path,label\na.png,cat\n,dog\n")
    with pytest.raises(VitvizError, match="Line 2 of list.csv names no picture"):
        list(source_of(tmp_path / "list.csv"))


def shard(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def test_shards_name_their_file_and_keep_their_samples_apart(tmp_path):
    shard(tmp_path / "x.tar", [("7.seg.png", png(1)), ("7.cls", b"3"), ("8.png", png(2))])
    shard(tmp_path / "y.tar", [("7.png", png(3)), ("7.txt", b"words"), ("9.png", png(4)), ("9.json", b"[]")])
    found = [(item.name, item.label) for item in source_of(tmp_path)]
    assert found == [
        ("x.tar/7.seg.png", "3"),
        ("x.tar/8.png", None),
        ("y.tar/7.png", "words"),
        ("y.tar/9.png", None),
    ]


def test_a_class_file_is_believed_before_a_text_or_json(tmp_path):
    members = [
        ("1.png", png(1)),
        ("1.cls", b"4"),
        ("1.json", json.dumps({"label": 5}).encode()),
        ("1.txt", b"a cat"),
    ]
    for turn in range(3):
        shard(tmp_path / f"{turn}.tar", [members[0], *members[1 + turn :], *members[1 : 1 + turn]])
        assert [item.label for item in source_of(tmp_path / f"{turn}.tar")] == ["4"]


@pytest.mark.parametrize("asked", [{"limit": 0}, {"part": 0}, {"seed": 3}])
def test_a_plan_that_means_nothing_is_refused(asked):
    source = source_of([png(1)])
    with pytest.raises(VitvizError, match="expected how many pictures, 1 or more|say how many with limit"):
        Plan(source, summarise(source), **asked)


class Streamed:
    """A data set as the hub's library hands it over: columns with kinds, rows one by one."""

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
        return Streamed(self._library, kind.decode)

    def __iter__(self):
        for number, kind in enumerate((1, -1)):
            photo = "decoded already" if self._decoded else {"bytes": png(number), "path": f"{number}.png"}
            yield {"text": "x", "photo": photo, "kind": kind}


@pytest.fixture
def hub(monkeypatch):
    """The library `datasets`, as far as it is used."""
    library, asked = ModuleType("datasets"), []
    library.Image = type("Image", (), {"__init__": lambda self, decode=True: setattr(self, "decode", decode)})
    library.ClassLabel = type(
        "ClassLabel", (), {"__init__": lambda self, names: setattr(self, "names", names)}
    )
    library.load_dataset = lambda name, **more: asked.append((name, more)) or Streamed(library)
    monkeypatch.setitem(sys.modules, "datasets", library)
    return library, asked


def test_a_data_set_of_the_hub_is_streamed_with_its_own_bytes_and_class_names(hub):
    source = source_of("hf:zoo/animals:test")
    items = list(source)
    assert [(item.name, item.label) for item in items] == [("test/0.png", "dog"), ("test/1.png", -1)]
    assert np.array_equal(open_image(items[0].picture), open_image(png(0)))
    assert hub[1][0] == ("zoo/animals", {"split": "test", "streaming": True})
    found = summarise(source)
    assert found.count == 2 and found.digest != summarise(source_of("hf:zoo/animals:train")).digest
    assert summarise(source_of("hf:zoo/animals")).count == 0, "a split of unknown length"


def test_a_data_set_that_is_not_to_be_had_is_a_sentence(hub, monkeypatch):
    def fails(name, **more):
        raise RuntimeError("no such data set\nand a long trace")

    monkeypatch.setattr(hub[0], "load_dataset", fails)
    with pytest.raises(VitvizError, match=r"zoo \(train\) is not to be had: no such data set$"):
        list(source_of("hf:zoo"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(VitvizError, match=r"pip install 'vitviz\[hub\]'"):
        list(source_of("hf:zoo"))
