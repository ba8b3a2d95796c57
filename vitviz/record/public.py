"""What `import vitviz` hands on: its version, its names when first used, and modules' old places."""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without the ten milliseconds of importing ast


def lazily(package: str, file: str) -> tuple:
    """`__getattr__`, `__dir__`, `__all__` of what a file imports under TYPE_CHECKING, for editors."""
    with open(file, encoding="utf-8") as source:
        tree = compile(source.read(), file, "exec", _ONLY_AST)
    (block,) = (one for one in tree.body if hasattr(one, "test"))
    homes = {name.name: line.module for line in block.body for name in line.names}
    names = sorted(homes)

    def found(name: str):
        if name not in homes:
            raise AttributeError(f"{package} has no {name!r}; it has {', '.join(names)}.")
        return getattr(import_module(homes[name]), name)

    return found, lambda: names, names


class Moved:
    """For a release, `import vitviz.trace` finds `vitviz.record.trace`, with a DeprecationWarning."""

    names = "grid heap progress readout runs samples sentence shown stopping trace"
    now = {f"vitviz.{name}": f"vitviz.record.{name}" for name in names.split()}
    now |= {f"vitviz.{name}": f"vitviz.engine.asking.{name}" for name in ("experiments", "maps", "models")}
    now |= {"vitviz.attention": "vitviz.record.trace", "vitviz.frames": "vitviz.record.shown"}
    now["vitviz.languages"] = "vitviz.views.languages"

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self.now else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = self.now[spec.name]
        warnings.warn(f"{spec.name} is {new} now.", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        spec.loader_state = module.__spec__  # which Python replaces by the old name's
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.append(Moved())
__version__ = "0.2.0"
_found, __dir__, __all__ = lazily("vitviz", sys.modules["vitviz"].__file__)


def __getattr__(name: str):
    if f"vitviz.{name}" in Moved.now:  # of what was imported once, all could be reached as an attribute
        return import_module(Moved.now[f"vitviz.{name}"])
    return _found(name)
