"""Every text that a visitor can read has its translations, and they carry the same values and formulas.

Words lie where they are said: those of one view in its folder, those of the page in server/i18n, those of the
canvas in canvas; what two of these say lies in one of the last two.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from functools import cache
from pathlib import Path

import pytest

import vitviz
from vitviz.server import i18n
from vitviz.server.page.page_renderer import PAIRS
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import ORDER, VIEWS
from vitviz.views.tour.facts import Facts
from vitviz.views.tour.steps import steps

HOME = Path(vitviz.__file__).parent
CONFIG = json.loads((HOME.parent / "weights/vitviz-tiny/config.json").read_text(encoding="utf-8"))
NOTE = CONFIG["vitviz"]["note"]
LANGUAGES = ["zh-CN", "ko"]
PREFIXES = [(), ("class",), ("class", "distillation"), ("class", "register 1", "register 2")]
POSITIONS = [
    "learned",
    "rotary",
    "relative",
    "none",
    "learned + rotary",
    "learned + relative",
    "rotary + relative",
]


POOLS = ["class", "average", "attention", "other"]
REST = ([0, 10], [196, 197], *[[False, True]] * 4)  # classes, rows of the table, and what a model has or not
SOME_MODELS = [
    *itertools.product(PREFIXES, POSITIONS, POOLS, *[part[-1:] for part in REST]),
    *itertools.product(PREFIXES[:2], POSITIONS[:1], POOLS, *REST),
]


def tour_texts(models=SOME_MODELS) -> set[str]:
    """What the tour can say of any model."""
    found = set()
    for prefix, positions, pool, classes, rows, named, stem, plain, extra in models:
        facts = Facts(grid=Grid(14, 14, (16, 16), prefix), width=192, layers=12, heads=3, dim=64,
                      mlp=768, classes=classes, named=named, pool=pool, positions=positions,
                      position_rows=rows, stem=stem, plain_blocks=plain,
                      layer_scale=extra, norm_before_blocks=extra)  # fmt: skip
        for step in steps(facts):
            values = [
                value
                for value in step.values.values()
                if isinstance(value, str) and re.search("[a-z]", value)
            ]
            found |= {step.title, *step.said, step.attempt, *step.shapes, *values}
    return found


def written_in(folder: Path, pattern: str = "*.js") -> set[str]:
    """The literals handed to t in scripts, and the titles of figures."""
    found = set()
    for file in folder.glob(pattern):
        source = file.read_text(encoding="utf-8")
        source = re.sub(r"' \+\s+'", "", source)  # a long literal stands in several lines
        literal = r"'((?:[^'\\]|\\.)+)'"
        found |= set(re.findall(rf"\bt\(\s*{literal}", source))
        for either in re.findall(
            rf"\bt\([^'()]*(?:\?|\|\||===)\s+{literal}(?:\s+: {literal})?", source
        ):  # one or the other
            found |= {text for text in either if text}
        found |= set(re.findall(r"^  title: '((?:[^'\\]|\\.)+)',$", source, re.M))
    return {text.replace("\\'", "'") for text in found}


def literals(node: ast.expr, given: dict[str, ast.expr]) -> list[str]:
    """A text as it is written: here, one of two, in a constant of the module or one of its table."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return literals(node.body, given) + literals(node.orelse, given)
    if isinstance(node, ast.Name):
        return literals(given[node.id], {}) if node.id in given else []
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        table = given.get(node.value.id)
        return [text for one in getattr(table, "values", ()) for text in literals(one, {})]
    return []


SAYING = {"say", "translated", "mark", "LocalizedText", "travelling"}


def python_texts(folder: Path, pattern: str = "*.py", sentences: bool = True) -> set[str]:
    """The literals and the module's constants that are handed to what says something; all constants that are
    sentences.
    """
    found = set()
    for file in folder.rglob(pattern):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        given = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        constants = {
            name: value.value
            for name, value in given.items()
            if isinstance(value, ast.Constant) and isinstance(value.value, str)
        }
        found |= {
            text for text in constants.values() if sentences and re.fullmatch("[A-Z{][^\n]* [^\n]*[.]", text)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in SAYING
                and node.args
            ):
                found |= set(literals(node.args[0], given))
    return found


@pytest.mark.sweep
def test_what_the_tour_says_of_some_models_is_all_that_it_says_of_any():
    assert tour_texts(itertools.product(PREFIXES, POSITIONS, POOLS, *REST)) == tour_texts()


@cache
def said_in() -> dict[str, set[str]]:
    """Room -> the English texts that are said there."""
    rooms = {f"views/{view.slug}": view.texts() | written_in(HOME / "views" / view.slug) for view in VIEWS}
    for view in VIEWS:  # what their figures for print say
        rooms[f"views/{view.slug}"] |= python_texts(HOME / "views" / view.slug, sentences=False)
    rooms["views/tour"] |= tour_texts()
    rooms["frontend"] = written_in(HOME / "frontend") | {"class", "distillation"}  # names of prefix tokens
    for said_of_all in ("base.py", "printing.py", "shared.py"):
        rooms["frontend"] |= python_texts(HOME / "views", said_of_all)
    rooms["frontend"] |= python_texts(HOME / "charts", "chart.py")
    rooms["server/i18n"] = (
        python_texts(HOME / "server")
        | python_texts(HOME / "engine", sentences=False)
        | python_texts(HOME / "export")
        | python_texts(HOME / "analyses", sentences=False)
        | python_texts(HOME / "surveys", sentences=False)
        | {"{checkpoint}: not applicable, because {reason}."}
        | written_in(HOME / "server/page")
        | {NOTE, "none", "{what}\n\n{how}"}
    )
    rooms["server/i18n"] |= {text for text, _ in PAIRS} | set(ORDER)

    def needs(text: str) -> bool:  # q and k read alike
        return text == "{what}\n\n{how}" or bool(re.search("[A-Za-z]{2}", re.sub(r"\{\w+\}", "", text)))

    return {room: {text for text in texts if needs(text)} for room, texts in rooms.items()}


