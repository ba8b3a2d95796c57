"""Classes as values and as files."""

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitviz import Classes
from vitviz.errors import VitvizError

CLASSES = Classes(["a cat", "ネコ, 🐈"], [[3.0, 4.0, 0.0], [0.0, -2.0, 0.0]], "sigmoid", 12.5, -3.25, "mine")


@pytest.mark.parametrize("name", ["classes.npz", "classes.safetensors"])
def test_saved_classes_are_loaded_equal(tmp_path, name):
    CLASSES.save(tmp_path / name)
    found = Classes.load(tmp_path / name)
    assert found == CLASSES and hash(found) == hash(CLASSES) and found.labels == ("a cat", "ネコ, 🐈")
    assert (found.score, found.scale, found.bias, found.model) == ("sigmoid", 12.5, -3.25, "mine")
    torch.testing.assert_close(found.vectors, torch.tensor([[0.6, 0.8, 0.0], [0.0, -1.0, 0.0]]))
    assert found != Classes(found.labels, found.vectors) and found == pickle.loads(pickle.dumps(CLASSES))


def test_files_with_labels_and_vectors_get_defaults(tmp_path):
    np.savez(tmp_path / "own.npz", labels=np.array(["one"]), vectors=np.array([[2, 0]]))
    save_file({"vectors": torch.tensor([[2.0, 0.0]])}, tmp_path / "own.safetensors", {"labels": '["one"]'})
    for name in ("own.npz", "own.safetensors"):
        found = Classes.load(tmp_path / name)
        assert (found.score, found.scale, found.bias, found.model) == ("softmax", 100.0, 0.0, None)
        assert found.vectors.tolist() == [[1.0, 0.0]]


def test_pickles_and_files_without_classes_raise(tmp_path):
    path = tmp_path / "classes.npz"
    np.savez(path, labels=np.array(["one", None], dtype=object), vectors=np.ones((2, 3)))
    with pytest.raises(VitvizError, match="holds no classes .*pickle"):
        Classes.load(path)
    np.savez(path, vectors=np.ones((2, 3)))
    with pytest.raises(VitvizError, match="expected the arrays labels and vectors"):
        Classes.load(path)
    for content in (b"", b"PK\x03\x04", b"nothing", json.dumps({}).encode()):
        for name in ("classes.npz", "classes.safetensors"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(VitvizError, match="holds no classes"):
                Classes.load(tmp_path / name)
    for call in (lambda: Classes.load(tmp_path / "none.npz"), lambda: Classes.load(tmp_path / "a.pt"),
                 lambda: CLASSES.save(tmp_path / "a.pt")):  # fmt: skip
        with pytest.raises(VitvizError, match="none.npz holds no classes|ending in .npz or .safetensors"):
            call()


@pytest.mark.parametrize(
    "given, message",
    [
        ((["one"], [[1.0], [2.0]]), "1 labels and vectors of shape"),
        (([], np.ones((0, 3))), "one vector for each label"),
        ((["one", "two"], [[1.0, 0.0], [0.0, 0.0]]), "'two' has no direction"),
        ((["one"], [[float("nan"), 1.0]]), "no direction"),
        ((["one"], [[1.0]], "cosine"), "softmax, sigmoid"),
        ((["one"], [[1.0]], "softmax", 0.0), "a scale above 0"),
        ((["one"], [[1.0]], "softmax", 1.0, float("inf")), "and a number"),
    ],
)
def test_invalid_classes_raise(given, message):
    with pytest.raises(VitvizError, match=message):
        Classes(*given)
