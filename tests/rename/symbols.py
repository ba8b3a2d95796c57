"""Rename top-level functions, classes and constants over a project, through imports, aliases and strings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from pycode import Project, git_files


class Symbols(Project):
    """A project whose lazily imported modules are known."""

    def special(self, module):
        if module == "vitviz.views.lazy":
            space: dict = {}
            exec(compile(self.modules[module].text, "lazy.py", "exec"), space)
            return {
                name: ("module", one) for name, one in space["PLACES"].items() if one.startswith("vitviz")
            }
        return {}


def rename(project: Project, table: dict[tuple[str, str], str], log) -> dict[tuple[str, str], str]:
    """Edit all files; what is not at the place that the table names, or would collide, is told and left."""
    table = dict(table)
    for (module, old), new in list(table.items()):
        here = project.exports(module).get(old)
        if here != ("def", module, old):
            log(f"  not found: {module}.{old}")
            del table[module, old]
            continue
        home = project.modules[module]
        why = clash(home, home.module_scope, old, new)
        if why:
            log(f"  left: {module}.{old}: {new} {why}")
            del table[module, old]
    for file in project.files.values():
        _file(project, file, table, log)
    return table


def clash(file, scope, old, new) -> str:
    if new in scope.bound:
        return f"is already defined in {file.path}"
    for used_in, name, start, *_ in file.occurrences:
        if name == old and used_in.home(name) is scope:
            for one in used_in.between(scope):
                if new in one.bound and not (one.kind == "class" and one is not used_in):
                    line = file.text.count("\n", 0, start) + 1
                    return f"is a local name in {file.path}:{line}"
    return ""


def _file(project, file, table, log):
    new_name: dict[tuple, str | None] = {}  # (scope, local name) -> new

    def meaning(target):
        found = project.resolve(target)
        return table.get(found[1:]) if found and found[0] == "def" else None

    # what imports bind, and own definitions
    for scope, name, start, node, role in file.occurrences:
        if role == "import" and isinstance(node[0], ast.ImportFrom):
            statement, alias = node
            new = statement.module and not statement.level and meaning(("from", statement.module, alias.name))
            if not new:
                continue
            at = file.at(alias.lineno, alias.col_offset)
            if alias.asname:
                file.edit(at, at + len(alias.name), new)
                if alias.asname == new:
                    pass
                continue
            why = clash(file, scope, alias.name, new)
            if why:
                log(f"  as: {file.path}: {new} as {alias.name} ({why})")
                file.edit(at, at + len(alias.name), f"{new} as {alias.name}")
            else:
                file.edit(at, at + len(alias.name), new)
                new_name[scope, name] = new
        elif (
            role in ("def", "store", "walrus") and scope is file.module_scope and (file.module, name) in table
        ):
            new_name[scope, name] = table[file.module, name]
    for scope, name, start, node, role in file.occurrences:
        if role != "import":
            new = new_name.get((scope.home(name), name))
            if new:
                file.edit(start, start + len(name), new)
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute):
            inner = project.expression(file, node.value)
            new = inner and inner[0] == "module" and meaning(("from", inner[1], node.attr))
            if new:
                end = file.at(node.end_lineno, node.end_col_offset)
                file.edit(end - len(node.attr), end, new)
        elif (
            isinstance(node, ast.Call)
            and len(node.args) >= 2
            and isinstance(node.args[1], ast.Constant)
            and isinstance(node.args[1].value, str)
        ):
            inner = project.expression(file, node.args[0])
            new = inner and inner[0] == "module" and meaning(("from", inner[1], node.args[1].value))
            if new:
                _string(file, node.args[1], new)
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        ):
            for one in ast.walk(node.value):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    new = meaning(("from", file.module, one.value))
                    if new:
                        _string(file, one, new)
    # names in annotations that are strings, in examples and in backticks, as this module means them
    local = {name: new for (scope, name), new in new_name.items() if scope is file.module_scope and new}
    annotated = set()
    for node in ast.walk(file.tree):
        for field in ("annotation", "returns"):
            part = getattr(node, field, None)
            if part is not None:
                inside = {sub for sub in ast.walk(part)}
                jax = {
                    n
                    for s in inside
                    if isinstance(s, ast.Subscript) and isinstance(s.slice, ast.Tuple)
                    for n in s.slice.elts[1:]
                }
                annotated |= {
                    (one.lineno, one.col_offset)
                    for one in inside - jax
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
    every = re.compile(r"\bvitviz(?:\.\w+)+")

    def dotted(one: re.Match) -> str:
        return rename_dotted(project, table, one[0])

    def tick(one: re.Match) -> str:
        head = re.match(r"[A-Za-z_]\w*", one[2])
        if (
            head
            and head[0] in local
            and (re.search("[A-Z]", head[0]) or one[2][len(head[0]) :].startswith("("))
        ):
            return one[1] + local[head[0]] + one[2][len(head[0]) :] + one[3]
        return one[0]

    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type not in (tokenize.STRING, tokenize.COMMENT):
            continue
        text = every.sub(dotted, token.string)
        doc = token.type == tokenize.COMMENT or token.string.lstrip("rRuU").startswith('"""')
        if doc:
            text = re.sub(r"(`)([^`\n]+)(`)", tick, text)
            inside = dict(local)
            for one in re.finditer(r">>> from (vitviz[\w.]*) import (.+)", token.string):
                for name in re.findall(r"[A-Za-z_]\w*", one[2]):
                    new = meaning(("from", one[1], name))
                    if new:
                        inside[name] = new
            text = "\n".join(_example(line, inside) for line in text.split("\n"))
        elif (token.start[0], len(token.line.encode()[: token.start[1]])) in annotated or (
            token.start[0],
            token.start[1],
        ) in annotated:
            text = re.sub(r"\b[A-Za-z_]\w*", lambda one: local.get(one[0], one[0]), text)
        if text != token.string:
            start = file.starts[token.start[0] - 1] + token.start[1]
            span = (start, start + len(token.string))
            if not any(span[0] <= one[0] and one[1] <= span[1] for one in file.edits):
                file.edit(*span, text)


