import json
import re

import pytest

from vitviz.panels import PANELS
from vitviz.ui import links

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "${alert(1)}",
    "{{value}}",
    "1e9",
    "-1",
    "..",
    "../../etc/passwd",
    "nan",
    "inf",
    "",
    "\x00",
    "9" * 5000,
    "١",
    "true",
]


def test_a_link_says_checkpoint_sample_tab_and_the_tabs_settings():
    asked = links.read(
        {
            "checkpoint": "vitviz-tiny",
            "sample": "rocket",
            "tab": "rollout",
            "fusion": "min",
            "discard": "0.5",
            "layers": "2-3",
            "query": "7",
        }
    )
    assert asked == links.Link(
        "vitviz-tiny", "rocket", "rollout", settings={"fusion": "min", "discard": "0.5", "layers": "2-3", "query": "7"}
    )
    assert asked.of("rollout") == asked.settings and asked.of("distance") == {}


def test_what_nobody_knows_is_passed_over():
    assert links.read({}) == links.Link()
    assert links.read({"tab": "nothing", "fusion": "max", "sample": "mine", "utm_source": "x"}) == links.Link()
    assert links.read({"tab": "patches", "fusion": "max"}).settings == {}


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_do_nothing(value):
    names = {name for settings in links.known().values() for name in settings}
    for panel in PANELS:
        asked = links.read({"tab": panel.slug, "sample": value, **dict.fromkeys(names, value)})
        assert asked.sample is None
        assert all(value == "-1" or not re.search(r"[<>${}./\x00]", text) for text in asked.settings.values()), asked
        assert panel.settings(asked.settings), "what passes is what the view itself takes"
    assert links.read({"tab": value}).tab is None
    if value == "9" * 5000:
        assert links.read({"checkpoint": value}).checkpoint is None


def test_a_hostile_number_reaches_no_chart():
    assert links.read({"tab": "rollout", "residual": "1e9", "discard": "-1", "opacity": "nan", "layers": "0-99999"}).settings == {}


def test_no_setting_has_a_name_that_the_link_needs():
    for slug, settings in links.known().items():
        assert not set(settings) & {*links.RESERVED, "lang"}, slug


def test_the_script_knows_every_setting_and_cannot_be_ended():
    script = links.head()
    assert script.count("</") == 1 and "<" not in links._embedded({"a": "</script><img>"})
    table = json.loads(re.search(r"const known = (.*);\n", script)[1])
    assert table["rollout"]["residual"] == {"minimum": 0, "maximum": 1, "default": 0.5}
    assert {slug: set(table[slug]) for slug in table} == {
        panel.slug: {one.name for one in (*panel.controls, *panel.parameters)} for panel in PANELS
    }


def test_every_setting_at_another_value_than_its_default_can_stand_in_a_link():
    for slug, settings in links.known().items():
        for name, fits in settings.items():
            others = [*fits.get("options", []), str(fits.get("maximum", ""))] if "pattern" not in fits else ["1-2", "3.4", "3"]
            other = next(value for value in others if "pattern" not in fits or re.fullmatch(fits["pattern"], value))
            assert links.read({"tab": slug, name: other}).settings == {name: other}, f"no link can say {slug}.{name}={other!r}"


@pytest.mark.parametrize(("host", "base"), [("a-b.hf.space", "https://a-b.hf.space/"), ("", ""), ('x"><script>', ""), ("a b", "")])
def test_on_a_space_a_link_leads_to_its_own_address(monkeypatch, host, base):
    monkeypatch.setenv("SPACE_HOST", host)
    assert links.base() == base
    told = links.shown({"key": "k", "checkpoint": "c"})
    assert {name: told[name] for name in ("key", "checkpoint", "sample", "base")} == {
        "key": "k",
        "checkpoint": "c",
        "sample": None,
        "base": base,
    }
