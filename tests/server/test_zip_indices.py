"""Indices in a zip: tokens by name or as patches from 0, and documented axes of every array."""

import json
import re

import numpy as np
import pytest

from tests.server.helpers import open_zip, read_numbers
from vitviz.errors import VitvizError
from vitviz.server.api import lessons
from vitviz.server.api.endpoints import Endpoints, endpoint
from vitviz.views import VIEWS
from vitviz.views.tokens import RepresentationsView

pytestmark = pytest.mark.usefixtures("figures_not_drawn")


@pytest.mark.long
def test_zip_names_tokens_or_numbers_patches_from_0(service, key):
    given = {"explorer.token": "1", "explorer.pins": "0.196", "tour.token": "0"}
    archive = open_zip(lessons.lesson_zip(service, key, given))
    views = json.loads(archive.read("settings.json"))["views"]
    assert views["explorer"]["token"] == 0 and views["explorer"]["pins"] == ["class", 195]
    assert views["tour"]["token"] == "class"
    explorer = read_numbers(archive, "explorer")
    assert str(explorer["setting_token"]) == "0" and str(explorer["setting_pins"]) == "['class', 195]"
    assert explorer["queries"].tolist() == ["0", "class", "195"]
    weights = service.subject(key).trace.attention(views["explorer"]["layer"] - 1)
    assert np.allclose(explorer["attention"][2], weights[:, 1 + 195].numpy())  # the query is the last patch


def test_zip_readme_documents_axes_of_every_array(service, key):
    """Check the number and lengths of the documented axes."""
    archive = open_zip(lessons.lesson_zip(service, key, {}))
    text = archive.read("README.txt").decode()
    trace = service.subject(key).trace
    grid, heads = trace.grid, trace.layers[0].heads
    sizes = {
        "layer": len(trace.layers), "depth": len(trace.layers) + 1, "head": heads,
        "row": grid.rows, "col": grid.cols,
        "patch": grid.patches, "token": grid.tokens, "query": grid.tokens,
        "key": grid.tokens, "prefix": grid.prefix,
        "width": trace.tokens[0].shape[1], "class": len(trace.logits),
    }  # fmt: skip
    assert f"patch 0 is at index {grid.prefix}" in text
    left_out = json.loads(archive.read("settings.json"))["left_out"]
    for view in VIEWS:
        if f"numbers/{view.slug}.npz" not in archive.namelist():
            assert view.slug in left_out
            continue
        for name, array in read_numbers(archive, view.slug).items():
            if name.startswith("setting_") or name in ("checkpoint", "view", "dtype", "assumed"):
                continue
            (axes,) = re.findall(rf"^numbers/{view.slug}\.npz +{name} +(.+)$", text, re.M)
            axes = [] if axes == "one number" else axes.split()
            assert len(axes) == array.ndim, (view.slug, name)
            assert all(sizes.get(axis, size) == size for axis, size in zip(axes, array.shape, strict=True)), (
                view.slug, name, axes, array.shape,
            )  # fmt: skip


def test_endpoint_accepts_patch_as_text_or_int_only(service):
    ask = endpoint(RepresentationsView(), Endpoints(service))
    number, text, middle = (ask("coffee", token=token)["similarity"] for token in (0, "0", ""))
    assert number == text != middle
    for strange in ([1], {"a": 1}, 1.5, "-1", "2" * 400, "2" * 5000, "\ud800"):
        with pytest.raises(VitvizError, match="token="):
            ask("coffee", token=strange)
