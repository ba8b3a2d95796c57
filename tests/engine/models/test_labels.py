"""Class labels: a class without a name is shown by its number."""

import pytest

from vitviz.engine.formats import huggingface
from vitviz.engine.formats.timm_config import labels_of, parse_label_lines
from vitviz.errors import CheckpointError


def test_missing_label_becomes_class_number():
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


@pytest.mark.parametrize("text", ["cat\ndog\n", "cat\r\ndog", "\ufeff cat \ndog\n\n\n", "cat\rdog"])
def test_label_lines_are_parsed(text):
    assert parse_label_lines(text, 2, "mine.pth") == ("cat", "dog")


@pytest.mark.parametrize(
    "text, message",
    [
        ("cat\n", "mine.pth has 2 classes, but 1 names were given"),
        ("cat\ndog\ncow", "2 classes, but 3 names"),
        ("cat\n\ndog", "2 classes, but 3 names"),
        ("\ndog", "Line 1 of the names is empty"),
    ],
)
def test_wrong_number_of_labels_is_rejected(text, message):
    with pytest.raises(CheckpointError, match=message):
        parse_label_lines(text, 2, "mine.pth")


def test_label_none_as_text_is_kept():
    assert labels_of({"label_names": ["None", "dog"]}, 2) == ("None", "dog")
