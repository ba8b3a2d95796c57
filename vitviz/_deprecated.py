"""Old names of modules, classes, functions and parameters, kept for one release.

`import vitviz.record.trace` returns the module object `vitviz.traces.trace` with a DeprecationWarning.
Pickles that were written under old names load. Nothing is imported until an old name is used.
"""

import sys
import warnings
from functools import wraps
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

# two tables: a title, then lines that are continued by lines with an indent
_TABLES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").replace("\n  ", " ").split("\n\n")
_MODULES, _NAMES = (table.splitlines()[1:] for table in _TABLES)
MODULES: dict[str, str] = {}  # old -> new; the other modules of a listed package moved with it
for _line in _MODULES:
    _old, _new, *_pairs = _line.split()
    MODULES |= {_old: _new} if _old != _new else {}
    MODULES |= {f"{_old}.{a}": f"{_new}.{b}" for a, b in (one.split("=") for one in _pairs)}


NAMES = {}  # module.old -> new
for _line in _NAMES:
    _module, *_pairs = _line.split()
    NAMES |= {f"{_module}.{a}": b for a, b in (one.split("=") for one in _pairs)}


def present(module: str, name: str, stacklevel: int = 4) -> str:
    """Return the present name of a module's attribute that was once called `name`; warn if it differs."""
    new = NAMES.get(f"{module}.{name}", name)
    if new != name:
        warnings.warn(f"{module}.{name} is {module}.{new} now.", DeprecationWarning, stacklevel=stacklevel)
    return new


PARAMETERS = {"without": "ablation"}  # parameters of public functions: old -> new


def renamed_parameters(function):
    """Return `function`, which then also accepts its parameters' old names, with a warning."""

    @wraps(function)
    def call(*args, **given):
        for old in PARAMETERS.keys() & given.keys():
            new = PARAMETERS[old]
            warnings.warn(f"{function.__name__}: {old}= is {new}= now.", DeprecationWarning, stacklevel=2)
            given[new] = given.pop(old)
        return function(*args, **given)

    return call


def current(name: str) -> str:
    """Return the present full name of the module that was once called `name`; other names unchanged."""
    if name in MODULES:
        return MODULES[name]
    package, dot, leaf = name.rpartition(".")
    return f"{current(package)}.{leaf}" if dot else name


class Moved:
    """Import finder that resolves the old names of modules."""

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        """Return a spec, loaded by this finder, for a module's old name; None for any other module."""
        if not fullname.startswith("vitviz.") or current(fullname) == fullname:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its new name and return it, with a DeprecationWarning.

        Add the old names of its members.
        """
        new = current(spec.name)
        warnings.warn(f"{spec.name} is {new} now.", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        for name in NAMES:  # so that unpickling finds classes under their old names
            home, _, old = name.rpartition(".")
            if home == new:
                vars(module).setdefault(old, getattr(module, NAMES[name]))
        spec.loader_state = module.__spec__  # Python replaces it by the spec of the old name
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which Python replaced by that of the old name; run nothing."""
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, Moved())  # before the file finder, which would load a second copy
