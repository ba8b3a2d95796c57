"""Error messages quote input through one truncating helper; lone surrogates are rejected on entry."""

import ast
import io
import json
import zipfile
from pathlib import Path

import pytest

import vitviz
from tests.helpers import SURROGATE, npz_bytes, safetensors_bytes
from tests.security.client import picture
from vitviz import cli
from vitviz.engine.formats.folder import read_json
from vitviz.errors import VitvizError, quoted
from vitviz.server.api import lessons
from vitviz.server.api.endpoints import PUBLIC, Endpoints, _as_gradio_error, endpoint, views_with_endpoints
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.server.services.checkpoints import parse_classes
from vitviz.surveys.labels import Boxes
from vitviz.surveys.parts import SurveyFolder
from vitviz.traces.text_classes import with_text
from vitviz.traces.unicode import parse_json

ROOT = Path(vitviz.__file__).parent
ERRORS = {name for name, one in vars(vitviz.errors).items() if isinstance(one, type)} | {"NoLesson", "NoZip"}


def unbounded(tree: ast.AST) -> list[int]:
    """Return the lines on which an error of vitviz quotes a value with !r."""
    raised = [node for node in ast.walk(tree) if isinstance(node, ast.Call)
              and getattr(node.func, "id", getattr(node.func, "attr", "")) in ERRORS]  # fmt: skip
    return [
        part.lineno
        for call in raised
        for part in ast.walk(call)
        if isinstance(part, ast.FormattedValue) and part.conversion == ord("r")
    ]


