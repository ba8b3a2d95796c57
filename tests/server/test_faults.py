"""What breaks behind the page is a sentence on it."""

import inspect
import socket
import subprocess
import sys

import gradio as gr
import pytest

from tests.browser.conftest import ROOT, free_port
from vitviz.server.api.endpoints import Endpoints, _as_gradio_error, endpoint, views_with_endpoints
from vitviz.server.api.serialization import UNEXPECTED
from vitviz.server.page.build import build_page
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


def test_a_link_to_a_checkpoint_that_breaks_opens_the_page_with_a_sentence(monkeypatch, caplog):
    service = AnalysisService(ServiceSettings(device="cpu"))
    real = service.checkpoints.inspector

    def inspector(name, progress=None):
        if name == "broken":
            raise KeyError(("a", 3))
        return real(name, progress)

    monkeypatch.setattr(service.checkpoints, "inspector", inspector)
    demo = build_page(service)
    (first,) = [fn.fn for fn in demo.fns.values() if fn.api_name == "first"]
    page = first({}, {}, gr.Request(query_params={"checkpoint": "broken"}, headers={}))
    said = [one for one in page if isinstance(one, dict)]
    assert any(one.get("text") == UNEXPECTED for one in said) and any(
        one.get("view") == "picture" for one in said
    )
    assert "KeyError" in caplog.text


@pytest.mark.processes
def test_a_port_that_is_taken_is_a_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for options, said in (
            (["--port", port], "is taken by another program"),
            (["--host", "192.0.2.1", "--port", str(free_port())], "not one of this"),
        ):
            second = subprocess.run(
                [sys.executable, "app.py", *options], cwd=ROOT, capture_output=True, text=True, timeout=60
            )
            assert second.returncode == 1 and said in second.stderr and "Traceback" not in second.stderr


@pytest.mark.parametrize("view", views_with_endpoints(), ids=lambda view: view.slug)
def test_an_endpoint_of_pictures_asks_for_one(service, view):
    asked = _as_gradio_error(endpoint(view, Endpoints(service)))
    if "image" in inspect.signature(asked).parameters:
        with pytest.raises(gr.Error, match="not uploaded here"):
            asked(None)
