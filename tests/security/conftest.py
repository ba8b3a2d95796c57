"""A running app, and clients that attack it as browsers and programs do."""

from __future__ import annotations

import httpx
import pytest
from PIL import Image

from tests.browser.conftest import Server


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("attack")


@pytest.fixture(scope="package")
def server(folder):
    with Server("--upload-quota", "40", GRADIO_TEMP_DIR=str(folder / "sent")) as running:
        yield running


@pytest.fixture(scope="package")
def http(server):
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


@pytest.fixture(scope="package")
def listeners(http):
    """Map the number of each listener of the page to its number of inputs."""
    return {
        one["id"]: len(one["inputs"])
        for one in http.get("config").json()["dependencies"]
        if one["backend_fn"]
    }


@pytest.fixture(scope="package")
def secret(folder):
    """Create an image on the server that was not uploaded."""
    path = folder / "secret.png"
    Image.new("RGB", (64, 64), (1, 200, 3)).save(path)
    return path
