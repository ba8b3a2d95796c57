"""Whether a question to a listener can be one: its name, how many values it brings, what files it names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import gradio as gr

from vitviz.ui.serving import uploads

BY_NAME = re.compile(r"/gradio_api/(?P<way>run|api|call/v2|call)/(?P<name>[^/]*)/?$")
JOIN = re.compile(r"/gradio_api/queue/join/?$")
MOST_FILES = 1_000  # named by one question
LONGEST = 100  # characters of a session's name; Gradio's have about ten


class Refused(Exception):
    """What the caller is told, with HTTP's status."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


class Calls:
    """The listeners of one page. What is refused here would reach the caller as "error: null" or HTTP 500."""

    def __init__(self, demo: gr.Blocks):
        self._inputs = {number: fn.inputs for number, fn in demo.fns.items()}
        public = {
            fn.api_name: (number, fn.fn) for number, fn in demo.fns.items() if fn.api_visibility == "public"
        }
        self._numbers = {name: number for name, (number, _) in public.items()}
        self._parameters = {
            name: list(inspect.signature(fn).parameters.values()) for name, (_, fn) in public.items()
        }

    @staticmethod
    def named(path: str) -> bool:
        """Whether a path calls a listener by its name."""
        return BY_NAME.search(path) is not None

    def check(self, path: str, body: Any) -> None:
        """Refused for a question that no listener could answer."""
        by_name, join = BY_NAME.search(path), JOIN.search(path)
        if by_name or join:
            if not isinstance(body, dict):
                raise Refused(422, 'Expected a JSON object such as {"data": ["coffee"]}.')
            if (
                not isinstance(body.get("session_hash") or "", str)
                or len(body.get("session_hash") or "") > LONGEST
            ):
                raise Refused(422, f"session_hash is no text of at most {LONGEST} characters.")
        if by_name:
            self._check_named(by_name["name"], by_name["way"] == "call/v2", body)
        elif join:
            self._check_numbered(body)
        _check_files(body)

    def _check_named(self, name: str, spelled: bool, body: dict) -> None:
        if name not in self._numbers:  # the page's own listeners have names too, but are nobody else's
            raise Refused(
                404, f"There is no endpoint of this name: expected one of {', '.join(self._numbers)}."
            )
        parameters = self._parameters[name]
        if spelled:
            return self._check_spelled(name, body)
        if body.get("fn_index") not in (None, self._numbers[name]):
            raise Refused(422, f"fn_index is not that of {name}. Leave it out.")
        data = body.get("data")
        if not isinstance(data, list) or len(data) != len(parameters):
            given = f"{len(data)} values" if isinstance(data, list) else "no list"
            raise Refused(
                422,
                f"{name} takes {len(parameters)} values ({_signature(parameters)}) and was given {given}.",
            )

    def _check_spelled(self, name: str, body: dict) -> None:
        parameters = self._parameters[name]
        missing = [one.name for one in parameters if one.default is one.empty and one.name not in body]
        unknown = [key for key in body if key not in [one.name for one in parameters]]
        if missing or unknown:
            wrong = (
                f"is missing {', '.join(missing)}"
                if missing
                else f"was given {len(unknown)} values of other names"
            )
            raise Refused(422, f"{name} takes {_signature(parameters)}, but {wrong}.")

    def _check_numbered(self, body: dict) -> None:
        number, data = body.get("fn_index"), body.get("data")
        if isinstance(number, bool) or not isinstance(number, int) or number not in self._inputs:
            raise Refused(404, "fn_index is not the number of a listener of this page.")
        inputs = self._inputs[number]
        if not isinstance(data, list) or len(data) < len(inputs):
            given = f"{len(data)} values" if isinstance(data, list) else "no list"
            raise Refused(422, f"This listener takes data of {len(inputs)} values, but was given {given}.")
        for block, value in zip(inputs, data, strict=False):
            _check_form(getattr(block, "data_model", None), value)


def _signature(parameters: list[inspect.Parameter]) -> str:
    return ", ".join(
        one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in parameters
    )


def _check_form(model: Any, value: Any) -> None:
    """Refused where something else is given in place of files, the only inputs of the page with a model."""
    if model is None or value is None:
        return
    try:
        model.model_validate(value, context={"validate_meta": True})  # as Gradio does
    except (ValueError, TypeError):
        raise Refused(422, str(uploads.NOT_UPLOADED)) from None


def _check_files(body: Any) -> None:
    """Refused where a file is named, in whatever form, that is not in the upload folder."""
    for count, path in enumerate(_paths(body)):
        if count >= MOST_FILES:
            raise Refused(413, f"More than {MOST_FILES} files are named at once.")
        try:
            uploads.inside(path)
        except uploads.NotUploaded as error:
            raise Refused(422, str(error)) from None


def _paths(body: Any) -> Iterator[Any]:
    """Every value that stands as the `path` of an object, however deep."""
    waiting = [body]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("path") is not None:
                yield one["path"]
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
