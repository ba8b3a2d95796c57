"""Read a checkout's Python as trees with scopes, resolve names over modules, and edit source by position."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cached_property
from pathlib import Path

FUNCS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    def __init__(self, kind, parent, node):
        self.kind, self.parent, self.node = kind, parent, node
        self.bound, self.globals, self.nonlocals = set(), set(), set()

    def home(self, name):
        """The scope in which a name used here is bound; None for a builtin."""
        scope, first = self, True
        while scope is not None:
            if name in scope.globals:
                while scope.parent:
                    scope = scope.parent
                return scope
            if name in scope.bound and name not in scope.nonlocals and (first or scope.kind != "class"):
                return scope
            first, scope = False, scope.parent
        return None

    def between(self, home):
        scope = self
        while scope is not None and scope is not home:
            yield scope
            scope = scope.parent


class File:
    """One Python file: text, tree, scopes, and edits to come."""

    def __init__(self, root: Path, path: str):
        self.root, self.path = root, path
        self.text = (root / path).read_text(encoding="utf-8")
        self.edits: dict[tuple[int, int], str] = {}

    @cached_property
    def tree(self):
        return ast.parse(self.text)

    @cached_property
    def starts(self):
        offsets, at = [0], 0
        for line in self.text.split("\n"):
            at += len(line) + 1
            offsets.append(at)
        return offsets

    @cached_property
    def lines(self):
        return self.text.split("\n")

    def at(self, line, col):
        """Offset in characters of an ast position (columns are UTF-8 bytes)."""
        text = self.lines[line - 1]
        if not text.isascii():
            col = len(text.encode()[:col].decode())
        return self.starts[line - 1] + col

    @property
    def module(self):
        parts = self.path[:-3].split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def is_package(self):
        return self.path.endswith("/__init__.py")

    def edit(self, start, end, new):
        if self.text[start:end] != new:
            old = self.edits.get((start, end))
            assert old in (None, new), (self.path, start, old, new)
            self.edits[start, end] = new

    def save(self):
        if self.edits:
            text = self.text
            last = len(text) + 1
            for (start, end), new in sorted(self.edits.items(), reverse=True):
                assert end <= last, (self.path, text[start:end], new)
                text, last = text[:start] + new + text[end:], start
            (self.root / self.path).write_text(text, encoding="utf-8")

    # occurrences: (scope, name, start, node, role); role: load store def param import global
    @cached_property
    def occurrences(self):
        out = []
        module = Scope("module", None, self.tree)
        self.module_scope = module
        self.scope_of = {}

        def word(name, node, after=None):
            """Where `name` stands in the source of a node that begins with other tokens."""
            start = self.at(node.lineno, node.col_offset)
            if after:
                start = re.compile(after).search(self.text, start).end()
            return re.compile(rf"\b{re.escape(name)}\b").search(self.text, start).start()

        def bind(scope, name, start, node, role):
            target = scope
            if role in ("walrus",):
                while target.kind == "comp":
                    target = target.parent
            if name not in target.globals and name not in target.nonlocals:
                target.bound.add(name)
            out.append((target, name, start, node, role))

        def args_of(args, scope):
            for one in [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]:
                if one is not None:
                    bind(scope, one.arg, self.at(one.lineno, one.col_offset), one, "param")

        def visit(node, scope):
            self.scope_of[node] = scope
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                bind(scope, node.name, word(node.name, node, r"def\s+"), node, "def")
                for one in node.decorator_list:
                    visit(one, scope)
                a = node.args
                for one in [
                    *a.defaults,
                    *[d for d in a.kw_defaults if d],
                    *([node.returns] if node.returns else []),
                ]:
                    visit(one, scope)
                for one in [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg]:
                    if one is not None and one.annotation:
                        visit(one.annotation, scope)
                inner = Scope("function", scope, node)
                declare(node.body, inner)
                args_of(a, inner)
                for one in node.body:
                    visit(one, inner)
            elif isinstance(node, ast.Lambda):
                a = node.args
                for one in [*a.defaults, *[d for d in a.kw_defaults if d]]:
                    visit(one, scope)
                inner = Scope("function", scope, node)
                args_of(a, inner)
                visit(node.body, inner)
            elif isinstance(node, ast.ClassDef):
                bind(scope, node.name, word(node.name, node, r"class\s+"), node, "def")
                for one in [*node.decorator_list, *node.bases, *node.keywords]:
                    visit(one, scope)
                inner = Scope("class", scope, node)
                declare(node.body, inner)
                for one in node.body:
                    visit(one, inner)
            elif isinstance(node, COMPS):
                inner = Scope("comp", scope, node)
                visit(node.generators[0].iter, scope)
                for n, gen in enumerate(node.generators):
                    visit(gen.target, inner)
                    if n:
                        visit(gen.iter, inner)
                    for one in gen.ifs:
                        visit(one, inner)
                for part in ("elt", "key", "value"):
                    if hasattr(node, part):
                        visit(getattr(node, part), inner)
            elif isinstance(node, ast.Name):
                start = self.at(node.lineno, node.col_offset)
                if isinstance(node.ctx, ast.Load):
                    out.append((scope, node.id, start, node, "load"))
                else:
                    bind(scope, node.id, start, node, "store")
            elif isinstance(node, ast.NamedExpr):
                bind(
                    scope, node.target.id, self.at(node.target.lineno, node.target.col_offset), node, "walrus"
                )
                visit(node.value, scope)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                for alias in node.names:
                    if alias.name == "*":
                        continue
                    name = alias.asname or alias.name.split(".")[0]
                    start = self.at(alias.lineno, alias.col_offset)
                    if alias.asname:
                        start = word(alias.asname, alias, r"\bas\s+")
                    bind(scope, name, start, (node, alias), "import")
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                at = self.at(node.lineno, node.col_offset)
                for name in node.names:
                    start = re.compile(rf"\b{name}\b").search(self.text, at).start()
                    out.append((scope, name, start, node, "global"))
            elif isinstance(node, ast.ExceptHandler):
                if node.name:
                    bind(scope, node.name, word(node.name, node, r"\bas\s+"), node, "store")
                for one in ast.iter_child_nodes(node):
                    visit(one, scope)
            elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
                if isinstance(node, ast.MatchAs) and node.pattern:
                    visit(node.pattern, scope)
                    end = self.at(node.end_lineno, node.end_col_offset)
                    bind(scope, node.name, end - len(node.name), node, "store")
                else:
                    bind(scope, node.name, word(node.name, node), node, "store")
            elif isinstance(node, ast.MatchMapping) and node.rest:
                for one in ast.iter_child_nodes(node):
                    visit(one, scope)
                scope.bound.add(node.rest)
            else:
                for one in ast.iter_child_nodes(node):
                    visit(one, scope)

        def declare(body, scope):
            for statement in body:
                for one in ast.walk(statement):
                    if isinstance(one, ast.Global):
                        scope.globals.update(one.names)
                    elif isinstance(one, ast.Nonlocal):
                        scope.nonlocals.update(one.names)

        for one in self.tree.body:
            visit(one, module)
        return out

    @cached_property
    def strings(self):
        """String constants with the place of their text; f-strings' parts are not among them."""
        return [
            one for one in ast.walk(self.tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]


def git_files(root: Path, *patterns) -> list[str]:
    out = subprocess.run(
        ["git", "ls-files", "-z", *(patterns or ["."]), ":!tests/rename", ":!tests/golden"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout
    return [
        one
        for one in out.decode().split("\0")
        if one and (root / one).is_file() and not (root / one).is_symlink()
    ]


class Project:
    """All Python files of a checkout."""

    def __init__(self, root: Path):
        self.root = root
        self.files = {path: File(root, path) for path in git_files(root, "*.py")}
        self.modules = {one.module: one for one in self.files.values()}
        self.packages = {m.rsplit(".", 1)[0] for m in self.modules if "." in m}
        self._exports = {}

    def save(self):
        for one in self.files.values():
            one.save()

    def is_module(self, name):
        return name in self.modules or name in self.packages

    def exports(self, module) -> dict[str, tuple]:
        """Top-level name -> ("def", module, name) | ("module", m) | ("from", m, name)."""
        if module in self._exports:
            return self._exports[module]
        found = self._exports[module] = {}
        file = self.modules.get(module)
        if file is None:
            return found
        for scope, name, _, node, role in file.occurrences:
            if scope is not file.module_scope or role == "load":
                continue
            if role == "import":
                target = self.target(*node)
                if target:
                    found[name] = target
            elif role in ("def", "store", "walrus"):
                found[name] = ("def", module, name)
        found.update(self.special(module))
        return found

    def special(self, module):
        return {}

    def target(self, node, alias):
        """What an import statement's alias binds."""
        if isinstance(node, ast.Import):
            name = alias.name if alias.asname else alias.name.split(".")[0]
            return ("module", name) if self.is_module(name) else None
        if node.module is None or node.level:
            return None
        if not self.is_module(node.module):
            return None
        return ("from", node.module, alias.name)

    def resolve(self, target, depth=0):
        """("def", module, name) or ("module", name), through re-exports that keep the name; None if unknown."""
        if target is None or depth > 20:
            return None
        if target[0] in ("def", "module"):
            return target
        _, module, name = target
        here = self.exports(module).get(name)
        if here == target:  # a package that imports its own module
            here = None
        if here is not None:
            if here[0] == "from" and here[2] == name or here[0] in ("def",) and here[2] == name:
                return self.resolve(here, depth + 1)
            if here[0] == "module":
                return here
            return ("def", module, name)
        if self.is_module(f"{module}.{name}"):
            return ("module", f"{module}.{name}")
        return None

    def binding(self, file, scope, name):
        """What a name means that is used in a scope: resolved target, or None."""
        home = scope.home(name)
        if home is None:
            return None
        key = (home, name)
        cache = file.__dict__.setdefault("_bindings", {})
        if not cache.get("filled"):
            cache["filled"] = True
            for s, n, _, node, role in file.occurrences:
                if role == "import":
                    cache[s, n] = self.target(*node)
                elif role in ("def", "store", "walrus", "param"):
                    if s is file.module_scope:
                        cache.setdefault((s, n), ("def", file.module, n))
                    else:
                        cache.setdefault((s, n), None)
        return self.resolve(cache.get(key))

    def expression(self, file, node):
        """What a Name or Attribute chain means: a module or a top-level definition."""
        if isinstance(node, ast.Name):
            scope = file.scope_of.get(node)
            return scope and self.binding(file, scope, node.id)
        if isinstance(node, ast.Attribute):
            inner = self.expression(file, node.value)
            if inner and inner[0] == "module":
                return self.resolve(("from", inner[1], node.attr))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "paper"
            and len(node.args) == 1
            and isinstance(node.args[0], ast.Constant)
        ):
            return ("module", f"vitviz.charts.mpl.{node.args[0].value}")  # which vitviz.export.figure imports
        return None
