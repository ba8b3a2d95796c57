"""The rooms of the house: who may import whom. Read from the imports themselves, and proved in a fresh
process.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "vitviz"

# room -> the only rooms of vitviz that it may import, besides itself
ALLOWED = {
    "errors": set(),
    "heap": set(),
    "stopping": {"errors"},
    "progress": set(),
    "shown": set(),  # asks for the room notebook by its name, when a notebook asks it
    "frames": {"errors"},
    "grid": {"shown"},
    "sentence": set(),
    "runs": {"errors", "shown"},
    "languages": {"sentence", "views"},
    "prints": {
        *("engine", "errors", "figures", "languages", "sentence", "stopping", "surveys", "trace", "views"),
    },
    "samples": {"errors"},
    "readout": {"grid"},
    "attention": set(),
    "trace": {"attention", "errors", "grid", "readout", "runs", "shown"},
    "analyses": {"frames", "grid", "readout", "sentence", "shown", "trace", "errors", "stopping"},
    "engine": {
        *("grid", "readout", "trace", "errors", "analyses", "runs", "samples", "sentence"),
        *("progress", "shown", "stopping"),
    },
    "models": {"analyses", "engine", "trace", "errors"},
    "surveys": {
        *("analyses", "engine", "figures", "frames", "grid", "maps", "models", "samples", "shown", "trace"),
        *("errors", "sentence"),
    },
    "notebook": {
        *("analyses", "engine", "errors", "figures", "frames", "grid", "models", "runs", "sentence", "shown"),
        *("surveys", "trace", "views"),
    },
    "command": {"engine", "errors", "samples", "surveys", "ui"},
    "maps": {"analyses", "engine", "models", "errors"},
    "experiments": {"analyses", "engine", "errors", "trace"},
    "figures": {"errors"},
    "canvas": set(),
    "views": {
        "analyses",
        "engine",
        "experiments",
        "figures",
        "grid",
        "maps",
        "models",
        "readout",
        "samples",
        "trace",
        "errors",
        "sentence",
    },
    "ui": {
        *("analyses", "engine", "errors", "figures", "grid", "heap", "languages", "models"),
        *("prints", "progress", "runs", "samples", "sentence", "stopping", "surveys", "trace", "views"),
    },
}
ONLY_IN = {
    "gradio": {"ui"},
    "fastapi": {"ui"},
    "timm": {"engine"},
    "huggingface_hub": {"engine"},
    "plotly": {"figures"},
    "matplotlib": {"figures"},
    "imageio_ffmpeg": {"prints"},
    "pyarrow": {"surveys"},
    "datasets": {"surveys"},
    "ray": {"surveys"},
    "pandas": {"frames"},
    "typer": {"command"},
}
NEVER_IN = {
    "torch": {"figures", "ui", "errors", "grid", "samples"},
    "skimage": {"analyses", "engine", "figures", "views", "ui"},
}


def imports() -> list[tuple[str, str, str]]:
    """(file, room, imported module) for every import statement in the package."""
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
    return found


def test_every_room_imports_only_what_lies_below_it():
    for file, room, module in imports():
        if module.startswith("vitviz.") and room != "__init__":
            target = module.split(".")[1]
            assert target == room or target in ALLOWED[room], f"{file} imports {module}"


def test_gradio_timm_and_the_hub_stay_in_their_rooms():
    for file, room, module in imports():
        library = module.split(".")[0]
        assert room in ONLY_IN.get(library, {room}), f"{file} imports {module}"
        assert room not in NEVER_IN.get(library, set()), f"{file} imports {module}"


def test_the_package_has_no_room_unknown_to_this_test():
    rooms = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")
    }
    assert rooms - {"__init__"} == set(ALLOWED)


@pytest.mark.parametrize(
    "statement, absent",
    [
        ("import vitviz", {"gradio", "timm", "torch"}),
        ("import vitviz.analyses; vitviz.analyses.rollout", {"gradio", "timm", "huggingface_hub"}),
        ("import vitviz.views", {"gradio", "timm", "torch", "matplotlib"}),
        ("import vitviz; vitviz.figure", {"gradio", "matplotlib", "timm", "torch"}),
        ("import vitviz; vitviz.load", {"gradio"}),
        (
            "import vitviz.surveys; vitviz.surveys.survey",
            {"gradio", "plotly", "pyarrow", "ray", "datasets", "datasketches", "typer"},
        ),
        (
            "import vitviz.ui.page.build, vitviz.ui.serving.studio",
            {"matplotlib", "vitviz.surveys.run", "pyarrow", "ray", "datasets"},
        ),
    ],
)
def test_importing_loads_no_more_than_needed(statement, absent):
    # what Gradio brings along is not ours: its pandas takes pyarrow where that is installed
    before = "import gradio; " if "vitviz.ui" in statement else ""
    told = f"print(*sorted((set(sys.modules) - own) & {absent!r}))"
    code = f"import sys; {before}own = set(sys.modules); {statement}; {told}"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    ).stdout.split()
    assert loaded == []
