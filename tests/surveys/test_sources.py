"""Every kind of source yields the same pictures, names and labels, in the same order each time."""

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from vitviz.engine.images.opening import open_image
from vitviz.errors import VitvizError
from vitviz.surveys.labels import Labels
from vitviz.surveys.run import Plan
from vitviz.surveys.sources import source_of, summarise


def png(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (9, 8, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


PICTURES = {f"{label}/{number}.png": png(10 * ord(label) + number) for label in "ab" for number in range(3)}


def shard(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.fixture
def places(tmp_path):
    """The same six pictures as a folder, a flat one, a list, a tar and a folder of shards."""
    for name, data in PICTURES.items():
        for path in (tmp_path / "classes" / name, tmp_path / "flat" / name.replace("/", "-")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    (tmp_path / "classes" / "notes.md").write_text("no picture")
    (tmp_path / "classes" / ".hidden.png").write_bytes(png(0))
    lines = [f"classes/{name},{name[0]}" for name in PICTURES]
    (tmp_path / "list.csv").write_text("\n".join(["Path,label", *lines]), encoding="utf-8-sig")
    members = {}
    for number, (name, data) in enumerate(PICTURES.items()):
        members |= {
            f"{number:03d}.png": data,
            f"{number:03d}.cls" if number % 2 else f"{number:03d}.json": told(name[0], number),
        }
    shard(tmp_path / "one.tar", members)
    (tmp_path / "shards").mkdir()
    items = list(members.items())
    shard(tmp_path / "shards" / "a.tar", dict(items[:6]))
    shard(tmp_path / "shards" / "b.tar", dict(items[6:]))
    return tmp_path


def told(label, number):
    return label.encode() if number % 2 else json.dumps({"label": label}).encode()


@pytest.mark.parametrize(
    ("place", "kind", "labelled"),
    [
        ("classes", "folder of classes", True),
        ("flat", "folder", False),
        ("list.csv", "list in CSV", True),
        ("one.tar", "webdataset tar", True),
        ("shards", "webdataset tar", True),
    ],
)
def test_every_source_has_the_same_pictures(places, place, kind, labelled):
    source = source_of(places / place)
    found = list(source)
    assert source.kind == kind and [item.name for item in found] == [item.name for item in source]
    assert [item.label for item in found] == [name[0] if labelled else None for name in PICTURES]
    for item, data in zip(found, PICTURES.values(), strict=True):
        assert np.array_equal(open_image(item.picture), open_image(data))
    assert summarise(source).count == 6 and len({item.name for item in found}) == 6


def test_a_list_in_parquet(places):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"classes/{name}" for name in PICTURES]
    parquet.write_table(
        arrow.table({"file_name": names, "label": [0, 0, 0, 1, 1, 1]}), places / "list.parquet"
    )
    found = list(source_of(places / "list.parquet"))
    assert [item.label for item in found] == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(open_image(found[4].picture), open_image(PICTURES["b/1.png"]))


def test_the_hash_tells_another_set_from_this_one(places):
    before = summarise(source_of(places / "classes")).digest
    assert summarise(source_of(places / "classes")).digest == before
    assert summarise(source_of(places / "one.tar")).digest != before
    (places / "classes" / "b" / "2.png").write_bytes(png(99) + b"more")
    assert summarise(source_of(places / "classes")).digest != before
    assert (
        summarise(source_of([np.zeros((4, 4, 3), np.uint8)])).digest
        != summarise(source_of([np.ones((4, 4, 3), np.uint8)])).digest
    )


def test_a_seed_draws_the_same_pictures_and_a_limit_the_first(places):
    source = source_of(places / "classes")

    def named(**asked):
        return [item.name for _, item in Plan(source, summarise(source), **asked).items()]

    assert named(limit=2) == ["a/0.png", "a/1.png"] and named(limit=99) == named() == list(PICTURES)
    drawn = {tuple(named(limit=3, seed=seed)) for seed in range(20)}
    assert len(drawn) > 3 and all(len(one) == 3 and list(one) == sorted(one) for one in drawn)
    assert named(limit=3, seed=5) == named(limit=3, seed=5) and named(limit=6, seed=1) == list(PICTURES)
    assert [place for place, _ in Plan(source, summarise(source), 3, 1).items()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nowhere", "no folder or file nowhere"),
        ("flat/a-0.png", r"single picture a-0.png .* such as \[picture\]"),
        ("empty", "no picture in the folder empty"),
        ("notes.txt", "notes.txt is no source"),
        ("bad.csv", "has the columns one, two; expected .* called path"),
        ("zipped.tar", "not compressed"),
    ],
)
def test_what_is_no_source_is_said(places, given, said):
    (places / "empty").mkdir()
    (places / "notes.txt").write_text("x")
    (places / "bad.csv").write_text("one,two\n1,2\n")
    with tarfile.open(places / "zipped.tar", "w:gz") as tar:
        tar.add(places / "notes.txt", "notes.txt")
    with pytest.raises(VitvizError, match=said) as error:
        list(source_of(places / given))
    assert str(places) not in str(error.value)


def test_a_tar_that_breaks_off_is_said_or_its_pictures_are_skipped(places):
    whole = (places / "one.tar").read_bytes()
    (places / "one.tar").write_bytes(whole[:700])
    with pytest.raises(VitvizError, match="cannot be read as a tar file|could not be decoded"):
        for item in source_of(places / "one.tar"):
            open_image(item.picture)


def test_labels_are_understood_by_name_synonym_number_or_a_given_list():
    names = ["tabby, tabby cat", "tiger cat", "crane", "crane", "goldfish, Carassius auratus"]
    labels = Labels(5, names)
    asked = {
        "tabby_cat": 0,
        "Tiger cat": 1,
        "carassius auratus": 4,
        "3": 3,
        2: 2,
        "crane": None,
        "dog": None,
        "7": None,
        -1: None,
        None: None,
    }
    assert {label: labels.number(label) for label in asked} == asked
    assert Labels(5, names, ["n0", "n1", "n2", "n3", "n4"]).number("n3") == 3
    assert Labels(5, names, {"fish": "goldfish", "cat": 1}).number("fish") == 4
    with pytest.raises(VitvizError, match="none of the checkpoint's 5"):
        Labels(5, names, {"fish": "shark"})
    with pytest.raises(VitvizError, match="d.png has the label 'dog'.*--classes"):
        Labels(5, names, required=True).number("dog", "d.png")
