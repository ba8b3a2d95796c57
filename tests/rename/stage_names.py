"""Stage 4: functions that a bare participle or preposition named get a verb or a noun."""

from __future__ import annotations

import ast
from pathlib import Path

import members
from names_table import FUNCTIONS, NESTED
from symbols import Symbols, documents, rename


def run(root: Path, log) -> None:
    project = Symbols(root)
    table = {
        (module, old): new
        for module, names in FUNCTIONS.items()
        if module in project.modules
        for old, new in names.items()
        if old in project.exports(module)
    }
    missing = [
        f"{module}.{old}"
        for module, names in FUNCTIONS.items()
        for old in names
        if (module, old) not in table
    ]
    done = rename(project, table, log)
    inner = sum(
        nested(project, module, path, new, log)
        for module, names in NESTED.items()
        for path, new in names.items()
    )
    project.save()
    documents(root, project, done, {})
    log(f"stage names: {len(done)} of {len(table)} functions, {inner} within functions; not there: {missing}")
    members.run(root, "names", log)


def nested(project, module, path, new, log) -> int:
    file = project.modules.get(module)
    if file is None:
        return 0
    *outer, old = path.split(".")
    found = [file.tree]
    for name in outer:
        found = [
            one
            for node in found
            for one in ast.walk(node)
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and one.name == name
            and one is not node
        ]
    count = 0
    for scope, name, start, node, role in file.occurrences:
        if role == "def" and name == old and scope.node in found and scope.kind == "function":
            for used_in, other, at, *_ in file.occurrences:
                if other == old and used_in.home(old) is scope:
                    if any(new in one.bound for one in [scope, *used_in.between(scope)]):
                        log(f"  left: {module}:{path}: {new} is taken")
                        break
            else:
                for used_in, other, at, *_ in file.occurrences:
                    if other == old and used_in.home(old) is scope:
                        file.edit(at, at + len(old), new)
                count = 1
    if not count:
        log(f"  not renamed: {module}:{path}")
    return count
