"""The names of the classes, in the order of the logits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from timm.data import ImageNetInfo, infer_imagenet_subset

from vitviz.errors import CheckpointError
from vitviz.sentence import Sentence

COUNT = "{name} has {classes} classes, and {given} names were given, one a line. Give one for each class."
EMPTY = "Line {line} of the names is empty. Give one name a line, in the order of the classes."


def labels_of(config: Mapping[str, Any], classes: int, tag: str = "") -> tuple[str, ...]:
    """The labels that a timm config carries, else ImageNet's where the number of classes (or the tag) tells
    which.

    Descriptions ("goldfish") come before names ("n01443537"). Empty where nothing is known, or where the
    count does not fit: a wrong name is worse than a number.

    >>> labels_of({}, 1000)[285]
    'Egyptian cat'
    """
    nested = config.get("pretrained_cfg") or {}
    names = config.get("label_names") or nested.get("label_names") or config.get("labels") or ()
    descriptions = config.get("label_descriptions") or nested.get("label_descriptions") or {}
    if isinstance(descriptions, Mapping):
        found = [name if descriptions.get(name) is None else descriptions[name] for name in names]
    else:
        found = list(descriptions)
    found = named_or_numbered(found)
    if found:
        return found if len(found) == classes else ()
    # 1000 classes are ImageNet's in practice; other counts only where the tag says that ImageNet was used.
    if classes == 1000 or any(part in tag for part in ("in12k", "in21k", "in22k")):
        return _imagenet(classes)
    return ()


def in_lines(text: str, classes: int, name: str) -> tuple[str, ...]:
    """The labels that somebody wrote, one a line in the order of the logits.

    CheckpointError where they are not as many as the head has classes, or a line among them is empty.

    >>> in_lines("cat\\ndog\\n", 2, "mine.pth")
    ('cat', 'dog')
    """
    found = tuple(line.strip() for line in text.removeprefix("\ufeff").rstrip().splitlines())
    if len(found) != classes:
        raise CheckpointError(Sentence(COUNT, name=name, classes=classes, given=len(found)))
    if "" in found:
        raise CheckpointError(Sentence(EMPTY, line=found.index("") + 1))
    return found


def named_or_numbered(names: Iterable[object]) -> tuple[str, ...]:
    """The names as text; for null, which some files hold for a class without one, its number, as where
    nothing is known.
    """
    return tuple(f"class {i}" if name is None else str(name) for i, name in enumerate(names))


@lru_cache(maxsize=4)
def _imagenet(classes: int) -> tuple[str, ...]:
    subset = infer_imagenet_subset({"num_classes": classes})
    return tuple(ImageNetInfo(subset).label_descriptions()) if subset else ()
