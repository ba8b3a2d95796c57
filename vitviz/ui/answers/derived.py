"""An endpoint for every view that does not bring one of its own: parameters from its settings, answers from
its items.

Gradio reads type hints, defaults and the docstring of a function, so these are made for each view.
"""

import contextlib
import inspect
from collections.abc import Callable
from typing import Any, Literal

import gradio as gr

from vitviz.ui.answers.plain import cells, plain
from vitviz.ui.door.uploads import NotUploaded
from vitviz.views import VIEWS, Choice, Control, Needs, Slider, View, Whole
from vitviz.views.controls import DIFFERENCE, sequential

Picture = gr.FileData | str


def answering() -> tuple[View, ...]:
    """The views that programs ask by a derived endpoint: with numbers to take and none of their own."""
    return tuple(view for view in VIEWS if view.endpoint is None and any(item.taken for item in view.items))


def endpoint(view: View, subject_of: Callable, reading: Callable = contextlib.nullcontext) -> Callable:
    """The function behind a view's endpoint; what it reads waits for its turn in `reading(subject)`."""
    taken = [item for item in view.items if item.taken]
    asked = {name for item in taken for name in item.depends}
    controls = [one for one in view.controls if one.name in asked and one is not DIFFERENCE]
    tokens = {control.name for control in controls if isinstance(control, Whole) and control.tokens}

    def answer(*given, **named) -> dict:
        values = signature.bind(*given, **named)
        values.apply_defaults()
        values = values.arguments
        if of_picture and values["image"] is None:
            raise NotUploaded
        asked = (values.get("image"), values["checkpoint"], values.get("without", ""), values.get("second"))
        subject = subject_of(*asked)
        chosen = {control.name: values[control.name] for control in controls}
        for name in chosen.keys() & tokens:
            given_token = "" if chosen[name] is None else str(chosen[name])  # a program may send 0 for "0"
            chosen[name] = sequential(given_token, subject.grid) if given_token else None
        settings = view.settings(
            {name: str(one) for name, one in chosen.items() if one is not None}, subject.about
        )
        if reason := view.refused(subject):
            return {"checkpoint": subject.checkpoint, "not_applicable": str(reason)}
        with reading(subject):
            numbers = {item.name: plain(view.array(subject, item.name, settings)) for item in taken}
        precision = {} if subject.trace is None else {"dtype": subject.trace.dtype}
        return {"checkpoint": subject.checkpoint, **precision, **numbers, "grid": cells(subject.grid)}

    of_picture = view.needs not in (Needs.WEIGHTS, Needs.SET)
    parameters = [_parameter("image", Picture)] if of_picture else []
    parameters.append(_parameter("checkpoint", str, ""))
    parameters += [_parameter("second", str, "")] if view.paired else []
    parameters += [_of(control) for control in controls]
    parameters += [_parameter("without", str, "")] if of_picture else []
    signature = inspect.Signature(parameters, return_annotation=dict)
    answer.__signature__, answer.__name__ = signature, view.slug
    answer.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": dict}
    answer.__doc__ = _documented(view, controls, taken)
    return answer


def _of(control: Control) -> inspect.Parameter:
    kind, default = str, control.start()
    if isinstance(control, Choice):
        kind = Literal[tuple(value for value, _ in control.options)]
    elif isinstance(control, Whole) and control.tokens:
        default = ""
    elif isinstance(control, Slider | Whole):
        kind = int if isinstance(control, Whole) or float(control.step).is_integer() else float
        if default == "":
            kind, default = kind | None, None
    return _parameter(control.name, kind, default)


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)


def _documented(view: View, controls: list[Control], taken: list) -> str:
    told = {one.name: one.info or one.label or one.name for one in controls if one.name != "token"}
    lines = [f"    {name}: {text}" for name, text in told.items()]
    items = ", ".join(f"{item.name}: {' x '.join(item.axes.split())}, {item.says}" for item in taken)
    what = f"{view.words.what}\n\nArgs:\n" + "\n".join(lines)
    return f"{what}\n\nReturns:\n    {{checkpoint, dtype, {items}; grid}}"
