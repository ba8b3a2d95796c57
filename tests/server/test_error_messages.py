"""Internal failures are reported to users as sentences."""

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


def test_link_to_broken_checkpoint_opens_page_with_error(monkeypatch, caplog):
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
    updates = [update for update in page if isinstance(update, dict)]
    assert any(update.get("text") == UNEXPECTED for update in updates) and any(
        update.get("view") == "picture" for update in updates
    )
    assert "KeyError" in caplog.text


@pytest.mark.processes
def test_unusable_port_or_host_is_reported(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for options, message in (
            (["--port", port], "is taken by another program"),
            (["--host", "192.0.2.1", "--port", str(free_port())], "not one of this"),
        ):
            second = subprocess.run(
                [sys.executable, "app.py", *options], cwd=ROOT, capture_output=True, text=True, timeout=60
            )
            assert second.returncode == 1 and message in second.stderr and "Traceback" not in second.stderr


@pytest.mark.parametrize("view", views_with_endpoints(), ids=lambda view: view.slug)
def test_image_endpoint_rejects_missing_image(service, view):
    call = _as_gradio_error(endpoint(view, Endpoints(service)))
    if "image" in inspect.signature(call).parameters:
        with pytest.raises(gr.Error, match="not uploaded here"):
            call(None)
