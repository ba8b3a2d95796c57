"""Write vitviz/_deprecated.py: the one table of what was called otherwise a release ago."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

HEAD = '''"""Old names, kept for one release: modules, classes, functions and parameters, each with its new name.

`import vitviz.record.trace` finds `vitviz.traces.trace`, as the very same module, with a DeprecationWarning;
a pickle that was written under old names loads. Nothing here is imported or computed until an old name is
used.
"""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

# old package, new package: old=new for each module in it that has another name now
_TABLE = """
{modules}
"""
MODULES: dict[str, str] = {{}}  # old -> new; what lies in a package that is named here moved with it
for _line in _TABLE.strip().replace("\\n  ", " ").splitlines():
    _old, _new, *_pairs = _line.split()
    MODULES |= {{_old: _new}} if _old != _new else {{}}
    MODULES |= {{f"{{_old}}.{{a}}": f"{{_new}}.{{b}}" for a, b in (one.split("=") for one in _pairs)}}


_NAMES = """
"""  # module old=new
NAMES = {{}}  # module.old -> new
for _line in _NAMES.strip().replace("\\n  ", " ").splitlines():
    _module, *_pairs = _line.split()
    NAMES |= {{f"{{_module}}.{{a}}": b for a, b in (one.split("=") for one in _pairs)}}


def present(module: str, name: str) -> str:
    """Return the present name of what a module once called `name`, with a warning where that is another."""
    new = NAMES.get(f"{{module}}.{{name}}", name)
    if new != name:
        warnings.warn(f"{{module}}.{{name}} is {{module}}.{{new}} now.", DeprecationWarning, stacklevel=4)
    return new


def current(name: str) -> str:
    """Return the present name of a module that was once called `name`."""
    if name in MODULES:
        return MODULES[name]
    package, dot, leaf = name.rpartition(".")
    return f"{{current(package)}}.{{leaf}}" if dot else name


class Moved:
    """Finds modules by their old names."""

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if not fullname.startswith("vitviz.") or current(fullname) == fullname:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = current(spec.name)
        warnings.warn(f"{{spec.name}} is {{new}} now.", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        for name in NAMES:  # so that a pickle finds its classes
            home, _, old = name.rpartition(".")
            if home == new:
                vars(module).setdefault(old, getattr(module, NAMES[name]))
        spec.loader_state = module.__spec__  # which Python replaces by the old name's
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, Moved())  # before the finder of files, which would load a second copy
'''


def moved_before(public: str) -> dict[str, str]:
    """The redirects of the release before: old -> present name, as the class `Moved` has them."""
    space: dict = {}
    (node,) = (one for one in ast.parse(public).body if isinstance(one, ast.ClassDef) and one.name == "Moved")
    body = [one for one in node.body if isinstance(one, (ast.Assign, ast.AugAssign))]
    exec(compile(ast.Module(body, []), "public.py", "exec"), space)
    return space["now"]


def write(root: Path, paths, before: dict[str, str]) -> None:
    from moves import FOLDERS

    dotted = lambda one: one.replace("/", ".")
    table = {dotted(old): dotted(new) for old, new in FOLDERS.items() if old.startswith("vitviz/")}

    def current(name):
        if name in table:
            return table[name]
        package, dot, leaf = name.rpartition(".")
        return f"{current(package)}.{leaf}" if dot else name

    taken = set(paths.modules.values())
    for old, new in sorted(paths.modules.items()):
        if old.startswith("vitviz.") and old not in taken and current(old) != new:
            table[old] = new
    for old, now in before.items():
        table[old] = paths.module(now)
    homes = {"vitviz": "vitviz", "vitviz.analyses": "vitviz.analyses", "vitviz.engine": "vitviz.engine"}
    homes |= {one: one for one in {name.rpartition(".")[0] for name in table} if current(one) == one}
    homes |= {name: new for name, new in table.items() if name in {dotted(one) for one in FOLDERS}}
    lines = []
    for home in sorted(homes):
        pairs = []
        for name, new in sorted(table.items()):
            package, _, leaf = name.rpartition(".")
            if package == home and name not in homes:
                assert new.startswith(homes[home] + "."), (name, new)
                pairs.append(f"{leaf}={new[len(homes[home]) + 1 :]}")
        if pairs or homes[home] != home or home == "vitviz":
            line = " ".join([home, homes[home], *pairs])
            lines += textwrap.wrap(line, 110, subsequent_indent="  ", break_on_hyphens=False)
    text = HEAD.format(modules="\n".join(lines))
    (root / "vitviz/_deprecated.py").write_text(text, encoding="utf-8")

    public = root / "vitviz/traces/public.py"
    source = public.read_text(encoding="utf-8")
    (node,) = (one for one in ast.parse(source).body if isinstance(one, ast.ClassDef) and one.name == "Moved")
    lines = source.split("\n")
    lines[node.lineno - 1 : node.end_lineno] = []
    source = "\n".join(lines)
    source = source.replace("sys.meta_path.append(Moved())\n", "")
    source = source.replace("import warnings\n", "").replace(
        "from importlib.machinery import ModuleSpec\n", ""
    )
    source = source.replace("from types import ModuleType\n", "\nfrom vitviz._deprecated import current\n")
    source = source.replace(
        '    if f"vitviz.{name}" in Moved.now:',
        '    module = current(f"vitviz.{name}")\n    if module != f"vitviz.{name}":',
    )
    source = source.replace('import_module(Moved.now[f"vitviz.{name}"])', "import_module(module)")
    source = source.replace(", and modules' old places.", ".")
    source = source.replace("import current", "import current, present")
    source = source.replace(
        "    def found(name: str):\n", "    def found(name: str):\n        name = present(package, name)\n"
    )
    assert "Moved" not in source
    public.write_text(source, encoding="utf-8")

    test = root / "tests/traces/test_public.py"
    if test.is_file():
        source = test.read_text(encoding="utf-8")
        source = re.sub(
            r"from vitviz\.traces\.public import Moved",
            "from vitviz._deprecated import MODULES, current",
            source,
        )
        source = source.replace("Moved.now.items()", "MODULES.items()")
        source = source.replace(
            'assert getattr(vitviz, old.removeprefix("vitviz.")) is found',
            'assert old.count(".") > 1 or getattr(vitviz, old.removeprefix("vitviz.")) is found',
        )
        source = source.replace("MODULES, current", "MODULES")
        test.write_text(source, encoding="utf-8")

    layering = root / "tests/test_layering.py"
    source = layering.read_text(encoding="utf-8")
    source = source.replace('"errors": set(),', '"errors": set(),\n    "_deprecated": set(),', 1)
    source = re.sub(r'("traces": \{)', r'\1"_deprecated", ', source, count=1)
    layering.write_text(source, encoding="utf-8")


PACKAGES = ("vitviz", "vitviz.analyses", "vitviz.surveys", "vitviz.notebook")
KEPT = ("vitviz.traces", "vitviz.analyses", "vitviz.surveys")


def names(root: Path, done: dict[tuple[str, str], str], public: dict[tuple[str, str], tuple]) -> None:
    """Add old names of classes and functions, of modules that pickles name and of packages that people import."""
    place = root / "vitviz/_deprecated.py"
    text = place.read_text(encoding="utf-8")
    before, start, rest = text.partition('_NAMES = """\n')
    body, end, after = rest.partition('"""')
    rows: dict[str, dict[str, str]] = {}
    for line in body.strip().replace("\n  ", " ").splitlines():
        module, *pairs = line.split()
        rows[module] = dict(one.split("=") for one in pairs)
    for (module, old), new in done.items():
        if module.startswith(KEPT) and not old.startswith("_"):
            rows.setdefault(module, {})[old] = new
    for (package, name), found in public.items():
        if found and found[0] == "def" and found[1:] in done and found[2] == name:
            rows.setdefault(package, {})[name] = done[found[1:]]
    lines = []
    for module in sorted(rows):
        line = " ".join([module, *(f"{old}={new}" for old, new in sorted(rows[module].items()))])
        lines += textwrap.wrap(line, 110, subsequent_indent="  ", break_on_hyphens=False)
    place.write_text(before + start + "\n".join(lines) + "\n" + end + after, encoding="utf-8")
