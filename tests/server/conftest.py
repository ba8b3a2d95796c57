"""Fixtures of the server tests.

The stand-in for `spaces` is imported only by subprocesses that simulate a Space.
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
def uploaded_images(tmp_path) -> list[str]:
    """Save two sample images as uploaded files."""
    names = ("chelsea", "coffee")
    for name in names:
        vitviz.sample_image(name).save(tmp_path / f"{name}.png")
    return [str(tmp_path / f"{name}.png") for name in names]


@pytest.fixture(scope="module")
def figures_not_drawn():
    """Replace the drawings of figures in zips by empty SVGs.

    Names and captions are kept. The ten drawings take most of the time of a zip; other tests check them.
    """
    own = figures.figure

    def figure(*given):
        drawn = own(*given)
        return SimpleNamespace(name=drawn.name, caption=drawn.caption, spec=drawn.spec, svg=lambda: b"<svg/>")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures, "figure", figure)
        yield


def event_data(**data) -> gr.EventData:
    """Return the event data of a page component."""
    return gr.EventData(None, data)
