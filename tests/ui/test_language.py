"""Every text that a visitor can read has its translations, and they carry the same values and formulas."""

from __future__ import annotations

import ast
import itertools
import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import vitviz
from vitviz.figures import canvas, charts
from vitviz.panels import PANELS
from vitviz.panels.base import Choice
from vitviz.panels.rollout import AUTO
from vitviz.panels.tour_facts import Facts
from vitviz.panels.tour_steps import steps
from vitviz.ui import language
from vitviz.ui.distance import spoken
from vitviz.ui.handlers import PAIRS
from vitviz.ui.routes import GONE

HOME = Path(vitviz.__file__).parent
LANGUAGES = ["zh-CN", "ko"]
PREFIXES = [(), ("class",), ("class", "distillation"), ("class", "register 1", "register 2")]
POSITIONS = ["learned", "rotary", "relative", "none", "learned + rotary", "learned + relative", "rotary + relative"]


def tour_texts() -> set[str]:
    """What the tour can say of any model."""
    found = set()
    flags = itertools.product(PREFIXES, POSITIONS, ["class", "average", "attention", "other"], [0, 10], [196, 197], *[[False, True]] * 4)
    for prefix, positions, pool, classes, rows, named, stem, plain, extra in flags:
        facts = Facts(grid=(14, 14), patch=(16, 16), prefix=prefix, width=192, layers=12, heads=3, dim=64, mlp=768, classes=classes, named=named,
                      pool=pool, positions=positions, position_rows=rows, stem=stem, plain_blocks=plain, layer_scale=extra, norm_before_blocks=extra)  # fmt: skip
        for step in steps(facts):
            values = [value for value in step.values.values() if isinstance(value, str) and re.search("[a-z]", value)]
            found |= {step.title, *step.said, step.attempt, *step.shapes, *values}
    return found


