"""Pictures for recipes to be tried on, and the modules of the twins' recipe."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

WEIGHTS = Path(__file__).parents[2] / "weights"
TWINS = (
    "settings", "data", "teacher", "lesson", "film", "export", "evaluate",
    "twins", "twin", "train_twins", "export_twins", "evaluate_twins",
)  # fmt: skip


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """A data folder as the recipe reads it: a hundred pictures of noise of two classes."""
    cv2 = pytest.importorskip("cv2")
    folder = tmp_path_factory.mktemp("pictures")
    noise = np.random.default_rng(0)
    for split, count in (("train-0", 100), ("val", 20)):
        labels = np.arange(count, dtype=np.uint8) % 2
        small = noise.integers(0, 128, (count, 8, 8, 3), dtype=np.uint8) + 100 * labels[:, None, None, None]
        files = [cv2.imencode(".webp", cv2.resize(picture, (64, 64)))[1].ravel() for picture in small]
        offsets = np.cumsum([0, *map(len, files)])
        np.savez(folder / f"{split}.npz", webp=np.concatenate(files), offsets=offsets, labels=labels)
    classes = [{"wnid": f"n{label:08d}", "label": str(label)} for label in range(200)]
    (folder / "classes.json").write_text(json.dumps(classes))
    return folder


@pytest.fixture(scope="module")
def twins_recipe():
    """The recipe's modules, for twins of two layers; forgotten afterwards, their names are too plain to
    stay.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(WEIGHTS / "vitviz-positions"))
        threads = torch.get_num_threads()
        twins = importlib.import_module("twins")
        patched.setattr(twins, "SETTINGS", replace(twins.SETTINGS, depth=2))
        for made in (twins.new_twin, twins.plain, twins.plain_model):
            patched.setattr(made, "__defaults__", (twins.SETTINGS,))
        yield importlib.import_module
        torch.set_num_threads(threads)
    for name in TWINS:
        sys.modules.pop(name, None)
