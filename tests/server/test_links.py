import re

import pytest

from vitviz.server.api import links
from vitviz.traces.grid import Grid
from vitviz.views import VIEWS, IntListSetting, ModelShape

LARGE = ModelShape(99, 99, Grid(300, 300, (16, 16), ("class",)))
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
    asked = links.parse_link(
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
        "vitviz-tiny",
        "rocket",
        "rollout",
        settings={"fusion": "min", "discard": "0.5", "layers": "2-3", "query": "7"},
    )


def test_what_nobody_knows_is_passed_over():
    assert links.parse_link({}) == links.Link()
    assert (
        links.parse_link({"tab": "nothing", "fusion": "max", "sample": "mine", "utm_source": "x"})
        == links.Link()
    )
    assert links.parse_link({"tab": "patches", "fusion": "max"}).settings == {}


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_do_nothing(value):
    names = {control.name for view in VIEWS for control in view.controls}
    for view in VIEWS:
        asked = links.parse_link({"tab": view.slug, "sample": value, **dict.fromkeys(names, value)})
        assert asked.sample is None
        assert all(
            value == "-1" or not re.search(r"[<>${}./\x00]", text) for text in asked.settings.values()
        ), asked
        controls = {control.name: control for control in view.controls}
        for name, text in asked.settings.items():
            controls[name].parse(
                text
            )  # what passes is what the view itself takes, as far as no model is known
    assert links.parse_link({"tab": value}).tab is None
    if value == "9" * 5000:
        assert links.parse_link({"checkpoint": value}).checkpoint is None


def test_a_hostile_number_reaches_no_chart():
    assert (
        links.parse_link(
            {"tab": "rollout", "residual": "1e9", "discard": "-1", "opacity": "nan", "layers": "0-99999"}
        ).settings
        == {}
    )


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_no_setting_has_a_name_that_the_link_needs(view):
    assert not {control.name for control in view.controls} & {*vars(links.Link()), "lang"}


OTHERS = {  # of each kind of control, texts of which at least one is no default
    "slider": lambda control: [
        f"{control.minimum:g}",
        "2" if isinstance(control.maximum, str) else f"{control.maximum:g}",
    ],
    "choice": lambda control: [value for value, _ in control.options],
    "layers": lambda control: ["1-2"],
    "query": lambda control: ["3", "class"],
    "whole": lambda control: ["3"],
    "wholes": lambda control: ["3.4"],
    "text": lambda control: [
        text for text in ("3", "1.1", "chelsea", "head.1.1") if re.fullmatch(control.fits, text)
    ],
}


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_every_setting_at_another_value_than_its_default_can_stand_in_a_link(view):
    for control in view.controls:
        others = [text for text in OTHERS[control.kind](control) if text != str(control.start())]
        assert others, f"nothing to try of {control}"
        for text in others:
            assert links.parse_link({"tab": view.slug, control.name: text}).settings == {control.name: text}
            assert (
                view.settings({control.name: text}, LARGE)[control.name]
                != view.settings({}, LARGE)[control.name]
            )


def test_a_link_holds_as_many_numbers_as_the_setting_does_and_not_one_more():
    several = [(view, one) for view in VIEWS for one in view.controls if isinstance(one, IntListSetting)]
    assert {control.most for _, control in several} == {16, 400}
    for view, control in several:
        whole = ".".join(map(str, range(10_000, 10_000 + control.most)))
        for text, held in ((whole, {control.name: whole}), (f"{whole}.3", {})):
            assert links.parse_link({"tab": view.slug, control.name: text}).settings == held


@pytest.mark.parametrize(
    ("host", "base"), [("a-b.hf.space", "https://a-b.hf.space/"), ("", ""), ('x"><script>', ""), ("a b", "")]
)
def test_on_a_space_a_link_leads_to_its_own_address(monkeypatch, host, base):
    monkeypatch.setenv("SPACE_HOST", host)
    assert links.link_base() == base
    told = links.link_state({"key": "k", "checkpoint": "c"})
    assert {name: told[name] for name in ("key", "checkpoint", "sample", "base")} == {
        "key": "k",
        "checkpoint": "c",
        "sample": None,
        "base": base,
    }
