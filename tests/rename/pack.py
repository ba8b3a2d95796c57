"""Keep what a longer name would spread over many lines packed, with the project's own `# fmt: skip`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SKIP = "  # fmt: skip"


def statements(tree):
    """Every statement that is no import, in order of the source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node


def span(node) -> tuple[int, int]:
    """First and last line of a statement, or of a compound one's head."""
    body = getattr(node, "body", None)
    if body and isinstance(body, list):
        first = body[0]
        start = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", ()))])
        return node.lineno, max(node.lineno, start - 1)
    return node.lineno, node.end_lineno


def unskip(text: str) -> str:
    """Without the mark where a line has become too long, so that it is packed anew."""
    lines = text.split("\n")
    for node in statements(ast.parse(text)):
        first, last = span(node)
        while last > first and not lines[last - 1].strip():
            last -= 1
        head = lines[first - 1 : last]
        for n in range(first - 1, last):
            if lines[n].endswith(SKIP) and any(len(one) > 110 for one in head):
                lines[n] = lines[n].removesuffix(SKIP)
                break
    return "\n".join(lines)


def pack(before: str, after: str) -> str:
    """What the formatter has spread (`after`), packed where that saves two lines or more."""
    olds, news = list(statements(ast.parse(before))), list(statements(ast.parse(after)))
    if len(olds) != len(news):
        return after
    lines = after.split("\n")
    edits = []
    for old, new in zip(olds, news):
        if type(old) is not type(new):
            return after
        (a, b), (first, last) = span(old), span(new)
        if last - first < 5 or (last - first) - (b - a) < 2:
            continue
        edits += packed(lines, first - 1, last - 1)
    for start, end, new in sorted(edits, reverse=True):
        lines[start : end + 1] = new
    text = "\n".join(lines)
    try:
        same = ast.dump(ast.parse(text)) == ast.dump(ast.parse(after))
    except SyntaxError:
        same = False
    return text if same else after


def packed(lines, first, last):
    while last > first and not lines[last].strip():
        last -= 1
    head, foot = lines[first], lines[last]
    indent = re.match(r"\s*", head)[0]
    inner = lines[first + 1 : last]
    if (
        not head.rstrip().endswith(("(", "[", "{"))
        or not foot.startswith(indent)
        or foot[len(indent) : len(indent) + 1] not in (")", "]", "}")
    ):
        return []
    if any("#" in one for one in (head, foot, *inner)) or len(inner) < 4:
        return []
    if any(
        not one.startswith(indent + "    ") or one.startswith(indent + "     ") or not one.endswith(",")
        for one in inner
    ):
        return []
    parts = [one.strip() for one in inner]
    parts[-1] = parts[-1][:-1]
    out = [indent + "   "]
    for one in parts:
        if len(out[-1]) + 1 + len(one) > 110:
            out.append(indent + "   ")
        out[-1] += " " + one
    foot += SKIP
    if len(foot) > 110 or len(out) + 1 >= len(inner):
        return []
    return [(first, last, [head, *out, foot])]


def snapshot(root: Path, paths) -> dict[str, str]:
    found = {}
    for path in paths:
        place = root / path
        text = place.read_text(encoding="utf-8")
        new = lift(unskip(text) if SKIP in text else text)
        if new != text:
            place.write_text(new, encoding="utf-8")
        found[path] = text
    return found


def apply(root: Path, before: dict[str, str]) -> None:
    for path, old in before.items():
        place = root / path
        text = place.read_text(encoding="utf-8")
        new = pack(old, text) if text != old else text
        if new != text:
            place.write_text(new, encoding="utf-8")


def lift(text: str) -> str:
    """A comment behind code that a longer name pushed over the line's end goes before the code."""
    import io
    import tokenize

    lines = text.split("\n")
    if all(len(one) <= 110 for one in lines):
        return text
    long = {n + 1 for n, one in enumerate(lines) if len(one) > 110}
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    for token in sorted(
        (one for one in tokens if one.type == tokenize.COMMENT and one.start[0] in long),
        key=lambda one: -one.start[0],
    ):
        row, col = token.start
        code = lines[row - 1][:col].rstrip()
        if (
            not code.strip()
            or len(code) > 110
            or re.match(r"# (fmt|noqa|type|isort|pragma|ruff)", token.string)
        ):
            continue
        indent = re.match(r"\s*", code)[0]
        new = "\n".join([*lines[: row - 1], indent + token.string, code, *lines[row:]])
        try:
            if ast.dump(ast.parse(new)) == ast.dump(ast.parse(text)):
                lines[row - 1 : row] = [indent + token.string, code]
        except SyntaxError:
            pass
    return "\n".join(lines)
