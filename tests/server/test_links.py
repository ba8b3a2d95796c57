import re

import pytest

from vitviz.server.api import links
from vitviz.traces.grid import Grid
from vitviz.views import VIEWS, IntListSetting, ModelShape
from vitviz.views.routes import parse_settings

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


def test_link_parses_checkpoint_sample_tab_and_settings():
    link = links.parse_link(
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
    assert link == links.Link(
        "vitviz-tiny",
        "rocket",
        "rollout",
        settings={"fusion": "min", "discard": "0.5", "layers": "2-3", "query": "7"},
    )


def test_unknown_parameters_are_ignored():
    assert links.parse_link({}) == links.Link()
    assert (
        links.parse_link({"tab": "nothing", "fusion": "max", "sample": "mine", "utm_source": "x"})
        == links.Link()
    )
    assert links.parse_link({"tab": "patches", "fusion": "max"}).settings == {}


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_dropped_or_parse(value):
    names = {control.name for view in VIEWS for control in view.controls}
    for view in VIEWS:
        link = links.parse_link({"tab": view.slug, "sample": value, **dict.fromkeys(names, value)})
        assert link.sample is None
        assert all(
            value == "-1" or not re.search(r"[<>${}./\x00]", text) for text in link.settings.values()
        ), link
        controls = {control.name: control for control in view.controls}
        for name, text in link.settings.items():
            controls[name].parse(text)  # the view accepts values that pass
    assert links.parse_link({"tab": value}).tab is None
    if value == "9" * 5000:
        assert links.parse_link({"checkpoint": value}).checkpoint is None


def test_out_of_range_numbers_are_dropped():
    assert (
        links.parse_link(
            {"tab": "rollout", "residual": "1e9", "discard": "-1", "opacity": "nan", "layers": "0-99999"}
        ).settings
        == {}
    )


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_setting_names_do_not_clash_with_link_parameters(view):
    assert not {control.name for control in view.controls} & {*vars(links.Link()), "lang"}


SAMPLE_VALUES = {  # by kind of control: texts, at least one of which is not the default
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
def test_non_default_settings_round_trip_through_links(view):
    for control in view.controls:
        others = [text for text in SAMPLE_VALUES[control.kind](control) if text != str(control.start())]
        assert others, f"no other value of {control}"
        for text in others:
            assert links.parse_link({"tab": view.slug, control.name: text}).settings == {control.name: text}
            assert (
                parse_settings(view, {control.name: text}, LARGE)[control.name]
                != parse_settings(view, {}, LARGE)[control.name]
            )


def test_link_limits_the_length_of_number_lists():
    several = [(view, one) for view in VIEWS for one in view.controls if isinstance(one, IntListSetting)]
    assert {control.most for _, control in several} == {16, 400}
    for view, control in several:
        whole = ".".join(map(str, range(10_000, 10_000 + control.most)))
        for text, expected in ((whole, {control.name: whole}), (f"{whole}.3", {})):
            assert links.parse_link({"tab": view.slug, control.name: text}).settings == expected


@pytest.mark.parametrize(
    ("host", "base"), [("a-b.hf.space", "https://a-b.hf.space/"), ("", ""), ('x"><script>', ""), ("a b", "")]
)
def test_link_base_is_the_address_of_the_space(monkeypatch, host, base):
    monkeypatch.setenv("SPACE_HOST", host)
    assert links.link_base() == base
    state = links.link_state({"key": "k", "checkpoint": "c"})
    assert {name: state[name] for name in ("key", "checkpoint", "sample", "base")} == {
        "key": "k",
        "checkpoint": "c",
        "sample": None,
        "base": base,
    }
