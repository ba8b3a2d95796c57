"""plotly.js is served compressed from the installed package under a versioned URL."""

import gzip
from importlib.metadata import version
from pathlib import Path

import plotly
from fastapi import FastAPI
from fastapi.testclient import TestClient

from vitviz.server.api import modules
from vitviz.server.page import routes

MAX_BYTES = 1_700_000  # bytes over the wire


def test_plotly_is_served_gzipped_and_immutable(service):
    address = modules.module_source("frontend/plotly_address.js").split("'")[1]
    assert address == f"plotly/{version('plotly')}/plotly.min.js"
    client = TestClient(FastAPI(routes=routes.routes(service)))
    with client.stream("GET", f"{routes.BASE}/{address}") as answer:
        sent = b"".join(answer.iter_raw())
    assert answer.status_code == 200 and answer.headers["content-encoding"] == "gzip"
    assert len(sent) == int(answer.headers["content-length"]) <= MAX_BYTES
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert gzip.decompress(sent) == (Path(plotly.__file__).parent / "package_data/plotly.min.js").read_bytes()