def _example(line: str, local: dict[str, str]) -> str:
    """A line of an example: names that the module has, but not attributes and strings."""
    if not re.match(r'\s*("""|r""")?(>>>|\.\.\. )', line) and not re.match(r"\s*\w+\(.*\)$", line):
        return line
    return re.sub(r"(?<![\w.'\"])[A-Za-z_]\w*(?!\w*=[^=])", lambda one: local.get(one[0], one[0]), line)


def _string(file, node, new):
    start = file.at(node.lineno, node.col_offset)
    end = file.at(node.end_lineno, node.end_col_offset)
    old = file.text[start:end]
    if old[1:-1] == node.value:
        file.edit(start, end, old[0] + new + old[0])


def rename_dotted(project, table, text: str) -> str:
    """`vitviz.module.name.more`, where the name has another one now."""
    parts = text.split(".")
    for n in range(len(parts) - 1, 0, -1):
        head = ".".join(parts[:n])
        if project.is_module(head):
            found = project.resolve(("from", head, parts[n]))
            if found and found[0] == "def" and found[1:] in table:
                parts[n] = table[found[1:]]
                return ".".join(parts)
            return text
    return text


def documents(root: Path, project, table, words: dict[str, str]) -> None:
    """Markdown and notebooks: dotted names, and in backticks and code the words that mean one thing only."""
    pattern = (
        re.compile(r"\b(" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + r")\b")
        if words
        else None
    )
    for path in git_files(root, "*.md", "*.ipynb", "*.yml", "vitviz/*.js", "vitviz/*.json"):
        if path == "CHANGELOG.md" or path.startswith("weights/"):
            continue
        text = (root / path).read_text(encoding="utf-8")
        new = re.sub(r"\bvitviz(?:\.\w+)+", lambda one: rename_dotted(project, table, one[0]), text)
        if pattern and not path.startswith("vitviz/"):
            new = re.sub(r"`[^`\n]+`", lambda span: pattern.sub(lambda one: words[one[0]], span[0]), new)
            new = re.sub(
                r"```python\n.*?```",
                lambda span: pattern.sub(lambda one: words[one[0]], span[0]),
                new,
                flags=re.S,
            )
        if new != text:
            (root / path).write_text(new, encoding="utf-8")


def homes(project) -> None:
    """Imports of a package's names that no longer fit a line come from the modules that define them."""
    for file in project.files.values():
        if not file.path.startswith(("vitviz/", "tests/")):
            continue
        for node in ast.walk(file.tree):
            if (
                not isinstance(node, ast.ImportFrom)
                or node.level
                or not node.module
                or node.end_lineno - node.lineno < 3
            ):
                continue
            if (
                not project.is_module(node.module)
                or any(one.asname for one in node.names)
                or node.module in ("vitviz", "vitviz.analyses")
            ):
                continue
            groups: dict[str, list[str]] = {}
            for one in node.names:
                found = project.resolve(("from", node.module, one.name))
                home = found[1] if found and found[0] == "def" else node.module
                groups.setdefault(home, []).append(one.name)
            start, end = file.at(node.lineno, node.col_offset), file.at(node.end_lineno, node.end_col_offset)
            if len(groups) < 2 or "#" in file.text[start:end]:
                continue
            indent = " " * node.col_offset
            lines = [f"from {home} import {', '.join(sorted(names))}" for home, names in groups.items()]
            if sum(1 for one in lines if len(indent + one) <= 110) == len(lines):
                file.edit(start, end, f"\n{indent}".join(lines))
    project.save()
