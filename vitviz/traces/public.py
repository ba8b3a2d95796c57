"""The public names of `vitviz`, imported on first use, and its version."""

import sys
from functools import cache
from importlib import import_module

from vitviz._deprecated import current, present
from vitviz.traces.modes import without_modes

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST as a literal: importing ast takes ten milliseconds


def lazy_exports(package: str, file: str) -> tuple:
    """Return `__getattr__`, `__dir__` and `__all__` for the names that a file imports under TYPE_CHECKING.

    Editors see the imports, and nothing is imported before its first use.
    """
    with open(file, encoding="utf-8") as source:
        tree = compile(source.read(), file, "exec", _ONLY_AST)
    (block,) = (one for one in tree.body if hasattr(one, "test"))
    homes = {name.name: line.module for line in block.body for name in line.names}
    names = sorted(homes)

    def get(name: str):
        name = present(package, name)
        if name not in homes:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(names)}.")
        return getattr(import_module(homes[name]), name)

    return get, lambda: names, names


__version__ = "0.2.0"
_found, __dir__, __all__ = lazy_exports("vitviz", sys.modules["vitviz"].__file__)


@cache
def _public(name: str):
    """Return a public object of vitviz; if it is a function, run without autocast and inference mode."""
    return without_modes(_found(name))


_PACKAGES = "analyses charts diagnostics engine export notebook surveys traces views".split()


def __getattr__(name: str):
    if name in _PACKAGES:
        return import_module(f"vitviz.{name}")
    module = current(f"vitviz.{name}")
    # once vitviz is imported, its submodules are also reachable as attributes under their old names
    if module != f"vitviz.{name}":
        return import_module(module)
    return _public(present("vitviz", name, stacklevel=3))  # one object under both names
