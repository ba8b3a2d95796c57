"""The form of the scripts: formatter and linter (biome), and types (tsc), as package.json names them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VITVIZ = HERE.parents[1] / "vitviz"
EVENTS = f"import {{ send }} from '{VITVIZ}/frontend/events.js';\n\n"
COLUMNS = 110


@pytest.fixture(scope="module")
def tools() -> Path:
    """The tools' folder; they are installed where they are missing."""
    found = HERE / "node_modules/.bin"
    why = "" if shutil.which("npm") else "no Node and npm on this machine"
    if not why and not (found / "biome").exists():
        install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"]
        done = subprocess.run(install, cwd=HERE, capture_output=True, text=True, timeout=300)
        why = "" if done.returncode == 0 else f"npm install failed: {done.stderr[-500:]}"
    if why:
        reason = f"{why}: the form of the scripts is not checked"
        pytest.fail(reason) if os.environ.get("VITVIZ_REQUIRE_ALL") else pytest.skip(reason)
    return found


def checked(tools: Path, folder: Path) -> str:
    """What the tools complain of in a folder; empty where they are content."""
    said = ""
    linted = [
        tools / "biome",
        "ci",
        "--reporter=github",
        "--max-diagnostics=50",
        f"--config-path={HERE}",
        folder,
    ]
    project = folder / "tsconfig.json" if folder != VITVIZ else HERE / "tsconfig.json"
    for command in (linted, [tools / "tsc", "--project", project]):
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120)
        said += f"{done.stdout}\n{done.stderr}" if done.returncode else ""
    return said


@pytest.mark.processes
def test_scripts_and_style_sheets_are_in_form(tools):
    said = checked(tools, VITVIZ)
    assert not said, f"{said}\nnpm --prefix tests/scripts run format mends what can be mended by a tool"


@pytest.mark.processes
@pytest.mark.parametrize(
    "fault, told",
    [
        ("export const one = 1;\n", ""),
        ("import { two } from './two.js';\n\nexport const one = 1;\n", "noUnusedImports"),
        ("export function one() {\n  const two = 2;\n  return 1;\n}\n", "noUnusedVariables"),
        ("/** @type {number} */\nexport const one = 'two';\n", "TS2322"),
        ("export function one() {\n  const a = 1, b = 2;\n  return a + b;\n}\n", "useSingleVarDeclarator"),
        (f"{EVENTS}send('highlight', 'head.1.1');\n", ""),
        (f"{EVENTS}send('highlights', 'head.1.1');\n", "TS2345"),
        (f"{EVENTS}send('highlight', 1);\n", "TS2345"),
        ("export const one  = 1\n", "File content differs from formatting output"),
    ],
)
def test_the_tools_notice(tools, tmp_path, fault, told):
    (tmp_path / "one.js").write_text(fault)
    (tmp_path / "two.js").write_text("export const two = 2;\n")
    (tmp_path / "tsconfig.json").write_text(f'{{"extends": "{HERE / "tsconfig.json"}", "include": ["*.js"]}}')
    said = checked(tools, tmp_path)
    assert (told in said) if told else said == ""


@pytest.mark.parametrize("kind", ["js", "css"])
def test_lines_fit_on_the_screen(kind):
    for file in VITVIZ.rglob(f"*.{kind}"):
        lines = file.read_text(encoding="utf-8").splitlines()
        long = [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
        assert not long, f"{file}: lines {long} have more than {COLUMNS} columns"
