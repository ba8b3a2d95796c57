"""The package's face: everything by name, nothing loaded before it is used."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from vitviz import analyses

FOLDER = Path(analyses.__file__).parent


def run(code: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=FOLDER.parents[1]
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.processes
def test_importing_it_loads_no_torch():
    run(
        "import sys; from vitviz import analyses; dir(analyses); assert not {'torch', 'einops', 'jaxtyping',"
        " 'numpy'} & set(sys.modules)"
    )


@pytest.mark.processes
def test_using_it_loads_neither_timm_nor_gradio_and_a_function_wins_over_the_file_of_its_name():
    run(
        "import sys, vitviz.analyses.sweep, vitviz.analyses.rollout; from vitviz import analyses; "
        "assert callable(analyses.sweep) and callable(analyses.rollout); "
        "[getattr(analyses, name) for name in analyses.__all__]; "
        "assert 'torch' in sys.modules and not {'timm', 'gradio', 'huggingface_hub'} & set(sys.modules)"
    )


@pytest.mark.parametrize("name", ["rollout", "sweep"])
def test_importing_the_file_later_leaves_the_function(monkeypatch, name):
    function = getattr(analyses, name)
    monkeypatch.delitem(sys.modules, f"vitviz.analyses.{name}")
    file = importlib.import_module(f"vitviz.analyses.{name}")
    assert (
        inspect.ismodule(file)
        and inspect.isfunction(getattr(analyses, name))
        and inspect.isfunction(function)
    )


def test_every_name_is_found_and_listed():
    assert dir(analyses) == sorted(analyses.__all__)
    for name in analyses.__all__:
        assert inspect.getdoc(getattr(analyses, name)), name


def test_an_unknown_name_is_said():
    with pytest.raises(AttributeError, match="no 'rollin'; it has .*rollout"):
        analyses.rollin  # noqa: B018, looking is what raises


def test_every_public_function_has_an_example_and_says_what_it_raises():
    for name in analyses.__all__:
        thing = getattr(analyses, name)
        text = inspect.getdoc(thing)
        if inspect.isfunction(thing):
            assert ">>>" in text and "aises" in text, name


def test_every_file_says_what_it_does_not_show():
    for path in FOLDER.glob("*.py"):
        if path.stem != "__init__":
            text = importlib.import_module(f"vitviz.analyses.{path.stem}").__doc__.lower()
            assert any(
                word in text
                for word in ("not show", "nothing about", "says nothing", "does not fuse", "neither shows")
            ), path.name
