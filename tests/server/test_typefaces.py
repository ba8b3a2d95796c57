"""The page's typefaces: sent with a lifetime of a year, named by the page before Gradio's scripts."""

import re

from fastapi import FastAPI
from fastapi.testclient import TestClient

from vitviz.server.page.routes import routes
from vitviz.views import typefaces


def test_a_typeface_is_kept_for_as_long_as_its_file_is_the_same(service):
    page = TestClient(FastAPI(routes=routes(service)))
    addresses = re.findall(r"url\(([^)]+)\)", typefaces.font_faces())
    assert len(addresses) == len(typefaces.FACES)
    for face, address in zip(typefaces.FACES, addresses, strict=True):
        sent = page.get(f"/{address}")
        assert sent.headers["content-type"] == "font/woff2"
        assert sent.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert sent.content == typefaces.font_file(face.file)
    assert page.get("/gradio_api/vitviz/fonts/1/pyproject.toml").status_code == 404


def test_what_every_page_needs_is_loaded_early():
    preloaded = re.findall(r'href="([^"]+)"', typefaces.preloads())
    assert len(preloaded) == 2 and all(f"url({one})" in typefaces.font_faces() for one in preloaded)
