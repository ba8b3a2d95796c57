"""Checkpoints that the hub delivers, from the name to the logits."""

import json

import pytest

from tests.engine.models.hub_server import ROOT, Hub, run_script, served

LOAD = """
import json, os, torch, urllib.request
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint as find
from vitviz.engine.adapters.load import load
from vitviz.errors import HubError
seen = []
loaded = load(find("test_vit.r160_in1k"), progress=lambda done, total: seen.append(done))
mine = load(find("someone/mine"))
try:
    refused = load(find("deit_tiny_patch16_224")) and ""
except HubError as error:
    refused = str(error)
try:
    urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/asked-for-the-second-time")
except OSError:
    load(find("someone/mine")), load(find("test_vit.r160_in1k"))
print(json.dumps({
    "logits": loaded.model(torch.ones(1, 3, 160, 160)).flatten()[:4].tolist(), "labels": len(loaded.labels),
    "seen": seen[-1],
    "mine": mine.model(torch.ones(1, 3, 32, 32)).flatten().tolist(), "mine_labels": mine.labels,
    "refused": refused,
    "on_disk": [c.name for c in checkpoints() if c.on_disk and c.source == "hub"],
}))
"""


@pytest.mark.processes
def test_a_timm_name_and_a_strangers_repository_load_from_the_hub(tmp_path):
    import timm
    import torch
    from safetensors.torch import save

    theirs = timm.create_model("test_vit", pretrained=False).eval()
    mine = timm.create_model("test_vit", pretrained=False, img_size=32, num_classes=3).eval()
    config = {
        "architecture": "test_vit",
        "num_classes": 3,
        "model_args": {"img_size": 32},
        "label_names": ["a", "b", "c"],
    }
    weights = {
        model: save({name: value.contiguous() for name, value in model.state_dict().items()})
        for model in (theirs, mine)
    }

    class TwoRepositories(Hub):
        def send(self, kind, body):
            if "deit" in self.path or "preprocessor" in self.path:
                return self.refuse(404, "EntryNotFound" if "preprocessor" in self.path else "RepoNotFound")
            super().send(kind, body)

        def content(self):
            return (
                json.dumps(config).encode()
                if self.path.endswith(".json")
                else weights[mine if "mine" in self.path else theirs]
            )

    Hub.asked.clear()
    with served(TwoRepositories) as endpoint:
        found = run_script(
            LOAD, endpoint, tmp_path, prelude=f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        )
    assert Hub.asked[-1] == "GET /asked-for-the-second-time"  # what was loaded once needs no hub any more
    with torch.no_grad():
        assert found["logits"] == pytest.approx(
            theirs(torch.ones(1, 3, 160, 160)).flatten()[:4].tolist(), abs=1e-5
        )
        assert found["mine"] == pytest.approx(mine(torch.ones(1, 3, 32, 32)).flatten().tolist(), abs=1e-5)
    assert (
        found["labels"] == 1000
        and found["mine_labels"] == ["a", "b", "c"]
        and found["seen"] == len(weights[theirs])
    )
    assert "test_vit.r160_in1k" in found["on_disk"]
    assert (
        "no repository" in found["refused"]
        and "On this machine:" in found["refused"]
        and "test_vit.r160_in1k" in found["refused"]
    )
