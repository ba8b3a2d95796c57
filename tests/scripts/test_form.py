"""Formatting, linting (biome) and types (tsc) of the scripts, as named in package.json."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.scripts import write_types

HERE = Path(__file__).parent
VITVIZ = HERE.parents[1] / "vitviz"
EVENTS = f"import {{ send }} from '{VITVIZ}/frontend/events.js';\n\n"
COLUMNS = 110
# scripts whose every parameter has a type; the others are checked as strictly, apart from noImplicitAny
TYPED = ("frontend/events.js", "server/page/editor_commands.js", "server/page/editor_history.js")


@pytest.fixture(scope="module")
def tools() -> Path:
    """Return the folder of the tools. Install them if they are missing."""
    folder = HERE / "node_modules/.bin"
    problem = "" if shutil.which("npm") else "no Node and npm on this machine"
    if not problem and not (folder / "biome").exists():
        install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"]
        result = subprocess.run(install, cwd=HERE, capture_output=True, text=True, timeout=300)
        problem = "" if result.returncode == 0 else f"npm install failed: {result.stderr[-500:]}"
    if problem:
        reason = f"{problem}: the form of the scripts is not checked"
        pytest.fail(reason) if os.environ.get("VITVIZ_REQUIRE_ALL") else pytest.skip(reason)
    return folder


def run_tools(tools: Path, folder: Path) -> str:
    """Return the problems that the tools report for a folder; empty if there are none."""
    output = ""
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
        result = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=120)
        output += f"{result.stdout}\n{result.stderr}" if result.returncode else ""
    return output


@pytest.mark.processes
def test_scripts_and_style_sheets_pass_biome_and_tsc(tools):
    problems = run_tools(tools, VITVIZ)
    assert not problems, f"{problems}\nnpm --prefix tests/scripts run format fixes formatting"


@pytest.mark.processes
@pytest.mark.parametrize(
    "fault, expected",
    [
        ("export const one = 1;\n", ""),
        ("import { two } from './two.js';\n\nexport const one = 1;\n", "noUnusedImports"),
        ("export function one() {\n  const two = 2;\n  return 1;\n}\n", "noUnusedVariables"),
        ("/** @type {number} */\nexport const one = 'two';\n", "TS2322"),
        ("export const one = document.querySelector('p').textContent;\n", "TS2531"),
        ("export function one() {\n  const a = 1, b = 2;\n  return a + b;\n}\n", "useSingleVarDeclarator"),
        (f"{EVENTS}send('highlight', 'head.1.1');\n", ""),
        (f"{EVENTS}send('highlights', 'head.1.1');\n", "TS2345"),
        (f"{EVENTS}send('highlight', 1);\n", "TS2345"),
        ("export const one  = 1\n", "File content differs from formatting output"),
    ],
)
def test_tools_report_faults(tools, tmp_path, fault, expected):
    (tmp_path / "one.js").write_text(fault)
    (tmp_path / "two.js").write_text("export const two = 2;\n")
    (tmp_path / "tsconfig.json").write_text(f'{{"extends": "{HERE / "tsconfig.json"}", "include": ["*.js"]}}')
    output = run_tools(tools, tmp_path)
    assert (expected in output) if expected else output == ""


@pytest.mark.processes
def test_scripts_with_types_name_every_type(tools):
    done = subprocess.run(
        [tools / "tsc", "--project", HERE / "tsconfig.json", "--noImplicitAny"],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=120,
    )
    wrong = [line for line in done.stdout.splitlines() if any(f"/{name}(" in line for name in TYPED)]
    assert "error TS" in done.stdout and not wrong, "\n".join(wrong)


def test_types_of_what_python_sends_are_those_of_its_declarations():
    assert write_types.FILE.read_text(encoding="utf-8") == write_types.types(), (
        "python -m tests.scripts.write_types"
    )


@pytest.mark.parametrize("kind", ["js", "css"])
def test_lines_have_at_most_110_columns(kind):
    for file in VITVIZ.rglob(f"*.{kind}"):
        lines = file.read_text(encoding="utf-8").splitlines()
        long_lines = [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
        assert not long_lines, f"{file}: lines {long_lines} have more than {COLUMNS} columns"
