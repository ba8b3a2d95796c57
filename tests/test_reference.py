"""The documentation site builds without warnings and lists every public name; docs/views.md is current."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import vitviz
from vitviz.views import VIEWS

ROOT = Path(__file__).parent.parent


@pytest.mark.processes
def test_the_site_is_built_without_a_warning(tmp_path):
    """The build is strict: a broken link fails it. Figures come from the code above them."""
    command = [sys.executable, "-W", "error", str(ROOT / "docs/build.py"), str(tmp_path / "site")]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0 and "warn" not in found.stderr.lower(), found.stderr[-3000:]
    page = (tmp_path / "site/reference/vitviz.html").read_text(encoding="utf-8")
    for name in vitviz.__all__:
        assert f'id="{name}"' in page, f"{name} is not in the reference"
    for place, count in (("gallery", 6), ("wrong-maps", 7)):
        folder = tmp_path / "site" / place
        shown = re.findall(r'src="([^"]+\.svg)"', (folder / "index.html").read_text(encoding="utf-8"))
        assert len(shown) == count
        for name in shown:
            assert "<svg" in (folder / name).read_text(encoding="utf-8"), name


def test_every_public_function_and_class_says_what_it_is():
    for name in vitviz.__all__:
        thing = getattr(vitviz, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.processes
def test_the_definitions_of_the_views_are_current():
    written = (ROOT / "docs/views.md").read_text(encoding="utf-8")
    code = "import runpy; print(runpy.run_path('docs/reference.py')['definitions'](), end='')"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert made.stdout == written, "python docs/reference.py writes it anew"
    flowing = " ".join(written.split())
    for view in VIEWS:
        assert view.words.definition in flowing and view.words.caveat in flowing
