"""What tests of the page share.

The stand-in for `spaces` is imported by programs that play a Space, never by the tests themselves.
"""

import gradio as gr
import pytest

import vitviz
from vitviz.ui.memory.studio import Settings, Studio

collect_ignore = ["simulated"]


@pytest.fixture(scope="module")
def studio():
    return Studio(Settings(device="cpu"))


@pytest.fixture(scope="module")
def key(studio):
    return studio.look(studio.pictures.sample("coffee"), "vitviz-tiny")


@pytest.fixture
def two(tmp_path) -> list[str]:
    """Two photographs as files of a visitor's."""
    names = ("chelsea", "coffee")
    for name in names:
        vitviz.sample_image(name).save(tmp_path / f"{name}.png")
    return [str(tmp_path / f"{name}.png") for name in names]


def sent(**data) -> gr.EventData:
    """What a part of the page sends with an event."""
    return gr.EventData(None, data)
