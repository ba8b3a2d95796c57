"""What tests of the page share.

The stand-in for `spaces` is imported by programs that play a Space, never by the tests themselves.
"""

from types import SimpleNamespace

import gradio as gr
import pytest

import vitviz
from vitviz.server.api import figures
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings

collect_ignore = ["simulated"]


@pytest.fixture(scope="module")
def service():
    return AnalysisService(ServiceSettings(device="cpu"))


@pytest.fixture(scope="module")
def key(service):
    return service.look(service.pictures.sample("coffee"), "vitviz-tiny")


@pytest.fixture
def two(tmp_path) -> list[str]:
    """Two photographs as files of a visitor's."""
    names = ("chelsea", "coffee")
    for name in names:
        vitviz.sample_image(name).save(tmp_path / f"{name}.png")
    return [str(tmp_path / f"{name}.png") for name in names]


@pytest.fixture(scope="module")
def undrawn():
    """Zips have their figures' names and captions without the drawings: ten a zip, which take longer than all
    else in it and are compared in test_prints.py.
    """
    own = figures.figure

    def figure(*given):
        made = own(*given)
        return SimpleNamespace(name=made.name, caption=made.caption, spec=made.spec, svg=lambda: b"<svg/>")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures, "figure", figure)
        yield


def sent(**data) -> gr.EventData:
    """What a part of the page sends with an event."""
    return gr.EventData(None, data)
