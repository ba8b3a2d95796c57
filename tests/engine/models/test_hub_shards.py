"""A sharded repository on the hub: all shards arrive, or the missing shard is named."""

import json

import pytest

from tests.engine.models.hub_server import ROOT, Hub, run_script, served

pytestmark = pytest.mark.processes

LOAD = """
import json, torch
from vitviz.engine.hub import downloads
from vitviz.engine.hub.catalogue import find_checkpoint as find
from vitviz.engine.adapters.load import load
from vitviz.errors import VitvizError

def attempt(name):
    seen = []
    try:
        model = load(find(name), progress=lambda *bytes_: seen.append(bytes_)).model
        logits = model(torch.ones(1, 3, 32, 32)).flatten().tolist()
        return {"logits": logits, "seen": seen, "on_disk": find(name).on_disk}
    except VitvizError as error:
        return {"error": str(error), "on_disk": find(name).on_disk}

print(json.dumps([attempt(name) for name in NAMES]))
"""
CONFIG = {"architecture": "test_vit", "num_classes": 3, "model_args": {"img_size": 32}}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Return the model and the content of its files by name."""
    import timm
    from huggingface_hub import save_torch_state_dict

    folder = tmp_path_factory.mktemp("shards")
    model = timm.create_model("test_vit", pretrained=False, img_size=32, num_classes=3).eval()
    save_torch_state_dict(model.state_dict(), folder, max_shard_size="500KB")
    files = {path.name: path.read_bytes() for path in folder.iterdir()} | {
        "config.json": json.dumps(CONFIG).encode()
    }
    assert len(files) > 4
    return model, files


@pytest.fixture
def hub(shards):
    """Serve three repositories.

    someone/whole has all files, someone/lacking misses the second shard, and the index of someone/leading
    points outside the repository.
    """
    files = shards[1]
    index = json.loads(files["model.safetensors.index.json"])
    index["weight_map"]["cls_token"] = "../../../config.json"

    class Shards(Hub):
        def send(self, kind, body):
            name = self.path.rpartition("/")[2]
            if name not in files or kind == "lacking" and name.startswith("model-00002"):
                return self.refuse(404, "EntryNotFound")
            super().send(kind, body)

        def content(self):
            name = self.path.rpartition("/")[2]
            return (
                json.dumps(index).encode()
                if "leading" in self.path and name.endswith("index.json")
                else files[name]
            )

    Hub.requests.clear()
    with served(Shards) as endpoint:
        yield endpoint


def load_from_hub(endpoint, cache, *names, **environment):
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r}); NAMES = {names!r}\n"
    return run_script(LOAD, endpoint, cache, prelude=path, **environment)


def test_shards_arrive_and_progress_covers_all(hub, shards, tmp_path):
    import torch

    model, files = shards
    (result,) = load_from_hub(hub, tmp_path, "someone/whole")
    with torch.no_grad():
        assert result["logits"] == pytest.approx(model(torch.ones(1, 3, 32, 32)).flatten().tolist(), abs=1e-5)
    total = sum(len(content) for name, content in files.items() if "-of-" in name)
    done = [done for done, _ in result["seen"]]
    assert (
        done == sorted(done) and done[-1] == total and all(size >= 0.9 * total for _, size in result["seen"])
    )
    assert result["on_disk"]


def test_downloaded_shards_need_no_hub(hub, tmp_path):
    (first,) = load_from_hub(hub, tmp_path, "someone/whole")
    (again,) = load_from_hub("http://127.0.0.1:9", tmp_path, "someone/whole", HF_HUB_OFFLINE="1")
    assert again["logits"] == first["logits"] and again["seen"] == []


def test_missing_shard_is_named_and_checkpoint_incomplete(hub, tmp_path):
    (result,) = load_from_hub(hub, tmp_path, "someone/lacking")
    assert (
        "has no file model-00002-of-0000" in result["error"]
        and "the repository is incomplete" in result["error"]
    )
    assert not result["on_disk"]


def test_index_pointing_outside_repository_fetches_nothing(hub, tmp_path):
    (result,) = load_from_hub(hub, tmp_path, "someone/leading")
    assert (
        "refers to '../../../config.json', which was not opened" in result["error"] and not result["on_disk"]
    )
    assert not [line for line in Hub.requests if "-of-" in line]
