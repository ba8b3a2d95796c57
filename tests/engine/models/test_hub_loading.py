"""Checkpoints loaded from the hub, from name to logits."""

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
def test_timm_and_other_repositories_load_from_hub(tmp_path):
    import timm
    import torch
    from safetensors.torch import save

    timm_model = timm.create_model("test_vit", pretrained=False).eval()
    other_model = timm.create_model("test_vit", pretrained=False, img_size=32, num_classes=3).eval()
    config = {
        "architecture": "test_vit",
        "num_classes": 3,
        "model_args": {"img_size": 32},
        "label_names": ["a", "b", "c"],
    }
    weights = {
        model: save({name: value.contiguous() for name, value in model.state_dict().items()})
        for model in (timm_model, other_model)
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
                else weights[other_model if "mine" in self.path else timm_model]
            )

    Hub.requests.clear()
    with served(TwoRepositories) as endpoint:
        result = run_script(
            LOAD, endpoint, tmp_path, prelude=f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        )
    # a loaded checkpoint needs no further request
    assert Hub.requests[-1] == "GET /asked-for-the-second-time"
    with torch.no_grad():
        assert result["logits"] == pytest.approx(
            timm_model(torch.ones(1, 3, 160, 160)).flatten()[:4].tolist(), abs=1e-5
        )
        assert result["mine"] == pytest.approx(
            other_model(torch.ones(1, 3, 32, 32)).flatten().tolist(), abs=1e-5
        )
    assert (
        result["labels"] == 1000
        and result["mine_labels"] == ["a", "b", "c"]
        and result["seen"] == len(weights[timm_model])
    )
    assert "test_vit.r160_in1k" in result["on_disk"]
    assert (
        "no repository" in result["refused"]
        and "On this machine:" in result["refused"]
        and "test_vit.r160_in1k" in result["refused"]
    )
