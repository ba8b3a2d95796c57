"""Carry out the renames of the style guide over a checkout: `python rename.py CHECKOUT [--stage NAME …]`."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import pack  # noqa: E402
import symbols  # noqa: E402
from pycode import git_files  # noqa: E402

STAGES = ("modules", "types", "public", "names")
MESSAGES = {
    "modules": "packages: rename packages and modules to the field's terms",
    "types": "types: give each class and type alias one plain name",
    "public": "api: rename public functions and keep deprecated aliases",
    "names": "names: replace participles by verbs and nouns",
}


def tidy(root: Path) -> None:
    ruff = [sys.executable, "-m", "ruff"]
    before = pack.snapshot(root, git_files(root, "*.py"))
    subprocess.run([*ruff, "check", "--fix", "-q", "--select", "I", "."], cwd=root)
    subprocess.run([*ruff, "format", "-q", "."], cwd=root)
    symbols.homes(symbols.Symbols(root))
    subprocess.run([*ruff, "check", "--fix", "-q", "--select", "I", "."], cwd=root)
    subprocess.run([*ruff, "format", "-q", "."], cwd=root)
    pack.apply(root, before)
    fold(root, ruff)
    biome = root / "tests/scripts/node_modules/.bin/biome"
    if biome.exists():
        command = [biome, "check", "--write", f"--config-path={root / 'tests/scripts'}", root / "vitviz"]
        subprocess.run(command, cwd=root / "tests/scripts", capture_output=True)
    subprocess.run([*ruff, "format", "-q", "."], cwd=root)
    subprocess.run([*ruff, "check", "--output-format", "concise", "."], cwd=root)


def fold(root: Path, ruff: list[str]) -> None:
    """Break comments, docstrings and plain strings that a longer name made longer than a line."""
    import ast
    import json
    import re
    import tokenize

    skipped = set()
    for _ in range(200):
        told = subprocess.run(
            [*ruff, "check", "--select", "E501", "--output-format", "json", "."],
            cwd=root,
            capture_output=True,
            text=True,
        ).stdout
        faults = {(one["filename"], one["location"]["row"]) for one in json.loads(told)} - skipped
        if not faults:
            return
        done = set()
        for name, row in sorted(faults, reverse=True):
            if name in done:
                continue
            done.add(name)
            path = Path(name)
            text = path.read_text(encoding="utf-8")
            lines = text.split("\n")
            line = lines[row - 1]
            indent = re.match(r"\s*", line)[0]
            with open(path, "rb") as file:
                tokens = list(tokenize.tokenize(file.readline))
            token = next(
                (
                    one
                    for one in tokens
                    if one.type in (tokenize.STRING, tokenize.COMMENT)
                    and one.start[0] <= row <= one.end[0]
                    and one.end[1] + 999 * (one.end[0] > row) > 100
                ),
                None,
            )
            cut = line.rfind(" ", 0, 111)
            if token is None or cut <= len(indent):
                skipped.add((name, row))
                continue
            head, rest = line[:cut], line[cut + 1 :]
            if token.type == tokenize.COMMENT:
                if token.start[1] > len(indent):  # behind code: it goes before it
                    comment = line[token.start[1] :]
                    lines[row - 1 : row] = [indent + comment, line[: token.start[1]].rstrip()]
                else:
                    below = lines[row].strip() if row < len(lines) else ""
                    if below.startswith("# ") and lines[row].startswith(indent + "#"):
                        lines[row - 1 : row + 1] = [head, f"{indent}# {rest} {below[2:]}"]
                    else:
                        lines[row - 1 : row] = [head, f"{indent}# {rest}"]
            elif token.string.lstrip("rRbBuUfF").startswith('"""'):
                below = lines[row].strip() if row < len(lines) else ""
                if line.lstrip().startswith((">>> ", "... ")):
                    cut = max(
                        line.rfind(", ", 0, 107) + 1, line.rfind(" for ", 0, 110), line.rfind(" in ", 0, 110)
                    )
                    lines[row - 1 : row] = [line[:cut], f"{indent}...     {line[cut + 1 :]}"]
                    path.write_text("\n".join(lines), encoding="utf-8")
                    continue
                closes = rest.endswith('"""')
                if (
                    below
                    and not closes
                    and not below.startswith((">>>", "...", "- ", '"""'))
                    and lines[row].startswith(indent)
                    and not lines[row].startswith(indent + " ")
                ):
                    lines[row - 1 : row + 1] = [head, f"{indent}{rest} {below}"]
                elif closes and lines[row - 1].count('"""') == 2:
                    lines[row - 1 : row] = [head, indent + rest[:-3], indent + '"""']
                else:
                    lines[row - 1 : row] = [head, indent + rest]
            else:
                quote = token.string[-1]
                prefix = token.string[: token.string.index(quote)]
                at = line.rfind(" ", token.start[1] + len(prefix) + 2, 108)
                if at < 0 or token.start[0] != token.end[0]:
                    skipped.add((name, row))
                    continue
                lines[row - 1 : row] = [
                    line[:at] + quote,
                    indent + " " * (token.start[1] - len(indent)) + prefix + quote + line[at:],
                ]
            new = "\n".join(lines)
            same = lambda one: re.sub(r"(\\n|\s)+", "", ast.dump(ast.parse(one)))
            try:
                equal = same(new) == same(text)
            except SyntaxError:
                equal = False
            if equal or token.type == tokenize.COMMENT:
                path.write_text(new, encoding="utf-8")
            else:
                skipped.add((name, row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument(
        "--stage", choices=STAGES, action="append", help="may be repeated; default: all, in order"
    )
    parser.add_argument("--commit", action="store_true", help="tidy and commit after each stage")
    given = parser.parse_args()
    root = given.checkout.resolve()
    stages = given.stage or STAGES
    for stage in stages:
        begun = time.time()
        if not (HERE / f"stage_{stage}.py").is_file():
            print(f"stage {stage}: not written")
            continue
        importlib.import_module(f"stage_{stage}").run(root, print)
        if given.commit or stage == stages[-1]:
            tidy(root)
        if given.commit:
            subprocess.run(["git", "add", "-A"], cwd=root, check=True)
            subprocess.run(["git", "commit", "-qm", MESSAGES[stage]], cwd=root, check=True)
        print(f"stage {stage}: done in {time.time() - begun:.0f} s")


if __name__ == "__main__":
    main()
