"""The browser's scripts are static: no image, label or user input enters them."""

import re
from pathlib import Path, PurePosixPath

import pytest

import vitviz
from vitviz.charts.colormaps import TABLES
from vitviz.errors import Unknown
from vitviz.server.api import modules
from vitviz.server.page.components import Canvas, PageComponent
from vitviz.views import VIEWS

HOME = Path(vitviz.__file__).parent
SCRIPTS = {file.relative_to(HOME).as_posix(): file for file in sorted(HOME.rglob("*.js"))}
CLASSIC = {"server/i18n/first.js"}  # a classic script in the head, before all modules
ALLOWED_IMPORTS = {
    "frontend": {"frontend"},
    "views": {"frontend"},
    "server": {"frontend"},
}  # package -> packages that it may import


def imports(path: str) -> list[tuple[str, set[str]]]:
    """Return path and names of every module that a module imports; 'default' for its default export."""
    modules_imported = []
    for named, _star, default, source in re.findall(
        r"^import (?:\{([^}]*)\}|(\*) as \w+|(\w+)) from '([^']+)';", modules.module_source(path), re.M
    ):
        assert source.startswith("."), f"{path} imports {source}, which the browser cannot resolve"
        parts = []
        for part in (PurePosixPath(path).parent / source).parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        names = {name.split(" as ")[0].strip() for name in named.split(",") if name.strip()} or (
            {"default"} if default else set()
        )
        modules_imported.append(("/".join(parts), names))
    return modules_imported


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.slug)
def test_view_templates_contain_no_values(view):
    canvas = Canvas(view.slug)
    assert (
        canvas.html_template == f'<div class="vv" data-view="{view.slug}"></div>'
        and canvas.css_template == ""
    )
    for forbidden in ("${", "{{", "@children", "<"):
        assert forbidden not in canvas.js_on_load
    assert modules.script_of(view.slug) in canvas.js_on_load and modules.module_source(
        modules.script_of(view.slug)
    )


PARTS = sorted(
    set(
        re.findall(
            r'PageComponent\("(\w+)"', "".join(one.read_text() for one in (HOME / "server/page").glob("*.py"))
        )
    )
)


@pytest.mark.parametrize("name", PARTS)
def test_component_templates_contain_no_values(name):
    part = PageComponent(name)
    assert part.html_template == f'<div class="vv-{name}" role="status" hidden></div>'
    assert (
        "${" not in part.js_on_load
        and "<" not in part.js_on_load
        and "export default function part(" in modules.module_source(f"server/page/{name}.js")
    )


@pytest.mark.parametrize(
    "path", ["views/maps/view.js", "../pyproject.toml", "views/rollout/__init__.py", "", "frontend"]
)
def test_unknown_script_path_raises(path):
    with pytest.raises(Unknown, match="There is no script"):
        modules.module_source(path)


@pytest.mark.parametrize("path", SCRIPTS)
def test_scripts_write_text_and_reach_no_other_host(path):
    source = SCRIPTS[path].read_text(encoding="utf-8")
    named = source.replace("'http://www.w3.org/2000/svg'", "")  # a namespace, never fetched
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "http://",
        "https://",
        "</",
    ):
        assert forbidden not in named, forbidden


@pytest.mark.parametrize("path", sorted(set(SCRIPTS) - CLASSIC))
def test_imported_names_are_exported_by_allowed_packages(path):
    for source, names in imports(path):
        text = modules.module_source(source)
        exported = set(re.findall(r"^export (?:async )?(?:function|const|let|class) (\w+)", text, re.M))
        exported |= {"default"} if re.search("^export default ", text, re.M) else set()
        assert names <= exported, f"{path} imports {names - exported} from {source}"
        assert (
            source.split("/")[0] in ALLOWED_IMPORTS[path.split("/")[0]]
            or source.rsplit("/", 1)[0] == path.rsplit("/", 1)[0]
        )


def test_modules_base_changes_with_any_module(monkeypatch):
    before = modules.modules_base()
    assert re.fullmatch("gradio_api/vitviz/modules/[0-9a-f]{16}/", before)
    changed = {**modules._sources(), "frontend/map.js": "changed"}
    modules.modules_base.cache_clear()
    monkeypatch.setattr(modules, "_sources", lambda: changed)
    try:
        assert modules.modules_base() != before
    finally:
        modules.modules_base.cache_clear()


def test_colormaps_and_view_names_are_modules():
    colours = modules.module_source("frontend/colormaps.js")
    assert all(f'"{name}"' in colours for name in TABLES)
    assert modules.module_source(
        "frontend/views.js"
    ) == f"export default {[view.slug for view in VIEWS]};\n".replace("'", '"')


def test_style_sheets_fetch_nothing():
    style = modules.style_sheets()
    assert "url(" not in style and "@import" not in style and "</" not in style
    for file in HOME.rglob("*.css"):
        assert file.read_text(encoding="utf-8") in style


def test_fixed_digits_use_minus_sign_except_for_zero(node):
    given = [-0.0004, -0.0, -0.0006, -12.345, 0.25]
    found = node("frontend/numbers.js", "values.map((value) => fixed(value, 3))", values=given)
    assert found == ["0.000", "0.000", "−0.001", "−12.345", "0.250"]
