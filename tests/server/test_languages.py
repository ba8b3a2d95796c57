"""Language negotiation, and translations for the browser and for Gradio."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest

from tests.translations import LANGUAGES, kept, said_in
from vitviz.server import i18n
from vitviz.server.api import modules


@pytest.mark.parametrize("tag", LANGUAGES)
def test_language_module_contains_texts_of_all_packages(tag):
    module = modules.module_source(f"server/i18n/{tag}.js")
    texts = i18n.translations(tag)
    assert json.loads(module.removeprefix("export default ").removesuffix(";\n")) == texts
    assert all(set(kept(room, tag)) <= set(texts) for room in said_in())
    assert modules.module_source("server/i18n/en.js") == "export default {};\n"


def test_language_is_chosen_by_query_then_header_then_english():
    def request(accept: str = "", **query: str):
        return SimpleNamespace(query_params=query, headers={"accept-language": accept})

    assert [
        i18n.language_of(request(accept))
        for accept in ("zh-TW,zh;q=0.9", "de,ko-KR;q=0.8,en;q=0.5", "fr", "")
    ] == ["zh-CN", "ko", "en", "en"]
    assert (
        i18n.language_of(request("zh-CN", lang="ko")) == "ko"
        and i18n.language_of(request("zh-CN", lang="<script>")) == "zh-CN"
    )
    assert i18n.language_of(None) == "en"


def test_gradio_receives_translations_in_every_language():
    key = i18n.translatable("**Source.** {source}.", source="Section 4.5 and figure 7 (left)").key
    translations = i18n.gradio_translations().translations_dict
    assert re.fullmatch("t[0-9a-f]+", key)  # Gradio stops reading a key at its first brace
    assert [translations[tag][key] for tag in i18n.NAMES] == [
        "**Source.** Section 4.5 and figure 7 (left).",
        "**出处：** 第 4.5 节与图 7（左）。",
        "**출처:** 4.5절과 그림 7(왼쪽).",
    ]
