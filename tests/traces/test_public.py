"""What lay elsewhere in the last release is still found there, as the very same module."""

import importlib
import subprocess
import sys

import pytest

import vitviz
from vitviz._deprecated import MODULES


def test_what_moved_is_found_at_its_old_name():
    for old, now in MODULES.items():
        sys.modules.pop(old, None)
        with pytest.warns(DeprecationWarning, match=f"{old} is {now} now"):
            found = importlib.import_module(old)
        assert found is importlib.import_module(now), old
        assert found.__spec__.name == found.__name__ == now
        assert old.count(".") > 1 or getattr(vitviz, old.removeprefix("vitviz.")) is found


@pytest.mark.processes
def test_an_old_name_costs_nothing_until_it_is_used():
    code = "import sys, vitviz; from vitviz import samples; vitviz.stopping; "
    code += "print({'torch', 'timm', 'vitviz.traces.trace', 'importlib.abc'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "set()"