def test_every_refusal_quotes_by_the_helper():
    found = {
        str(path.relative_to(ROOT)): lines
        for path in ROOT.rglob("*.py")
        if (lines := unbounded(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}
    assert unbounded(ast.parse('raise VitvizError(f"Given {name!r}.")')) == [1]


@pytest.mark.parametrize("given", ["x" * 999, ["x" * 999] * 3, {"x" * 999: 1}, b"x" * 999, 10**999])
def test_at_most_200_characters_are_quoted(given):
    assert len(quoted(given)) == 200 and quoted(given).endswith("…")


@pytest.fixture(scope="module")
def endpoints():
    return Endpoints(AnalysisService(ServiceSettings(device="cpu")))


def test_no_endpoint_repeats_more_than_200_characters(endpoints):
    derived = {view.slug: endpoint(view, endpoints) for view in views_with_endpoints()}
    for name, ask in {**{name: getattr(endpoints, name) for name in PUBLIC}, **derived}.items():
        parameters = ask.__signature__.parameters if name in derived else None
        names = parameters or ask.__func__.__code__.co_varnames[1 : ask.__func__.__code__.co_argcount]
        for parameter in names:
            usual = {"image": "coffee"} if "image" in names else {}
            usual |= {"without": ""} if name == "without" else {}
            for wrong in (
                "x" * 3_000,
                "heads=" + "9" * 3_000,
                "a/" + "x" * 3_000,
                "vitviz-tiny@" + "9" * 3_000,
            ):
                try:
                    next(iter(_as_gradio_error(ask)(**{**usual, parameter: wrong})))
                except Exception as error:
                    assert not any(one * 201 in str(error) for one in "x9"), (
                        name,
                        parameter,
                        str(error)[:300],
                    )


def zipped(**lesson) -> bytes:
    file = io.BytesIO()
    seen = {"checkpoint": "vitviz-tiny", "sample": "coffee", "settings": {}, **lesson}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("settings.json", json.dumps({"lesson": seen}))
        archive.writestr("upload.jpg", picture())
    return file.getvalue()


def written(folder: Path, content: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def named(folder: Path, name: str) -> Path:
    """Return an empty file whose name need not be UTF-8."""
    path = folder / name
    try:
        path.touch()
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system accepts UTF-8 alone")
    return path


ENTRIES = {
    "labels": lambda folder: vitviz.Classes([SURROGATE], [[1.0, 2.0]]),
    "the model of labels": lambda folder: vitviz.Classes(["cat"], [[1.0, 2.0]], model=SURROGATE),
    "labels of .npz": lambda folder: parse_classes(npz_bytes(["cat", f"a {SURROGATE}"]), "mine.npz"),
    "labels of .safetensors": lambda folder: parse_classes(
        safetensors_bytes(["cat", SURROGATE]), "mine.safetensors"
    ),
    "a sentence": lambda folder: with_text("my-clip", ["a cat", SURROGATE]),
    "a template": lambda folder: with_text("my-clip", ["a cat"], [f"{SURROGATE} {{}}"]),
    "a sentence in Python": lambda folder: vitviz.text(vitviz.load("vitviz-tiny", device="cpu"), [SURROGATE]),
    "labels in Python": lambda folder: vitviz.load(
        "vitviz-tiny", device="cpu", labels=[SURROGATE] * len(vitviz.load("vitviz-tiny", device="cpu").labels)
    ),
    "id2label": lambda folder: read_json(written(folder, {"id2label": {"0": SURROGATE}})),
    "a note": lambda folder: read_json(written(folder, {"pretrained_cfg": {"description": SURROGATE}})),
    "boxes": lambda folder: Boxes.load(written(folder, {SURROGATE: [[0, 0, 1, 1]]})),
    "a lesson's checkpoint": lambda folder: lessons.read_lesson(
        zipped(checkpoint=f"vitviz-tiny?text={SURROGATE}")
    ),
    "a lesson's other picture": lambda folder: lessons.read_lesson(zipped(without=f"at=1 other={SURROGATE}")),
    "a lesson's setting": lambda folder: lessons.read_lesson(
        zipped(settings={"rollout": {"fusion": SURROGATE}})
    ),
    "a checkpoint's file": lambda folder: vitviz.load(named(folder, "m\udcff.safetensors"), device="cpu"),
    "a survey's folder": lambda folder: SurveyFolder(folder / "out\udcff", {}),
    "--out": lambda folder: cli._require_place(folder / "out\udcff.svg"),
    "another picture": lambda folder: vitviz.Ablation(at=0, other=SURROGATE),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_lone_surrogate_is_rejected_on_entry(entry, tmp_path):
    with pytest.raises(VitvizError) as refusal:
        ENTRIES[entry](tmp_path)
    sentence = str(refusal.value).encode().decode()  # the message itself can be encoded
    assert sentence.endswith(".") and len(sentence) < 600


@pytest.mark.parametrize(
    "data",
    [
        r'{"a": "\ud83d"}',
        rb'["\uD83D"]',
        b'["\xed\xa0\xbd"]',
        f'["{SURROGATE}"]',
        rb'{"\uDe00": 1}',
        r'["\ude00\ud83d"]',
    ],
)
def test_lone_surrogate_in_json_is_rejected(data):
    with pytest.raises(ValueError, match="surrogates not allowed|invalid continuation byte"):
        parse_json(data)


def test_json_of_valid_characters_is_parsed():
    whole = '{"\U0001f600": ["猫", 1, null]}'
    for text in (whole, json.dumps(json.loads(whole))):
        for data in (text, *(text.encode(encoding) for encoding in ("utf-8", "utf-8-sig", "utf-16"))):
            assert parse_json(data) == json.loads(whole)
    assert parse_json(r'["\\ud83d"]') == [r"\ud83d"]


def test_image_name_that_is_not_utf8_is_escaped(tmp_path):
    path = named(tmp_path, "caf\udce9.png")
    path.write_bytes(picture())
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    saved = vitviz.figure("rollout", inspector, inspector.trace(path), picture=path).save(tmp_path / "a.svg")
    assert r"caf\udce9" in saved.with_suffix(".txt").read_text(encoding="utf-8")


def test_a_whole_character_is_none(tmp_path):
    classes = parse_classes(safetensors_bytes(["猫", "\U0001f600"]), "mine.safetensors")
    assert classes.labels == ("猫", "\U0001f600") and parse_classes(npz_bytes(["猫"]), "mine.npz").labels == (
        "猫",
    )
    assert with_text("my-clip", ["\U0001f600"]) == "my-clip?text=\U0001f600"
    assert lessons.read_lesson(zipped()).seen.checkpoint == "vitviz-tiny"
