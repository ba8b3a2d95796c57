"""Translations carry the values and formulas of their English texts and are in their language.

`python -m tests.translations` lists texts without translation; they appear in English.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

import vitviz
from tests.translations import (
    CONFIG,
    LANGUAGES,
    NOTE,
    POOLS,
    POSITIONS,
    PREFIXES,
    REST,
    braces,
    kept,
    misplaced,
    said_in,
    tour_texts,
)
from vitviz.server import i18n
from vitviz.traces.localized_text import LocalizedText

HOME = Path(vitviz.__file__).parent


@pytest.mark.sweep
def test_tour_texts_of_sampled_models_cover_all_models():
    assert tour_texts(itertools.product(PREFIXES, POSITIONS, POOLS, *REST)) == tour_texts()


@pytest.mark.parametrize("tag", LANGUAGES)
def test_every_class_has_a_distinct_translation(tag):
    names = kept("server/i18n/classes", tag)
    assert {*names, "espresso"} == set(
        CONFIG["label_descriptions"].values()
    )  # "espresso" is translated with the page
    assert len({*names.values(), i18n.translations(tag)["espresso"]}) == len(names) + 1


@pytest.mark.parametrize("tag", LANGUAGES)
def test_every_translation_is_used_and_in_the_right_folder(tag):
    _, unused = misplaced(tag)
    assert {folder: texts for folder, texts in unused.items() if texts} == {}, (
        "python -m tests.translations --write"
    )


@pytest.mark.parametrize("tag", LANGUAGES)
def test_no_text_is_translated_twice(tag):
    files = [set(kept(room, tag)) for room in (*said_in(), "server/i18n/classes")]
    assert sum(map(len, files)) == len(i18n.translations(tag))


def formulas(text: str) -> list[str]:
    return sorted(re.findall(r"\$[^$]+\$", text))


@pytest.mark.parametrize("tag", LANGUAGES)
def test_translations_keep_values_formulas_and_markup(tag):
    for english, translation in i18n.translations(tag).items():
        assert (
            translation.strip()
            and braces(translation) == braces(english)
            and formulas(translation) == formulas(english)
        ), english
        assert ("E_pos" in translation) == ("E_pos" in english) and re.findall(
            r"<[^>]+>", translation
        ) == re.findall(r"<[^>]+>", english), english
        assert translation.count("*") == english.count("*") and translation.startswith(
            "# "
        ) == english.startswith("# "), english


@pytest.mark.parametrize("tag, script", [("zh-CN", "[\u4e00-\u9fff]"), ("ko", "[\uac00-\ud7a3]")])
def test_translations_are_in_their_language(tag, script):
    untranslated = {
        english for english, said in i18n.translations(tag).items() if not re.search(script, said)
    }
    names = {"Cividis", "Inferno", "Magma", "Viridis", "exp", "logit", "Logit"}
    shapes = {"MLP: {width} → {mlp} → {width}", "A: {tokens} × {tokens} in each head"}
    assert untranslated <= {*names, *shapes, "{what}\n\n{how}", "{value} of {count}"}


@pytest.mark.parametrize("tag", LANGUAGES)
def test_sentence_with_values_is_translated(tag):
    how = "it has no position information besides what its stem provides"
    pattern = (
        "{checkpoint} has no learned table of absolute position embeddings: {how}. So there is no similarity"
        " of position embeddings to draw."
    )
    translation = i18n.translate(LocalizedText(pattern, checkpoint="a.b", how=how), tag)
    assert (
        "a.b" in translation
        and i18n.translations(tag)[how] in translation
        and not re.search("[A-Za-z]{5}", translation.replace("stem", ""))
    )
    assert i18n.translate(NOTE, tag) != NOTE and i18n.translate("nothing of ours", tag) == "nothing of ours"
    assert i18n.translate(LocalizedText("register {number}", number=3), tag).endswith(" 3")


def test_page_and_docs_share_the_glossary():
    script = (HOME / "server/page/glossary.js").read_text(encoding="utf-8").partition("];")[0]
    script = re.sub(r"' \+\s+'", "", script)
    entries = re.findall(r"\bt\(\s*'([^']+)'", script)
    table = (HOME.parent / "docs/glossary.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert entries == [f"{word}: {text}".replace("`", "").replace("'", "’") for word, text, *_ in rows]
    for column, tag in ((2, "zh-CN"), (3, "ko")):
        words = json.loads((HOME / f"server/i18n/{tag}.json").read_text(encoding="utf-8"))
        assert [words[one] for one in entries] == [row[column] for row in rows]
