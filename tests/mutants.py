"""Mutation test: change one place of the analyses or the forward passes, and see whether a quick test fails.

    python -m tests.mutants                      # 60 mutants of seed 0; about an hour on two cores
    python -m tests.mutants --seed 1 --count 10
    python -m tests.mutants --only 7,12          # these numbers of the draw again

A mutant is one change of an operator, a comparison, an index, a sign, a limit, a hook's removal, or a raised
error. The tests run on a copy of the checkout. The quick tests that name the mutated module or what it
defines run first, then all quick tests of `tests/analyses` and `tests/engine`. Survivors are printed with
their source line; the exit status is 1 if more than a twelfth survive.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK = "not browser and not processes and not sweep and not slow"
PACKAGES = ("vitviz/analyses", "vitviz/engine/forward")
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.MatMult: ast.Add}
COMPARISONS = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A replacement of source[start:end] in the file `path`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} ({self.kind})\n    - {self.old}\n    + {self.new}"


def changed(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (kind, replacement) for every mutation of one syntax node."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            yield "operator", ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.Compare(left, [op], right) if type(op) in COMPARISONS:
            yield "comparison", ast.Compare(left, [COMPARISONS[type(op)]()], right)
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "sign", operand
        case ast.UnaryOp(ast.Not(), operand):
            yield "negation", operand
        case ast.BoolOp(op, values):
            yield "and/or", ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.Subscript(value, ast.Constant(int(index))) if not isinstance(index, bool):
            yield "index", ast.Subscript(value, ast.Constant(index + 1))
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            yield "index", ast.UnaryOp(ast.USub(), ast.Constant(number + 1))
        case ast.Slice(lower, upper, step) if lower or upper:
            yield "limit", ast.Slice(upper, lower, step)
        case ast.Constant(float(number)) if number:
            yield "limit", ast.Constant(number * 2)
        case ast.Expr(ast.Call(ast.Attribute(_, "remove" | "close" | "restore"), _, _)):
            yield "hook left", ast.Pass()
        case ast.Raise():
            yield "error not raised", ast.Pass()


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module's function bodies, without annotations and error messages."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data = source.encode()

    def visit(node: ast.AST, inside: bool) -> Iterator[Mutant]:
        if inside and hasattr(node, "end_lineno"):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            for kind, other in changed(node):
                new = ast.unparse(ast.fix_missing_locations(other))
                new = f"({new})" if isinstance(other, ast.BinOp | ast.BoolOp | ast.Compare) else new
                name = path.relative_to(ROOT).as_posix()
                yield Mutant(name, node.lineno, start, end, data[start:end].decode(), new, kind)
        if isinstance(node, ast.Raise | ast.JoinedStr):
            return
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child, inside or isinstance(node, ast.FunctionDef) and field == "body")

    yield from visit(ast.parse(source), inside=False)


def relevant(mutant: Mutant, home: Path) -> list[str]:
    """Return the test files that name the module or a function or class it defines, most mentions first."""
    module = Path(mutant.path)
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    names = [one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    names = [re.escape(name) for name in [*names, module.stem] if not name.startswith("_")]
    pattern = re.compile(rf"\b({'|'.join(names)})\b")
    mentions = {
        file.relative_to(home).as_posix(): len(pattern.findall(file.read_text(encoding="utf-8")))
        for folder in ("tests/analyses", "tests/engine", "tests/surveys", "tests/traces")
        for file in (home / folder).rglob("test_*.py")
    }
    return sorted((name for name in mentions if mentions[name]), key=mentions.get, reverse=True)[:6]


def fails(home: Path, tests: list[str], seconds: int) -> bool:
    """Whether a quick test fails; a run that exceeds the limit counts as a failure."""
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", QUICK]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {"VITVIZ_SHARED": str(ROOT.parent / "shared"), **os.environ}
    try:
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1, 5):  # 5: no test in the quick tier
        return done.returncode == 2 or sys.exit(done.stdout.decode()[-3000:])
    return done.returncode == 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", help="numbers of the draw, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the draw and run nothing")
    given = parser.parse_args()
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    drawn = random.Random(given.seed).sample([one for file in files for one in mutants(file)], given.count)
    only = [int(number) for number in given.only.split(",")] if given.only else range(1, given.count + 1)
    if given.list:
        [print(number, drawn[number - 1]) for number in only]
        return 0
    survivors = []
    with tempfile.TemporaryDirectory(prefix="vitviz-mutants-") as folder:
        home = Path(folder) / "copy"
        left_out = shutil.ignore_patterns(".git", "node_modules", "__pycache__", "test-failures")
        shutil.copytree(ROOT, home, ignore=left_out)
        for number in only:
            mutant = drawn[number - 1]
            source = (home / mutant.path).read_bytes()
            (home / mutant.path).write_bytes(
                source[: mutant.start] + mutant.new.encode() + source[mutant.end :]
            )
            tests = relevant(mutant, home)
            caught = bool(tests) and fails(home, tests, 600)
            caught = caught or fails(home, ["tests/analyses", "tests/engine"], 1800)
            (home / mutant.path).write_bytes(source)
            print(f"{number}: {'caught' if caught else 'SURVIVED'} {mutant}", flush=True)
            survivors += [] if caught else [mutant]
    print(f"{len(only) - len(survivors)} of {len(only)} caught")
    return int(len(survivors) > len(only) / 12)


if __name__ == "__main__":
    sys.exit(main())
