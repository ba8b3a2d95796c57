"""Modules of the last release remain importable under their old names, as identical objects."""

import importlib
import subprocess
import sys

import pytest

import vitviz
from vitviz._deprecated import MODULES


def test_moved_module_is_importable_under_old_name():
    for old, new in MODULES.items():
        sys.modules.pop(old, None)
        with pytest.warns(DeprecationWarning, match=f"{old} is {new} now"):
            module = importlib.import_module(old)
        assert module is importlib.import_module(new), old
        assert module.__spec__.name == module.__name__ == new
        assert old.count(".") > 1 or getattr(vitviz, old.removeprefix("vitviz.")) is module


@pytest.mark.processes
def test_unused_old_names_import_nothing():
    code = "import sys, vitviz; from vitviz import samples; vitviz.stopping; "
    code += "print({'torch', 'timm', 'vitviz.traces.trace', 'importlib.abc'} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
