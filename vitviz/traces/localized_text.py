"""Text for visitors that keeps its pattern and values, so that it can be translated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class LocalizedText(str):
    """An English text with its values filled in; translations are made from `pattern` and `values`.

    Values that are texts are translated too. Names and numbers stay.

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
    """Return the reason why a result does not exist for a model, as a sentence.

    >>> not_applicable("mine", "no attention has a gradient")
    'mine: not applicable, because no attention has a gradient.'
    """
    return LocalizedText(
        "{checkpoint}: not applicable, because {reason}.", checkpoint=checkpoint, reason=reason
    )


class Verbatim(str):
    """Text written by a visitor, which is never translated."""


def fill(pattern: str, values: Mapping[str, Any]) -> str:
    """Return the pattern with its {names} replaced by values; other braces, such as LaTeX's, stay.

    >>> fill("{count} of $x_{i}$", {"count": "3"})
    '3 of $x_{i}$'
    """
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], found[0])), pattern)


def text_to_json(text: str) -> dict[str, Any]:
    """Return a text as JSON for the page: {text, values}; values that are texts are converted likewise."""
    values = getattr(text, "values", {}).items()
    details = {name: text_to_json(value) if isinstance(value, str) else value for name, value in values}
    return {"text": getattr(text, "pattern", str(text)), "values": details}


def message_of(error: BaseException) -> str:
    """Return an error's message, as a LocalizedText if the error was raised with one."""
    return error.args[0] if error.args and isinstance(error.args[0], LocalizedText) else str(error)
