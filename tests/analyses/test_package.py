"""Lazy imports of `vitviz.analyses`: every name is available, nothing is loaded before use."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from vitviz import analyses

FOLDER = Path(analyses.__file__).parent


def run_python(code: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=FOLDER.parents[1]
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.processes
def test_import_of_analyses_loads_no_torch():
    run_python(
        "import sys; from vitviz import analyses; dir(analyses); assert not {'torch', 'einops', 'jaxtyping',"
        " 'numpy'} & set(sys.modules)"
    )


@pytest.mark.processes
def test_analyses_load_no_timm_and_functions_hide_modules():
    run_python(
        "import sys, vitviz.analyses.sweep, vitviz.analyses.rollout; from vitviz import analyses; "
        "assert callable(analyses.sweep) and callable(analyses.rollout); "
        "[getattr(analyses, name) for name in analyses.__all__]; "
        "assert 'torch' in sys.modules and not {'timm', 'gradio', 'huggingface_hub'} & set(sys.modules)"
    )


@pytest.mark.parametrize("name", ["rollout", "sweep"])
def test_later_import_of_module_keeps_the_function(monkeypatch, name):
    function = getattr(analyses, name)
    monkeypatch.delitem(sys.modules, f"vitviz.analyses.{name}")
    module = importlib.import_module(f"vitviz.analyses.{name}")
    assert (
        inspect.ismodule(module)
        and inspect.isfunction(getattr(analyses, name))
        and inspect.isfunction(function)
    )


def test_every_public_name_is_listed_and_documented():
    assert dir(analyses) == sorted(analyses.__all__)
    for name in analyses.__all__:
        assert inspect.getdoc(getattr(analyses, name)), name


def test_unknown_name_raises_with_known_names():
    with pytest.raises(AttributeError, match="no 'rollin'; it has .*rollout"):
        analyses.rollin  # noqa: B018, the access raises


def test_public_functions_document_an_example_and_errors():
    for name in analyses.__all__:
        public = getattr(analyses, name)
        text = inspect.getdoc(public)
        if inspect.isfunction(public):
            assert ">>>" in text and "aises" in text, name


def test_module_docstrings_state_what_is_not_shown():
    for path in FOLDER.glob("*.py"):
        if path.stem != "__init__":
            text = importlib.import_module(f"vitviz.analyses.{path.stem}").__doc__.lower()
            assert any(
                word in text
                for word in ("not show", "nothing about", "says nothing", "does not fuse", "neither shows")
            ), path.name
