"""A class without a name has its number, whatever a file writes for nothing."""

import pytest

from vitviz.engine.formats import huggingface
from vitviz.engine.formats.timm_config import labels_of, parse_label_lines
from vitviz.errors import CheckpointError


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


@pytest.mark.parametrize("text", ["cat\ndog\n", "cat\r\ndog", "\ufeff cat \ndog\n\n\n", "cat\rdog"])
def test_names_are_read_line_by_line(text):
    assert parse_label_lines(text, 2, "mine.pth") == ("cat", "dog")


@pytest.mark.parametrize(
    "text, said",
    [
        ("cat\n", "mine.pth has 2 classes, and 1 names were given"),
        ("cat\ndog\ncow", "2 classes, and 3 names"),
        ("cat\n\ndog", "2 classes, and 3 names"),
        ("\ndog", "Line 1 of the names is empty"),
    ],
)
def test_names_that_do_not_fit_the_head_are_refused(text, said):
    with pytest.raises(CheckpointError, match=said):
        parse_label_lines(text, 2, "mine.pth")


def test_a_class_that_is_called_none_keeps_its_name():
    assert labels_of({"label_names": ["None", "dog"]}, 2) == ("None", "dog")
