"""Which language a visitor gets, and how its words reach the browser and Gradio."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from tests.translations import LANGUAGES, kept, said_in
from vitviz.server import i18n
from vitviz.server.api import modules


@pytest.mark.parametrize("tag", LANGUAGES)
def test_the_browsers_module_of_a_language_holds_all_rooms(tag):
    module = modules.module_source(f"server/i18n/{tag}.js")
    texts = i18n.translations(tag)
    assert json.loads(module.removeprefix("export default ").removesuffix(";\n")) == texts
    assert all(set(kept(room, tag)) <= set(texts) for room in said_in())
    assert modules.module_source("server/i18n/en.js") == "export default {};\n"


def test_the_address_decides_then_the_browser_then_english():
    def asking(accept: str = "", **query: str):
        return SimpleNamespace(query_params=query, headers={"accept-language": accept})

    assert [
        i18n.language_of(asking(accept)) for accept in ("zh-TW,zh;q=0.9", "de,ko-KR;q=0.8,en;q=0.5", "fr", "")
    ] == ["zh-CN", "ko", "en", "en"]
    assert (
        i18n.language_of(asking("zh-CN", lang="ko")) == "ko"
        and i18n.language_of(asking("zh-CN", lang="<script>")) == "zh-CN"
    )
    assert i18n.language_of(None) == "en"


def test_said_texts_reach_gradio_in_every_language():
    key = i18n.translatable("**Source.** {source}.", source="Section 4.5 and figure 7 (left)").key
    said = i18n.gradio_translations().translations_dict
    assert re.fullmatch("t[0-9a-f]+", key)  # Gradio stops reading a key at its first brace
    assert [said[tag][key] for tag in i18n.NAMES] == [
        "**Source.** Section 4.5 and figure 7 (left).",
        "**出处：** 第 4.5 节与图 7（左）。",
        "**출처:** 4.5절과 그림 7(왼쪽).",
    ]
