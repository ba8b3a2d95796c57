"""Edge cases of reports and of resumed surveys."""

import csv
import json
import re
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

import vitviz
from vitviz.errors import VitvizError
from vitviz.surveys import Moments, Quantity
from vitviz.surveys.parts import RANKS
from vitviz.surveys.report import escape_formula, page_of
from vitviz.surveys.result import KEPT, LISTED, Mistakes, Survey
from vitviz.surveys.rows import Row, Skipped, SurveyPart


@pytest.fixture
def image_folder(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def row(index, label, answer, probability, of_label):
    return Row(index, f"{index}.png", str(label), label, answer, probability, of_label, {})


def test_mistakes_are_bounded_and_sorted():
    """100 errors. The probabilities are chosen so that both orders differ."""
    random = np.random.default_rng(0)
    rows = []
    for index in range(100):
        high, low = sorted(random.uniform(0, 1, 2))[::-1]
        rows.append(row(index, 1, 2, high, low))
    rows += [row(100, 3, 3, 0.9, 0.9), row(101, None, 3, 0.99, None)]
    found = Mistakes()
    for part in range(0, len(rows), 7):
        found.add(rows[part : part + 7])
    surest = sorted(rows[:100], key=lambda one: -one.probability)[:KEPT]
    nearest = sorted(rows[:100], key=lambda one: one.probability - one.of_label)[:KEPT]
    assert [one.index for one in found.surest] == [one.index for one in surest]
    assert [one.index for one in found.nearest] == [one.index for one in nearest]
    assert (found.labelled, found.right, dict(found.confusions)) == (101, 1, {(1, 2): 100})


@dataclass(frozen=True)
class NamedMeasure:
    """A measure that only provides names and quantities."""

    name: str
    quantities: tuple
    says: str = ""


def survey_of(inspector, **more):
    lens = NamedMeasure("lens", (Quantity("right", "layer", "Right by depth", "share"),))
    single = NamedMeasure("accuracy", (Quantity("first", "", "Right", "share"),))
    sums = {
        "lens.right": Moments(4, np.array([0.0, 0.5, 1.0]), np.array([0.0, 1.0, 0.0])),
        "accuracy.first": Moments(4, np.array(0.25), np.array(3.0)),
    }
    return Survey("vitviz-tiny", inspector.grid(), "float32", (lens, single), 4, sums, **more)


def test_report_shows_errors_layers_and_mistakes(inspector):
    mistakes = Mistakes()
    mistakes.add([row(0, 1, 2, 0.75, 0.125), row(1, 1, 1, 0.5, 0.5), row(2, 1, 1, 0.5, 0.5)])
    skipped = tuple(Skipped(n, f"bad-{n}.png", "broken") for n in range(150))
    survey = survey_of(inspector, mistakes=mistakes, skipped=skipped, left_out=150)
    quantiles = {"lens.right": np.zeros((len(RANKS), 3)), "accuracy.first": np.zeros(len(RANKS))}
    text = page_of(survey, quantiles, "pictures.csv")
    assert "0.25 ± 0.5" in text, "the standard error of 4 images with variance 1"
    assert re.findall(r"<title>Depth (\d)", text) == ["0", "1", "2"], "the lens begins before layer 1"
    assert "2 of 3 labelled images" in text
    assert re.search(r"<td>75.0%</td><td>12.5%</td>", text), "of the prediction, then of the true class"
    assert text.count("bad-") == 100 and "skipped.csv" in text


def test_skipped_list_in_memory_is_bounded(inspector):
    survey = survey_of(inspector)
    for start in range(0, 3 * LISTED, 500):
        skipped = [Skipped(n, str(n), "broken") for n in range(start, start + 500)]
        survey = survey.grown(SurveyPart([], skipped))
    assert (len(survey.skipped), survey.left_out) == (LISTED, 3 * LISTED)
    assert survey.skipped[-1].index == LISTED - 1


@pytest.mark.parametrize("begins", list("=+-@\t\r"))
def test_escape_formula_quotes_formula_starts(begins):
    assert escape_formula(begins + "1") == "'" + begins + "1" and escape_formula("x" + begins) == "x" + begins


def test_standard_error_of_one_image_is_null_in_json(inspector, image_folder, tmp_path):
    vitviz.survey(image_folder, inspector, ["distance"], out=tmp_path / "out", limit=1)
    text = (tmp_path / "out" / "summary.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["averages"]["distance.distance"]["standard_error"][0][0] is None


@dataclass(frozen=True)
class PartialMeasure:
    """Measure one of its quantities on every second image only."""

    name: str = "some"
    says: str = "every second picture"
    quantities: tuple = (Quantity("mean", "", "Mean"), Quantity("pair", "one", "Pair"))

    def of(self, seen):
        mean = float(seen.trace.view.picture.mean())
        even = int(seen.trace.view.picture[0, 0, 2]) % 2 == 0
        return {"pair": np.array([mean, -mean])} | ({"mean": np.array(mean)} if even else {})


def test_partial_quantities_survive_resuming(inspector, image_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)  # so that the table is text
    ask = dict(part=3, batch=1)
    whole = vitviz.survey(image_folder, inspector, [PartialMeasure()], out=tmp_path / "whole", **ask)
    vitviz.survey(
        image_folder,
        inspector,
        [PartialMeasure()],
        out=tmp_path / "out",
        progress=lambda done, of: done < 4,
        **ask,
    )
    vitviz.survey(image_folder, inspector, [PartialMeasure()], out=tmp_path / "out", **ask)
    tables = [(tmp_path / name / "pictures.csv").read_text() for name in ("whole", "out")]
    assert tables[0] == tables[1] and 0 < whole.moments("some.mean").count < 6
    for line in csv.DictReader((tmp_path / "out" / "pictures.csv").open()):
        even = int(inspector.trace(image_folder / line["name"]).view.picture[0, 0, 2]) % 2 == 0
        assert bool(line["some.mean"]) == even and float(line["some.pair.0"]) == -float(line["some.pair.1"])


def test_old_csv_table_is_removed_when_parquet_is_written(inspector, image_folder, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "pictures.csv").write_text("old")
    vitviz.survey(image_folder, inspector, ["distance"], out=tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").glob("pictures.*")} == {"pictures.parquet"}


def test_changed_images_raise_on_resume(inspector, image_folder, tmp_path):
    vitviz.survey(
        image_folder,
        inspector,
        ["distance"],
        out=tmp_path / "out",
        part=2,
        progress=lambda done, of: done < 3,
    )
    file = image_folder / "5.png"
    file.write_bytes(file.read_bytes() + b"more")
    with pytest.raises(VitvizError, match="source_sha256 was .*another folder"):
        vitviz.survey(image_folder, inspector, ["distance"], out=tmp_path / "out", part=2)


def test_parts_without_settings_raise(inspector, image_folder, tmp_path):
    vitviz.survey(image_folder, inspector, ["distance"], out=tmp_path / "out", part=2)
    (tmp_path / "out" / "survey.json").unlink()
    with pytest.raises(VitvizError, match="parts of a survey without its settings"):
        vitviz.survey(image_folder, inspector, ["distance"], out=tmp_path / "out", part=2)
