"""Bundle of several ES modules as one script, for HTML documents that have no address to import modules from.

Each module becomes an async function of its exports, which runs on its first import. Names of the bundle
begin with $; no module uses such names. The bundler supports only the syntax of vitviz's own modules (named,
default and star imports at the top, exports of declarations, `import()` of a relative path) and rejects
anything else. Circular imports would deadlock and are rejected too.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Mapping

_IMPORT = re.compile(
    r"^import\s+(?:(?P<default>\w+)|\{(?P<names>[^}]*)\}|\*\s+as\s+(?P<all>\w+))\s+from\s+"
    r"['\"](?P<path>[^'\"]+)['\"];?",
    re.M,
)
_EXPORT = re.compile(r"^export\s+(?P<what>(?:async\s+)?function\*?|const|class)\s+(?P<name>\w+)", re.M)
_DEFAULT = re.compile(r"^export\s+default\s+", re.M)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.M)

LOADER = """
const $made = {};
const $step = (parts, part) => (part === '..' ? parts.slice(0, -1) : part === '.' ? parts : [...parts, part]);
const $resolved = (from, to) => to.split('/').reduce($step, from.split('/').slice(0, -1)).join('/');
const $load = (path) => ($made[path] ??= (async () => {
  const exports = {};
  await $modules[path](exports, $load, (to) => $load($resolved(path, to)));
  return exports;
})());
"""


def bundle_modules(sources: Mapping[str, str], wanted: Iterable[str], also: Iterable[str] = ()) -> str:
    """Return a script that defines `$load(path)`, a promise of the exports of a module.

    Args:
        sources: Source text by module path.
        wanted: Modules to include, with all modules that they import.
        also: Further modules, which only `import()` loads.

    Raises:
        ValueError: For an unknown module, circular imports or unsupported syntax.
    """
    modules: dict[str, str] = {}
    for path in (*also, *wanted):
        _gather(path, sources, modules, ())
    functions = ",\n".join(f"{json.dumps(path)}: {text}" for path, text in modules.items())
    return f"'use strict';\nconst $modules = {{\n{functions}\n}};\n{LOADER}"


def _gather(path: str, sources: Mapping[str, str], functions: dict[str, str], above: tuple[str, ...]) -> None:
    """Add the JavaScript of module `path` to `functions`, after all modules that it imports.

    Raise ValueError for an unknown path or circular imports; `above` are the importers.
    """
    if path in above:
        raise ValueError(f"Modules import each other in a circle: {' → '.join((*above, path))}.")
    if path in functions:
        return
    if path not in sources:
        raise ValueError(f"{above[-1] if above else 'A page'} imports {path}, which is no module.")
    for one in _IMPORT.finditer(sources[path]):
        _gather(_resolve(path, one["path"]), sources, functions, (*above, path))
    functions[path] = _function(path, sources[path])


def _function(path: str, text: str) -> str:
    """Return a module's JavaScript as an async function of ($exports, $load, $import)."""

    def imported(statement: re.Match) -> str:
        whole = f"await $load({json.dumps(_resolve(path, statement['path']))})"
        if statement["default"]:
            return f"const {statement['default']} = ({whole}).default;"
        names = statement["all"] or "{" + re.sub(r"\s+as\s+", ": ", statement["names"]) + "}"
        return f"const {names} = {whole};"

    names = [match["name"] for match in _EXPORT.finditer(text)]
    text = _IMPORT.sub(imported, text)
    text = _DEFAULT.sub("$exports.default = ", _EXPORT.sub(r"\g<what> \g<name>", text))
    left = _LEFT.search(text)
    if left:
        raise ValueError(
            f"{path} has {left[0][:80]!r}, which a page cannot carry; write it as the other modules do."
        )
    text = re.sub(r"\bimport\(", "$import(", text)
    given = "".join(f"$exports.{name} = {name};\n" for name in names)
    return f"async ($exports, $load, $import) => {{\n{text}\n{given}}}"


def _resolve(path: str, to: str) -> str:
    """Return the path of the module that `path` imports as `to`, a relative path."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
