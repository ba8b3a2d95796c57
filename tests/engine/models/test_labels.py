"""A class without a name has its number, whatever a file writes for nothing."""

from vitviz.engine.models.formats import huggingface
from vitviz.engine.models.labels import labels_of


def test_null_is_no_name():
    assert labels_of({"label_names": ["cat", None, "dog"]}, 3) == ("cat", "class 1", "dog")
    described = {"label_names": ["n1", "n2"], "label_descriptions": {"n1": None, "n2": "hound"}}
    assert labels_of(described, 2) == ("n1", "hound")
    assert labels_of({"label_names": ["a", "b"], "label_descriptions": ["cat", None]}, 2) == (
        "cat",
        "class 1",
    )
    assert huggingface.labels({"id2label": {"0": "cat", "1": None, "2": "dog"}}, 3) == (
        "cat",
        "class 1",
        "dog",
    )
    assert huggingface.labels({"id2label": {"0": None, "1": "LABEL_1"}}, 2) == ()
    assert huggingface.labels({"id2label": {"0": None, "1": None}}, 2) == ()


def test_a_class_that_is_called_none_keeps_its_name():
    assert labels_of({"label_names": ["None", "dog"]}, 2) == ("None", "dog")
