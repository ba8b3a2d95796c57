"""A sentence for a visitor that still knows its pattern and values, to be said in another language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class LocalizedText(str):
    """English with its values filled in; `pattern` and `values` are what a translation is made of.

    Values that are sentences or words are translated too; names and numbers stay.

    >>> message_of = LocalizedText("{name} has {count} layers.", name="vitviz-tiny", count=8)
    >>> message_of, message_of.pattern, message_of.values["count"]
    ('vitviz-tiny has 8 layers.', '{name} has {count} layers.', 8)
    """

    pattern: str
    values: Mapping[str, Any]

    def __new__(cls, pattern: str, **values: Any) -> LocalizedText:
        sentence = super().__new__(cls, fill(pattern, values))
        sentence.pattern, sentence.values = pattern, values
        return sentence

    def __getnewargs_ex__(self):
        return (self.pattern,), dict(self.values)


def not_applicable(checkpoint: str, reason: str) -> LocalizedText:
    """Why something does not exist for a model.

    >>> not_applicable("mine", "no attention has a gradient")
    'mine: not applicable, because no attention has a gradient.'
    """
    return LocalizedText(
        "{checkpoint}: not applicable, because {reason}.", checkpoint=checkpoint, reason=reason
    )


class Verbatim(str):
    """A visitor's own words: said as they were written, in every language."""


def fill(pattern: str, values: Mapping[str, Any]) -> str:
    """The pattern with values for its {names}; other braces, such as those of LaTeX, stay as they are.

    >>> fill("{count} of $x_{i}$", {"count": "3"})
    '3 of $x_{i}$'
    """
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], found[0])), pattern)


def travelling(text: str) -> dict[str, Any]:
    """A sentence as JSON for the page: {text, values}, values that are sentences likewise."""
    values = getattr(text, "values", {})
    told = {name: travelling(value) if isinstance(value, str) else value for name, value in values.items()}
    return {"text": getattr(text, "pattern", str(text)), "values": told}


def message_of(error: BaseException) -> str:
    """What an error tells, with its pattern and values where it was raised with a Sentence."""
    return error.args[0] if error.args and isinstance(error.args[0], LocalizedText) else str(error)
