"""Every kind of source yields equal images, names and labels, in a constant order."""

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


def random_png(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (9, 8, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


IMAGES = {
    f"{label}/{number}.png": random_png(10 * ord(label) + number) for label in "ab" for number in range(3)
}


def write_tar(path, members):
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.fixture
def sources(tmp_path):
    """Write six images as a folder of classes, a flat folder, a list, a tar and a folder of shards."""
    for name, data in IMAGES.items():
        for path in (tmp_path / "classes" / name, tmp_path / "flat" / name.replace("/", "-")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    (tmp_path / "classes" / "notes.md").write_text("no picture")
    (tmp_path / "classes" / ".hidden.png").write_bytes(random_png(0))
    lines = [f"classes/{name},{name[0]}" for name in IMAGES]
    (tmp_path / "list.csv").write_text("\n".join(["Path,label", *lines]), encoding="utf-8-sig")
    members = {}
    for number, (name, data) in enumerate(IMAGES.items()):
        members |= {
            f"{number:03d}.png": data,
            f"{number:03d}.cls" if number % 2 else f"{number:03d}.json": label_bytes(name[0], number),
        }
    write_tar(tmp_path / "one.tar", members)
    (tmp_path / "shards").mkdir()
    items = list(members.items())
    write_tar(tmp_path / "shards" / "a.tar", dict(items[:6]))
    write_tar(tmp_path / "shards" / "b.tar", dict(items[6:]))
    return tmp_path


def label_bytes(label, number):
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
def test_every_source_yields_equal_images(sources, place, kind, labelled):
    source = source_of(sources / place)
    found = list(source)
    assert source.kind == kind and [item.name for item in found] == [item.name for item in source]
    assert [item.label for item in found] == [name[0] if labelled else None for name in IMAGES]
    for item, data in zip(found, IMAGES.values(), strict=True):
        assert np.array_equal(open_image(item.picture), open_image(data))
    assert summarise(source).count == 6 and len({item.name for item in found}) == 6


def test_parquet_list_yields_images_and_labels(sources):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"classes/{name}" for name in IMAGES]
    parquet.write_table(
        arrow.table({"file_name": names, "label": [0, 0, 0, 1, 1, 1]}), sources / "list.parquet"
    )
    found = list(source_of(sources / "list.parquet"))
    assert [item.label for item in found] == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(open_image(found[4].picture), open_image(IMAGES["b/1.png"]))


def test_source_digest_differs_for_other_content(sources):
    before = summarise(source_of(sources / "classes")).digest
    assert summarise(source_of(sources / "classes")).digest == before
    assert summarise(source_of(sources / "one.tar")).digest != before
    (sources / "classes" / "b" / "2.png").write_bytes(random_png(99) + b"more")
    assert summarise(source_of(sources / "classes")).digest != before
    assert (
        summarise(source_of([np.zeros((4, 4, 3), np.uint8)])).digest
        != summarise(source_of([np.ones((4, 4, 3), np.uint8)])).digest
    )


def test_limit_takes_first_images_and_seed_draws_reproducibly(sources):
    source = source_of(sources / "classes")

    def names(**asked):
        return [item.name for _, item in Plan(source, summarise(source), **asked).items()]

    assert names(limit=2) == ["a/0.png", "a/1.png"] and names(limit=99) == names() == list(IMAGES)
    drawn = {tuple(names(limit=3, seed=seed)) for seed in range(20)}
    assert len(drawn) > 3 and all(len(one) == 3 and list(one) == sorted(one) for one in drawn)
    assert names(limit=3, seed=5) == names(limit=3, seed=5) and names(limit=6, seed=1) == list(IMAGES)
    assert [place for place, _ in Plan(source, summarise(source), 3, 1).items()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere", "no folder or file nowhere"),
        ("flat/a-0.png", r"single image a-0.png .* such as \[image\]"),
        ("empty", "no image in the folder empty"),
        ("notes.txt", "notes.txt is not a source"),
        ("bad.csv", "has the columns one, two; expected .* called path"),
        ("zipped.tar", "not compressed"),
    ],
)
def test_invalid_sources_raise(sources, given, message):
    (sources / "empty").mkdir()
    (sources / "notes.txt").write_text("x")
    (sources / "bad.csv").write_text("one,two\n1,2\n")
    with tarfile.open(sources / "zipped.tar", "w:gz") as tar:
        tar.add(sources / "notes.txt", "notes.txt")
    with pytest.raises(VitvizError, match=message) as error:
        list(source_of(sources / given))
    assert str(sources) not in str(error.value)


def test_truncated_tar_raises(sources):
    whole = (sources / "one.tar").read_bytes()
    (sources / "one.tar").write_bytes(whole[:700])
    with pytest.raises(VitvizError, match="cannot be read as a tar file|could not be decoded"):
        for item in source_of(sources / "one.tar"):
            open_image(item.picture)


def test_labels_match_by_name_synonym_number_or_list():
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