def panel_texts() -> set[str]:
    found = set(AUTO.values())
    for panel in PANELS:
        found |= {panel.title, *vars(panel.explanation).values()}
        for control in panel.controls:
            found |= {control.label, control.info}
            if isinstance(control, Choice):
                found |= {text for _, text in control.options}
    for name in ("filters", "positions"):  # the sentences that stand alone in their code
        source = ast.parse((HOME / "panels" / f"{name}.py").read_text(encoding="utf-8"))
        strings = {node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        found |= {text for text in strings if text.startswith(("This is a hybrid", "it turns", "it adds", "it has no"))}
    return found - {""}


def page_texts() -> set[str]:
    """The literals handed to say, translated or told in Python, and to t in the page's scripts."""
    found = set()
    for file in (HOME / "ui").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("say", "translated", "told")
            if called and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
    found.add(GONE)  # the page's own sentences after a restart, and when a picture was put away
    found |= {node.value for node in ast.walk(ast.parse((HOME / "ui/studio.py").read_text(encoding="utf-8"))) if isinstance(node, ast.Constant) and str(node.value).startswith("The server has")}
    for file in (HOME / "ui").glob("*.js"):
        found |= {text.replace("\\'", "'") for text in re.findall(r"\b(?:t|file)\('((?:[^'\\]|\\.)+)'", file.read_text(encoding="utf-8"))}
    return found


@cache
def wanted() -> frozenset[str]:
    """Every English text on the page."""
    names = {"class", "distillation", *(text for text, _ in PAIRS)}  # of prefix tokens, and of pairs of checkpoints
    found = {*tour_texts(), *panel_texts(), *page_texts(), *canvas.texts(), *language.PATTERNS, *chart_texts(), *names}
    words = {text for text in found if re.search("[A-Za-z]{2}", re.sub(r"\{\w+\}", "", text))}  # q, k and sums read alike
    return frozenset(words | {"{what} {how}"})  # sentences are joined with a space or without


def chart_texts() -> set[str]:
    """The words of the chart in both of its forms, with and without prefix tokens; patterns aside."""
    numbers, found = np.array([[1.0, 2.0], [3.0, 4.0]]), set()
    for mass, lines in itertools.product((None, numbers), (False, True)):
        figure = charts.distance_by_depth(numbers, 2.5, mass, sorted_heads=lines)
        found |= {figure.layout.xaxis.title.text, figure.layout.yaxis.title.text}
        found |= {text for trace in figure.data for text in (trace.name, trace.hovertemplate)}
    return {text for text in found - {None} if not re.match(r"(layer \d|uniform attention)", text)}


def braces(text: str) -> list[str]:
    return sorted(re.findall(r"%?\{[^{}]*\}", re.sub(r"\$[^$]+\$", "", text)))


def formulas(text: str) -> list[str]:
    return sorted(re.findall(r"\$[^$]+\$", text))


@pytest.mark.parametrize("tag", LANGUAGES)
def test_every_text_is_translated_and_no_translation_is_left_over(tag):
    known, asked = set(language.texts(tag)), wanted()
    assert sorted(asked - known) == [] and sorted(known - asked - set(canvas.texts())) == []


@pytest.mark.parametrize("tag", LANGUAGES)
def test_values_formulas_and_signs_survive(tag):
    for english, said in language.texts(tag).items():
        assert said.strip() and braces(said) == braces(english) and formulas(said) == formulas(english), english
        assert ("E_pos" in said) == ("E_pos" in english) and re.findall(r"<[^>]+>", said) == re.findall(r"<[^>]+>", english), english
        assert said.count("*") == english.count("*") and said.startswith("# ") == english.startswith("# "), english


@pytest.mark.parametrize("tag, script", [("zh-CN", "[\u4e00-\u9fff]"), ("ko", "[\uac00-\ud7a3]")])
def test_translations_are_in_their_language(tag, script):
    alike = {english for english, said in language.texts(tag).items() if not re.search(script, said)}
    assert alike <= {"Cividis", "Inferno", "Magma", "Viridis", "exp", "{what} {how}", "logit", "Logit", "MLP: {width} → {mlp} → {width}", "{value} of {count}",
                     "A: {tokens} × {tokens} in each head"}  # fmt: skip


def test_the_sentences_of_panels_and_of_the_checkpoint_are_recognised():
    note = json.loads((HOME.parent / "weights" / "vitviz-tiny" / "config.json").read_text(encoding="utf-8"))["vitviz"]["note"]
    kind = "it has no position information besides what its stem provides"
    source = (HOME / "panels" / "positions.py").read_text(encoding="utf-8") + (HOME / "panels" / "filters.py").read_text(encoding="utf-8")
    for words in (" has no learned table of absolute position embeddings: ", ". So there is no similarity of position embeddings to draw."):
        assert words in source
    assert " does not project pixels linearly and has no first convolution over pixels either, so there are no filters that could be shown" in source
    said = language.translated(f"a.b has no learned table of absolute position embeddings: {kind}. So there is no similarity of position embeddings to draw.", "zh-CN")
    assert said.startswith("a.b 没有学到的") and "除了 stem 提供的以外" in said and not re.search("[A-Za-z]{5}", said)
    for tag in LANGUAGES:
        assert language.translated(note, tag) != note
        assert language.translated("register 3", tag).endswith(" 3") and language.translated("nothing of ours", tag) == "nothing of ours"


@pytest.mark.parametrize("tag", LANGUAGES)
@pytest.mark.parametrize("lines", [False, True])
def test_the_chart_speaks_and_its_numbers_stay(tag, lines):
    numbers = np.array([[1.0, 2.0], [3.0, 4.0]])
    figure, plain = (charts.distance_by_depth(numbers, 2.5, numbers, subtitle="<b>tiny, one picture", sorted_heads=lines) for _ in range(2))
    spoken(figure, tag)
    titles = [figure.layout.title.text, figure.layout.xaxis.title.text, figure.layout.yaxis.title.text]
    words = [*titles, *(trace.name for trace in figure.data), *(note.text for note in figure.layout.annotations)]
    assert all(re.search("[\u4e00-\u9fff\uac00-\ud7a3]", text) for text in words), words
    assert titles[0].startswith("&lt;b&gt;tiny")
    assert all((new.y == old.y).all() if hasattr(new.y, "all") else new.y == old.y for new, old in zip(figure.data, plain.data, strict=True))


def test_the_address_decides_then_the_browser_then_english():
    def asking(accept: str = "", **query: str):
        return SimpleNamespace(query_params=query, headers={"accept-language": accept})

    assert [language.wanted(asking(accept)) for accept in ("zh-TW,zh;q=0.9", "de,ko-KR;q=0.8,en;q=0.5", "fr", "")] == ["zh-CN", "ko", "en", "en"]
    assert language.wanted(asking("zh-CN", lang="ko")) == "ko" and language.wanted(asking("zh-CN", lang="<script>")) == "zh-CN"
    assert language.wanted(None) == "en"


def test_head_cannot_be_left_by_a_text():
    head = language.head()
    assert re.findall("<[a-z/!]", head) == ["<s", "</"] and "注意力" in head and "어텐션" in head and "KNOWN" not in head


def test_said_texts_reach_gradio_in_every_language():
    key = language.say("**Source.** {source}.", source="Section 4.5 and figure 7 (left)").key
    said = language.i18n().translations_dict
    assert re.fullmatch("t[0-9a-f]+", key)  # Gradio stops reading a key at its first brace
    assert [said[tag][key] for tag in language.NAMES] == ["**Source.** Section 4.5 and figure 7 (left).", "**出处：** 第 4.5 节与图 7（左）。", "**출처:** 4.5절과 그림 7(왼쪽)."]
