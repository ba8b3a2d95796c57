"""The reference is built without a warning and says every public name; the views' page is their own words."""

import subprocess
import sys
from pathlib import Path

import vitviz
from vitviz.views import VIEWS

ROOT = Path(__file__).parent.parent


def test_the_api_reference_is_built_without_warnings(tmp_path):
    command = [sys.executable, "-W", "error", str(ROOT / "docs/reference.py"), str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0 and "warn" not in found.stderr.lower(), found.stderr[-3000:]
    page = (tmp_path / "vitviz.html").read_text(encoding="utf-8")
    for name in vitviz.__all__:
        assert f'id="{name}"' in page, f"{name} is not in the reference"
    assert (tmp_path / "views.html").exists()


def test_every_public_function_and_class_says_what_it_is():
    for name in vitviz.__all__:
        thing = getattr(vitviz, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), f"{name} has no docstring"


def test_the_definitions_of_the_views_are_current():
    written = (ROOT / "docs/views.md").read_text(encoding="utf-8")
    code = "import runpy; print(runpy.run_path('docs/reference.py')['definitions'](), end='')"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert made.stdout == written, "python docs/reference.py writes it anew"
    flowing = " ".join(written.split())
    for view in VIEWS:
        assert view.words.definition in flowing and view.words.caveat in flowing