def kept(room: str, tag: str) -> dict[str, str]:
    file = HOME / (f"{room}.{tag}.json" if room.endswith("classes") else f"{room}/{tag}.json")
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("tag", LANGUAGES)
def test_each_class_of_the_shipped_checkpoint_has_a_name_of_its_own(tag):
    names = kept("server/i18n/classes", tag)
    assert {*names, "espresso"} == set(CONFIG["label_descriptions"].values())  # one is said elsewhere, too
    assert len({*names.values(), i18n.texts(tag)["espresso"]}) == len(names) + 1


@pytest.mark.parametrize("tag", LANGUAGES)
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_a_views_folder_has_the_words_that_it_alone_says_and_no_others(tag, view):
    rooms, own = said_in(), f"views/{view.slug}"
    elsewhere = set().union(*(texts for room, texts in rooms.items() if room != own))
    assert sorted(rooms[own] - elsewhere - set(kept(own, tag))) == [], "not translated"
    assert sorted(set(kept(own, tag)) - (rooms[own] - elsewhere)) == [], "said elsewhere too, or nowhere"


@pytest.mark.parametrize("tag", LANGUAGES)
def test_what_several_rooms_say_is_translated_once_and_nothing_is_left_over(tag):
    rooms = said_in()
    views = [texts for room, texts in rooms.items() if room.startswith("views/")]
    several = {text for one, other in itertools.combinations(rooms.values(), 2) for text in one & other}
    common = set(kept("frontend", tag)) | set(kept("server/i18n", tag))
    assert sorted((rooms["frontend"] | rooms["server/i18n"] | several) - common) == [], "not translated"
    assert sorted(common - rooms["frontend"] - rooms["server/i18n"] - several) == [], (
        "said by one view alone, or by nobody"
    )
    assert set(kept("frontend", tag)) & set(kept("server/i18n", tag)) == set()
    assert (
        set(kept("frontend", tag)) & (rooms["server/i18n"] - rooms["frontend"] - set().union(*views)) == set()
    ), "said by the page alone"
    assert (
        set(kept("server/i18n", tag)) & (rooms["frontend"] - rooms["server/i18n"] - set().union(*views))
        == set()
    ), "said by the canvas alone"


@pytest.mark.parametrize("tag", LANGUAGES)
def test_no_text_is_translated_in_two_places(tag):
    files = [set(kept(room, tag)) for room in (*said_in(), "server/i18n/classes")]
    assert sum(map(len, files)) == len(i18n.texts(tag))


def braces(text: str) -> list[str]:
    return sorted(re.findall(r"\{[^{}]*\}", re.sub(r"\$[^$]+\$", "", text)))


def formulas(text: str) -> list[str]:
    return sorted(re.findall(r"\$[^$]+\$", text))


@pytest.mark.parametrize("tag", LANGUAGES)
def test_values_formulas_and_signs_survive(tag):
    for english, said in i18n.texts(tag).items():
        assert said.strip() and braces(said) == braces(english) and formulas(said) == formulas(english), (
            english
        )
        assert ("E_pos" in said) == ("E_pos" in english) and re.findall(r"<[^>]+>", said) == re.findall(
            r"<[^>]+>", english
        ), english
        assert said.count("*") == english.count("*") and said.startswith("# ") == english.startswith("# "), (
            english
        )


@pytest.mark.parametrize("tag, script", [("zh-CN", "[\u4e00-\u9fff]"), ("ko", "[\uac00-\ud7a3]")])
def test_translations_are_in_their_language(tag, script):
    alike = {english for english, said in i18n.texts(tag).items() if not re.search(script, said)}
    names = {"Cividis", "Inferno", "Magma", "Viridis", "exp", "logit", "Logit"}
    shapes = {"MLP: {width} → {mlp} → {width}", "A: {tokens} × {tokens} in each head"}
    assert alike <= {*names, *shapes, "{what}\n\n{how}", "{value} of {count}"}


@pytest.mark.parametrize("tag", LANGUAGES)
def test_a_sentence_with_values_is_said_in_another_language(tag):
    how = "it has no position information besides what its stem provides"
    pattern = (
        "{checkpoint} has no learned table of absolute position embeddings: {how}. So there is no similarity"
        " of position embeddings to draw."
    )
    said = i18n.translated(LocalizedText(pattern, checkpoint="a.b", how=how), tag)
    assert (
        "a.b" in said
        and i18n.texts(tag)[how] in said
        and not re.search("[A-Za-z]{5}", said.replace("stem", ""))
    )
    assert i18n.translated(NOTE, tag) != NOTE and i18n.translated("nothing of ours", tag) == "nothing of ours"
    assert i18n.translated(LocalizedText("register {number}", number=3), tag).endswith(" 3")
