"""Stage 1: packages and modules move; imports, strings, scripts, docs and settings follow."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import tokenize
from pathlib import Path

import deprecated
from moves import FOLDERS, NAMES, TEXT_FILES, WORDS
from pycode import Project, git_files


def new_path(path: str) -> str:
    folder, _, name = path.rpartition("/")
    name = NAMES.get(path, name)
    for old in sorted(FOLDERS, key=len, reverse=True):
        if folder == old or folder.startswith(old + "/"):
            folder = FOLDERS[old] + folder[len(old) :]
            break
    return f"{folder}/{name}" if folder else name


class Paths:
    """Old paths and dotted names to new ones."""

    def __init__(self, root: Path):
        self.files = {one: new_path(one) for one in git_files(root)}
        self.folders = {}
        for old in self.files:
            parts = old.split("/")
            for n in range(1, len(parts)):
                folder = "/".join(parts[:n])
                self.folders[folder] = new_path(folder + "/x")[:-2]
        self.modules = {}
        for old, new in self.files.items():
            if old.endswith(".py"):
                self.modules[dotted(old)] = dotted(new)
        for old, new in self.folders.items():
            self.modules.setdefault(old.replace("/", "."), new.replace("/", "."))
        self.children = {}
        for one in [*self.files, *self.folders]:
            folder, _, name = one.rpartition("/")
            self.children.setdefault(folder, set()).add(name)

    def module(self, name: str) -> str:
        return self.modules.get(name, name)

    def dotted(self, text: str) -> str:
        """The same with the longest leading part that is a module under its new name."""
        parts = text.split(".")
        for n in range(len(parts), 1, -1):
            head = ".".join(parts[:n])
            if head in self.modules:
                return ".".join([self.modules[head], *parts[n:]])
        return text

    def path(self, text: str, inside_tests: bool = False) -> str:
        """A path as it is written somewhere, under its new name; unchanged where it is none of ours."""
        trailing = text.endswith("/")
        bare = text.rstrip("/")
        for base in ("", "vitviz/", "tests/") if inside_tests else ("", "vitviz/"):
            parts = (base + bare).split("/")
            if parts[0] not in ("vitviz", "tests") or len(parts) < 2:
                continue
            if (
                not base
                and len(parts) == 2
                and not trailing
                and (base + bare) not in self.files
                and (base + bare) not in self.folders
            ):
                continue
            for n in range(len(parts), 1, -1):
                head = "/".join(parts[:n])
                if head in self.files and n == len(parts):
                    new = self.files[head]
                elif head in self.folders and (n < len(parts) or trailing or base == "" or "/" in bare):
                    if (
                        n < len(parts)
                        and base
                        and n == 2
                        and "." not in parts[-1]
                        and "*" not in parts[-1]
                        and parts[2] not in self.children[head]
                    ):
                        continue
                    new = "/".join([self.folders[head], *parts[n:]])
                    if n + 1 == len(parts) and "/".join(parts) in NAMES:
                        new = new_path("/".join(parts))
                else:
                    continue
                if base and not new.startswith(base):
                    return text
                return new[len(base) :] + ("/" if trailing else "")
        return text


def dotted(path: str) -> str:
    return path[:-3].replace("/", ".").removesuffix(".__init__")


PATH = re.compile(r"(?<![\w./*-])/?((?:\.\./)*)([A-Za-z_][\w.-]*(?:/[\w.*{}$-]+)*/?)(?![\w])")
DOTTED = re.compile(r"(?<![\w./])(vitviz|tests)(\.[A-Za-z_]\w*)+")


def prose(text: str, paths: Paths, inside_tests: bool = False) -> str:
    """Dotted names and paths in a text under their new names."""
    text = DOTTED.sub(lambda one: paths.dotted(one[0]), text)

    def path(one: re.Match) -> str:
        if "/" not in one[2]:
            return one[0]
        new = paths.path(one[2], inside_tests)
        return one[0] if new == one[2] else one[0][: one.start(2) - one.start()] + new

    text = PATH.sub(path, text)
    arrows = WORDS["tests/test_layering.py"]
    return re.sub(
        r"`[^`]*←[^`]*`",
        lambda one: re.sub(r"\w+", lambda word: arrows.get(word[0], word[0]), one[0]),
        text,
    )


class Modules(Project):
    def special(self, module):
        if module == "vitviz.views.late":
            return {
                name: ("module", place)
                for name, place in places(self.modules[module].text).items()
                if place.startswith("vitviz")
            }
        return {}


def places(text: str) -> dict[str, str]:
    space: dict = {}
    exec(compile(text, "late.py", "exec"), space)
    return space["PLACES"]


def lazy_text(text: str, paths: Paths) -> str:
    """late.py with the new names of modules, and the studies told apart from the analyses of the same name."""
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("ANALYSES", "ASKING"):
            home = {"ANALYSES": "vitviz.analyses", "ASKING": "vitviz.engine.asking"}[node.targets[0].id]
            names = [paths.module(f"{home}.{one.value}").rpartition(".")[2] for one in node.value.elts]
            old = ast.get_source_segment(text, node)
            text = text.replace(
                old,
                f"{node.targets[0].id} = ({', '.join(f'{one!r}' for one in sorted(names))})".replace(
                    "'", '"'
                ),
            )
    text = text.replace("ASKING", "STUDIES").replace(
        '{name: f"vitviz.engine.asking.{name}"',
        '{name + "_study" * (name in ANALYSES): f"vitviz.engine.studies.{name}"',
    )
    text = text.replace('("made", "over")', '("compute", "image_set")')
    return prose(text, paths)


def run(root: Path, log) -> None:
    if not (root / "vitviz/record").is_dir():
        log("stage modules: vitviz/record is not there; nothing to do")
        return
    paths = Paths(root)
    project = Modules(root)
    old_places = places(project.modules["vitviz.views.late"].text)
    new_lazy = lazy_text(project.modules["vitviz.views.late"].text, paths)
    new_names = {place: name for name, place in places(new_lazy).items()}
    lazy_names = {name: new_names[paths.module(place)] for name, place in old_places.items()}
    moved_before = deprecated.moved_before(project.modules["vitviz.record.public"].text)

    kept_local = []
    for file in project.files.values():
        python(project, file, paths, lazy_names, kept_local)
    for file in project.files.values():
        strings(file, paths)
    project.save()
    (root / "vitviz/views/late.py").write_text(new_lazy, encoding="utf-8")

    scripts = [one for one in git_files(root, "*.js") if not one.startswith("weights/")]
    for path in scripts:
        javascript(root, path, paths)
    for path in git_files(root, *TEXT_FILES):
        if (
            path.endswith(".js")
            or path.startswith("weights/")
            and not path.endswith(".md")
            or path == "CHANGELOG.md"
            or path.startswith("tests/golden/")
        ):
            continue
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        new = prose(text, paths, path.startswith("tests/"))
        if new != text:
            (root / path).write_text(new, encoding="utf-8")

    moves = [(old, new) for old, new in paths.files.items() if old != new]
    taken = {new for _, new in moves} & set(paths.files) - {old for old, _ in moves}
    assert not taken, taken
    for old, new in moves:  # in two steps: a new name may be another's old one
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", old, old + ".moving"], cwd=root, check=True)
    for old, new in moves:
        subprocess.run(["git", "mv", old + ".moving", new], cwd=root, check=True)
    for folder in sorted({os.path.dirname(old) for old, _ in moves}, key=len, reverse=True):
        place = root / folder
        if place.is_dir():
            for cache in place.rglob("__pycache__"):
                subprocess.run(["rm", "-rf", str(cache)], check=True)
            for stub in place.rglob("*.pyi"):  # which Gradio writes
                stub.unlink()
            while place != root and place.is_dir() and not any(place.iterdir()):
                place.rmdir()
                place = place.parent
    words(root)
    layout(root)
    dynamic(root, log)
    deprecated.write(root, paths, moved_before)
    log(f"stage modules: {len(moves)} files moved")
    for one in kept_local:
        log(f"  local name kept: {one}")


def python(project, file, paths, lazy_names, kept_local):
    occurrences = file.occurrences
    renamed: dict[tuple, str] = {}  # (scope, local name) -> new local name
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                new = paths.module(alias.name)
                if new != alias.name:
                    at = file.at(alias.lineno, alias.col_offset)
                    file.edit(at, at + len(alias.name), new)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            import_from(project, file, node, paths, renamed, kept_local)
        elif isinstance(node, ast.Attribute):
            inner = project.expression(file, node.value)
            if inner and inner[0] == "module":
                end = file.at(node.end_lineno, node.end_col_offset)
                start = end - len(node.attr)
                if inner[1] == "vitviz.views.late":
                    if lazy_names.get(node.attr, node.attr) != node.attr:
                        file.edit(start, end, lazy_names[node.attr])
                    continue
                target = project.resolve(("from", inner[1], node.attr))
                if target and target[0] == "module" and target[1] == f"{inner[1]}.{node.attr}":
                    file.edit(start, end, paths.module(target[1]).rpartition(".")[2])
    for scope, name, start, node, role in occurrences:
        if role == "import":
            continue
        home = scope.home(name)
        new = renamed.get((home, name))
        if new:
            file.edit(start, start + len(name), new)


def import_from(project, file, node, paths, renamed, kept_local):
    scope = next((s for s, _, _, n, role in file.occurrences if role == "import" and n[0] is node), None)
    groups: dict[str, list[str]] = {}
    changed = False
    edits = []
    for alias in node.names:
        target = project.resolve(("from", node.module, alias.name))
        full = f"{node.module}.{alias.name}"
        if target == ("module", full):
            parent, _, leaf = paths.module(full).rpartition(".")
        else:
            parent, leaf = paths.module(node.module), alias.name
        changed |= parent != node.module or leaf != alias.name
        text = leaf
        if alias.asname:
            text += f" as {alias.asname}"
        elif leaf != alias.name:
            new = renamed.get((scope, alias.name)) or local_name(file, scope, alias.name, leaf)
            if new is None:
                text += f" as {alias.name}"
                kept_local.append(f"{file.path}: {leaf} as {alias.name}")
            else:
                renamed[scope, alias.name] = new
        groups.setdefault(parent, []).append(text)
        start = file.at(alias.lineno, alias.col_offset)
        edits.append((start, file.at(alias.end_lineno, alias.end_col_offset), text))
    if not changed:
        return
    start = file.at(node.lineno, node.col_offset)
    if len(groups) == 1:
        (parent,) = groups
        at = file.text.index(node.module, start)
        file.edit(at, at + len(node.module), parent)
        for one in edits:
            file.edit(*one)
    else:
        end = file.at(node.end_lineno, node.end_col_offset)
        source = file.text[start:end]
        assert "#" not in source, (file.path, source)
        indent = " " * node.col_offset
        file.edit(
            start,
            end,
            f"\n{indent}".join(
                f"from {parent} import {', '.join(names)}" for parent, names in groups.items()
            ),
        )


def local_name(file, scope, old, new) -> str | None:
    """The new name, where nothing in the way of any use is called so."""
    if new in scope.bound:
        return None
    for used_in, name, *_ in file.occurrences:
        if name == old and used_in.home(name) is scope:
            if any(new in one.bound for one in used_in.between(scope)):
                return None
    return new


def strings(file, paths):
    """Strings and comments: dotted names and paths."""
    tests = file.path.startswith("tests/")
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            new = prose(token.string, paths, tests)
            if new != token.string:
                start = file.starts[token.start[0] - 1] + token.start[1]
                file.edit(start, start + len(token.string), new)


IMPORT = re.compile(r"""((?:\bfrom|\bimport\(?|\bimport)\s*)(['"`])(\.\.?/[^'"`]*)\2""")


def javascript(root, path, paths):
    text = (root / path).read_text(encoding="utf-8")
    here, there = os.path.dirname(path), os.path.dirname(new_path(path))

    def moved(one: re.Match) -> str:
        old = os.path.normpath(os.path.join(here, one[3]))
        head, dollar, rest = old.partition("${")
        if dollar:
            new = paths.folders.get(head.rstrip("/"), head.rstrip("/")) + "/" + dollar + rest
        else:
            new = new_path(old)
        relative = os.path.relpath(new, there)
        relative = relative if relative.startswith(".") else f"./{relative}"
        return f"{one[1]}{one[2]}{relative}{one[2]}"

    new = prose(IMPORT.sub(moved, text), paths)
    if new != text:
        (root / path).write_text(new, encoding="utf-8")


def words(root):
    """Strings that are a folder's bare name, in the files that say so."""
    for path, table in WORDS.items():
        place = root / path
        if not table or not place.is_file():
            continue
        text = place.read_text(encoding="utf-8")
        out, last, starts = [], 0, [0]
        for line in text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.STRING and token.string[1:-1] in table:
                start = starts[token.start[0] - 1] + token.start[1]
                out += [text[last:start], f'"{table[token.string[1:-1]]}"']
                last = start + len(token.string)
        place.write_text("".join([*out, text[last:]]), encoding="utf-8")


def layout(root):
    """README's and CONTRIBUTING's words for packages, and the columns of README's layout."""
    packages = WORDS["tests/test_layering.py"]
    for path in ("README.md", "CONTRIBUTING.md", "docs/testing.md"):
        place = root / path
        text = place.read_text(encoding="utf-8")
        text = re.sub(
            r"`(record|figures|canvas|prints|ui|command)`", lambda one: f"`{packages[one[1]]}`", text
        )
        text = text.replace(
            "page/, answers/, memory/, door/ and words/", "page/, api/, services/, security/ and i18n/"
        )
        text = text.replace("charts; paper/ sets", "charts; mpl/ sets")
        text = re.sub(r"^(vitviz/\w+/) +(?=\S)", lambda one: f"{one[1]:<17} ", text, flags=re.M)
        place.write_text(text, encoding="utf-8")


DYNAMIC = [  # modules that are named by a word: files, pattern, new
    ("vitviz", r'\bpaper\("pen"\)', 'paper("drawing")'),
    ("vitviz", r'\bpaper\("plates"\)', 'paper("spec")'),
    ("vitviz", r'\bpaper\("rooms"\)', 'paper("layout")'),
    ("vitviz", r'\bpaper\("sheet"\)', 'paper("page")'),
    ("tests", r'\bpaper\("sheet"\)', 'paper("page")'),
    ("vitviz/views", r'_has\("printed\.py"\)', '_has("figure.py")'),
    ("vitviz/views", r'__module__\}\.printed"', '__module__}.figure"'),
    ("vitviz/views", r"\bprinted\.py\b", "figure.py"),
    ("CONTRIBUTING.md", r"`printed\.py`", "`figure.py`"),
    ("docs", r"`printed\.py`", "`figure.py`"),
    ("vitviz/engine/studies/text.py", r'with_name\("words\.json"\)', 'with_name("words.json")'),
]


def dynamic(root, log):
    for place, pattern, new in DYNAMIC:
        whole = root / place
        files = (
            [whole] if whole.is_file() else [one for one in whole.rglob("*") if one.suffix in (".py", ".md")]
        )
        for file in files:
            text = file.read_text(encoding="utf-8")
            changed = re.sub(pattern, new, text)
            if changed != text:
                file.write_text(changed, encoding="utf-8")
