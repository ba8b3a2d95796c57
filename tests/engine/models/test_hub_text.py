"""A text tower downloaded from the repository of its vision tower."""

import shutil

import pytest

import vitviz
from tests.engine import contrastive
from tests.engine.models.hub_server import ROOT, Hub, run_script, served

SCRIPT = """
import json, os, urllib.request, vitviz
from vitviz.errors import UnsupportedModel
inspector, seen = vitviz.load("someone/mine", device="cpu"), []
classes = vitviz.text(inspector, ["a cat", "the"], progress=lambda done, total: seen.append((done, total)))
try:
    urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/asked-for-the-second-time")
except OSError:
    again = vitviz.text(inspector, ["a cat", "the"])
try:
    refused = vitviz.text(vitviz.load("someone/blind", device="cpu"), ["cat"]) and ""
except UnsupportedModel as error:
    refused = str(error)
print(json.dumps({"vectors": classes.vectors.tolist(), "same": again == classes, "seen": seen[-1],
                  "refused": refused}))
"""


@pytest.mark.processes
def test_text_tower_comes_from_vision_tower_repository(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    contrastive.siglip(files)
    shutil.copy(files / "open_clip_model.safetensors", files / "model.safetensors")

    class Repository(Hub):
        def send(self, kind, body):
            name = self.path.rpartition("/")[2]
            if not (files / name).is_file() or (kind == "blind" and name.startswith("open_clip")):
                return self.refuse(404, "EntryNotFound")
            super().send(kind, body)

        def content(self):
            return (files / self.path.rpartition("/")[2]).read_bytes()

    Hub.requests.clear()
    with served(Repository) as endpoint:
        result = run_script(
            SCRIPT, endpoint, tmp_path, prelude=f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        )
    local_classes = vitviz.text(vitviz.load(files, device="cpu"), ["a cat", "the"])
    assert result["vectors"] == local_classes.vectors.tolist() and result["same"]
    size = (files / "open_clip_model.safetensors").stat().st_size
    assert result["seen"] == [size, size] and "in someone/blind" in result["refused"]
    later = Hub.requests[Hub.requests.index("GET /asked-for-the-second-time") + 1 :]
    assert not any("mine" in request and "open_clip" in request for request in later)
