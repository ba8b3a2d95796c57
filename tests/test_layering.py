"""The rooms of the house: who may import whom. Read from the imports themselves, and proved in a fresh
process.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from vitviz.views.late import PLACES

PACKAGE = Path(__file__).parent.parent / "vitviz"

# room -> the only rooms of vitviz that it may import, besides itself
ALLOWED = {
    "errors": set(),
    "record": {"errors"},  # asks for the room notebook by its name, when a notebook asks it
    "analyses": {"errors", "record"},
    "engine": {"analyses", "errors", "record"},
    "surveys": {"analyses", "engine", "errors", "figures", "record"},
    "figures": {"errors", "record"},
    "canvas": set(),
    "views": {"analyses", "engine", "errors", "figures", "record"},
    "prints": {"engine", "errors", "figures", "record", "surveys", "views"},
    "notebook": {"analyses", "engine", "errors", "figures", "prints", "record", "surveys", "views"},
    "ui": {"analyses", "engine", "errors", "figures", "prints", "record", "surveys", "views"},
    "command": {"engine", "errors", "prints", "record", "surveys", "ui"},
}
FLOORS = 8
# and within the page: who may ask what, what is remembered, what is answered, and the page itself
UPWARDS = ("words", "zerogpu", "options", "door", "memory", "answers", "page", "starting")
ONLY_IN = {
    "gradio": {"ui"},
    "fastapi": {"ui"},
    "timm": {"engine"},
    "huggingface_hub": {"engine"},
    "open_clip": {"engine"},
    "matplotlib": {"figures"},
    "imageio_ffmpeg": {"engine", "prints"},
    "pyarrow": {"surveys"},
    "datasets": {"surveys"},
    "ray": {"surveys"},
    "pandas": {"record"},
    "typer": {"command", "ui"},
}
NEVER_IN = {
    "torch": {"figures", "ui", "errors"},
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
    # and what views import by its name, when first used
    return found + [("views/late.py", "views", module) for module in PLACES.values()]


def test_every_room_imports_only_what_lies_below_it():
    for file, room, module in imports():
        if module.startswith("vitviz.") and room not in ("__init__", "__main__"):
            target = module.split(".")[1]
            assert target == room or target in ALLOWED[room], f"{file} imports {module}"


def test_the_house_has_few_floors():
    def floor(room: str) -> int:
        return 1 + max(map(floor, ALLOWED[room]), default=0)

    assert max(map(floor, ALLOWED)) == FLOORS


def test_the_rooms_of_the_page_import_only_what_lies_below_them():
    for file, room, module in imports():
        if room == "ui" and module.startswith("vitviz.ui."):
            place, target = (UPWARDS.index(name) for name in (Path(file).parts[1].removesuffix(".py"),
                                                              module.split(".")[2]))  # fmt: skip
            assert target <= place, f"{file} imports {module}"


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
    assert rooms - {"__init__", "__main__"} == set(ALLOWED)


@pytest.mark.processes
@pytest.mark.parametrize(
    "statement, absent",
    [
        ("import vitviz", {"gradio", "timm", "torch"}),
        ("import vitviz.analyses; vitviz.analyses.rollout", {"gradio", "timm", "huggingface_hub"}),
        ("import vitviz.views", {"gradio", "timm", "torch", "matplotlib"}),
        ("import vitviz; vitviz.figure", {"gradio", "matplotlib", "timm", "torch"}),
        ("import vitviz; vitviz.load", {"gradio"}),
        ("import vitviz; vitviz.text", {"gradio", "open_clip", "transformers"}),
        (
            "import vitviz.surveys; vitviz.surveys.survey",
            {"gradio", "pyarrow", "ray", "datasets", "typer"},
        ),
        (
            "import vitviz.ui.page.build, vitviz.ui.memory.studio",
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
