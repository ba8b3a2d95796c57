"""Layering: which package may import which, checked on the import statements and in a fresh process."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from vitviz.views.lazy import PLACES

PACKAGE = Path(__file__).parent.parent / "vitviz"

ABOVE_EXPORT = {
    "analyses",
    "diagnostics",
    "engine",
    "errors",
    "charts",
    "export",
    "traces",
    "surveys",
    "views",
}
# package -> the only packages of vitviz that it may import, besides itself
ALLOWED = {
    "errors": set(),
    "_deprecated": set(),
    "traces": {"_deprecated", "errors"},  # imports `notebook` dynamically when a notebook displays a result
    "analyses": {"errors", "traces"},
    "engine": {"_deprecated", "analyses", "errors", "traces"},
    "surveys": {"analyses", "engine", "errors", "charts", "traces"},
    "diagnostics": {"analyses", "engine", "errors", "surveys", "traces"},
    "charts": {"errors", "traces"},
    "frontend": set(),
    "views": {"analyses", "engine", "errors", "charts", "traces"},
    "export": {"_deprecated", "engine", "errors", "charts", "traces", "surveys", "views"},
    "notebook": ABOVE_EXPORT,
    "server": ABOVE_EXPORT,
    "cli": {"engine", "errors", "export", "traces", "surveys", "server"},
}
DEPTH = 8
# order of the layers within `server`: each may import only those before it
SERVER_ORDER = ("i18n", "zerogpu", "options", "security", "services", "api", "page", "launch")
ONLY_IN = {
    "gradio": {"server"},
    "fastapi": {"server"},
    "timm": {"engine"},
    "huggingface_hub": {"engine"},
    "open_clip": {"engine"},
    "matplotlib": {"charts"},
    "plotly": {"charts"},
    "imageio_ffmpeg": {"engine", "export"},
    "pyarrow": {"surveys"},
    "datasets": {"surveys"},
    "ray": {"surveys"},
    "pandas": {"traces"},
    "typer": {"cli", "server"},
}
NEVER_IN = {
    "torch": {"charts", "server", "errors"},
    "skimage": {"analyses", "engine", "charts", "views", "server"},
}


def imports() -> list[tuple[str, str, str]]:
    """Return (file, package, imported module) for every import statement in vitviz."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        relative = path.relative_to(PACKAGE)
        room = relative.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found += [(str(relative), room, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{relative} uses a relative import"
                found += [
                    (
                        str(relative),
                        room,
                        f"{node.module}.{alias.name}" if node.module == "vitviz" else node.module,
                    )
                    for alias in node.names
                ]
    # modules that views import dynamically on first use
    return found + [("views/lazy.py", "views", module) for module in PLACES.values()]


def modules_imported() -> dict[str, set[str]]:
    """Return the modules of vitviz that each module imports at its top or for type checking."""
    files = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
             for path in PACKAGE.rglob("*.py")}  # fmt: skip
    graph = {}
    for name, path in files.items():
        within = list(ast.parse(path.read_text(encoding="utf-8")).body)
        within += [inner for node in within if isinstance(node, ast.If) for inner in node.body]
        targets = set()
        for node in within:
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= names if names <= files.keys() else names | {node.module}
        graph[name] = targets & files.keys() - {name}
    return graph


def test_there_are_no_import_cycles():
    list(TopologicalSorter(modules_imported()).static_order())  # raises CycleError, which names the circle


def test_packages_import_only_allowed_packages():
    for file, package, module in imports():
        if module.startswith("vitviz.") and package not in ("__init__", "__main__"):
            target = module.split(".")[1]
            assert target == package or target in ALLOWED[package], f"{file} imports {module}"


def test_package_hierarchy_has_known_depth():
    def depth(package: str) -> int:
        return 1 + max(map(depth, ALLOWED[package]), default=0)

    assert max(map(depth, ALLOWED)) == DEPTH


def test_server_packages_import_only_lower_ones():
    for file, package, module in imports():
        if package == "server" and module.startswith("vitviz.server."):
            place, target = (SERVER_ORDER.index(name) for name in (Path(file).parts[1].removesuffix(".py"),
                                                              module.split(".")[2]))  # fmt: skip
            assert target <= place, f"{file} imports {module}"


def test_gradio_timm_and_hub_are_imported_only_where_allowed():
    for file, package, module in imports():
        library = module.split(".")[0]
        assert package in ONLY_IN.get(library, {package}), f"{file} imports {module}"
        assert package not in NEVER_IN.get(library, set()), f"{file} imports {module}"


def test_every_package_is_listed():
    packages = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
    }
    assert packages - {"__init__", "__main__"} == set(ALLOWED)


# Statements in the order in which one process executes them, each with the modules that it must not load.
LIBRARY = {
    "import vitviz": {"gradio", "timm", "torch"},
    "import vitviz.views": {"gradio", "timm", "torch", "matplotlib", "plotly"},
    "vitviz.figure": {"gradio", "matplotlib", "timm", "torch", "plotly"},
    "import vitviz.analyses; vitviz.analyses.rollout": {"gradio", "timm", "huggingface_hub"},
    "vitviz.text": {"gradio", "open_clip", "transformers"},
    "import vitviz.notebook; vitviz.notebook.html": {"gradio", "matplotlib", "plotly"},
    "import vitviz.surveys; vitviz.surveys.survey": {"gradio", "pyarrow", "ray", "datasets", "typer"},
    "vitviz.load": {"gradio", "plotly"},
}
SERVER = {
    "import vitviz.server.page.build, vitviz.server.services.analysis_service": {
        "matplotlib", "plotly", "vitviz.surveys.run", "pyarrow", "ray", "datasets",
    },
}  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize(
    "before, statements",
    # exclude Gradio's own imports: its pandas imports pyarrow if installed
    [("", LIBRARY), ("import gradio", SERVER)],
    ids=["library", "server"],
)
def test_importing_loads_no_more_than_needed(before, statements):
    code = f"""
import sys
{before}
own = set(sys.modules)
for statement, absent in {statements!r}.items():
    exec(statement)
    for name in (set(sys.modules) - own) & absent:
        print(f"{{statement}} loads {{name}}")
"""
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    ).stdout
    assert loaded == ""
