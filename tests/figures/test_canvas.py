"""The templates are static: what a picture, a label or a user brings never stands in them."""

import re
from pathlib import Path

import pytest

from vitviz.figures import canvas

FILES = sorted(Path(canvas.__file__).parent.glob("*.js"))


@pytest.mark.parametrize("view", canvas.VIEWS)
def test_templates_take_no_values(view):
    html, css, js = canvas.template(view)
    assert f'data-view="{view}"' in html
    for part in (html, css):
        assert "${" not in part and "{{" not in part and "@children" not in part and "<script" not in part
    assert f"name: '{view}'" in js and "mount(element, props, watch, trigger" in js


def test_an_unknown_view_is_named():
    with pytest.raises(ValueError, match="'maps'.*rollout"):
        canvas.template("maps")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_scripts_write_text_and_reach_no_other_host(file):
    source = file.read_text(encoding="utf-8")
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://", "</"):
        assert forbidden not in source, forbidden
    assert len(source.splitlines()) < 260


def test_head_holds_style_script_and_colour_maps_once():
    head = canvas.head()
    assert head.count("<style>") == head.count("<script>") == head.count("</script>") == 1
    assert "if (window.vitviz) return;" in head and all(f'"{name}"' in head for name in ("viridis", "magma", "inferno", "cividis"))
    assert "url(" not in canvas.style() and "@import" not in canvas.style()


def test_every_shared_name_is_exported_that_a_view_takes():
    public = set(re.search(r"window\.vitviz = \{ (.+) \};", canvas.script()).group(1).replace(": {}", "").split(", "))
    for view in canvas.VIEWS:
        taken = re.search(r"const \{ (.+) \} = window\.vitviz;", canvas.template(view)[2])
        assert taken and set(taken.group(1).split(", ")) <= public


def test_texts_for_translators():
    texts = canvas.texts()
    assert {
        "Reset",
        "Figure (PNG)",
        "Numbers (.npz)",
        "Attention rollout",
        "Patch {number}",
        "attends to",
        "Red",
        "Overlay, full size (PNG)",
    } <= set(texts)
