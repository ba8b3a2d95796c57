"""Training snapshots: order, metrics, and damaged tables."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitviz
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.engine.hub.snapshots import Snapshot, all_snapshots

ROOT = Path(__file__).parents[3]
TABLE = """file,weights,step,epoch,seconds,train_loss,val_loss,val_top1,val_top5
snapshots/step-00000.safetensors,raw,0,0.0,0,,5.34,0.005,0.02
snapshots/step-00300.safetensors,raw,300,0.4,100,4.9,nonsense,0.04,0.13
model.safetensors,average,900,1.2,300,4.1,3.9,0.2,0.5
"""


@pytest.fixture
def weights(tmp_path):
    """Create a checkpoint with two snapshots: zeros first, then halved weights."""
    home = tmp_path / "mine"
    home.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(ROOT / "weights/vitviz-tiny" / name, home / name)
    (home / "snapshots").mkdir()
    finished = load_file(home / "model.safetensors")
    for step, change in ((300, lambda w: w / 2), (0, torch.zeros_like)):
        save_file(
            {name: change(weight) for name, weight in finished.items()},
            home / "snapshots" / f"step-{step:05d}.safetensors",
        )
    (home / "film.csv").write_text(TABLE)
    return tmp_path


def test_snapshots_are_sorted_by_step_with_final_model_last(weights):
    assert vitviz.training_snapshots("mine", folder=weights) == [
        Snapshot("mine@0", 0, 0.0, None, 5.34, 0.005),
        Snapshot("mine@300", 300, 0.4, 4.9, None, 0.04),
        Snapshot("mine", 900, 1.2, 4.1, 3.9, 0.2, averaged=True),
    ]


def test_snapshot_finds_its_series_and_loads_own_weights(weights):
    assert all_snapshots(find_checkpoint("mine@300", weights)) == all_snapshots(
        find_checkpoint("mine", weights)
    )
    start, finished = (vitviz.load(name, folder=weights).model.pos_embed for name in ("mine@0", "mine"))
    assert not start.any() and finished.any()


def test_snapshots_without_table_have_steps_only(weights):
    (weights / "mine" / "film.csv").unlink()
    assert all_snapshots(find_checkpoint("mine", weights)) == [
        Snapshot("mine@0", 0),
        Snapshot("mine@300", 300),
        Snapshot("mine", None),
    ]
    (weights / "mine" / "film.csv").write_bytes(b"\xff\xfe\x00file,\x00")
    assert [frame.step for frame in all_snapshots(find_checkpoint("mine", weights))] == [0, 300, None]


def test_checkpoint_without_snapshots_has_none(weights):
    shutil.rmtree(weights / "mine" / "snapshots")
    assert (
        all_snapshots(find_checkpoint("mine", weights))
        == []
        == vitviz.training_snapshots("deit_tiny_patch16_224")
    )
