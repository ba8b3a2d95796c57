"""What the page and the endpoints derive from a view's declaration: checked settings and arrays as sent."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz.charts.chart import to_json
from vitviz.errors import WrongSetting, quoted
from vitviz.traces.grid import Grid
from vitviz.views.base import CHART, View, find_item, item_values
from vitviz.views.controls import IntListSetting, IntSetting, ModelShape, token_names
from vitviz.views.shared import json_bytes
from vitviz.views.subject import Settings, ViewContext


def parse_settings(view: View, texts: Mapping[str, str], about: ModelShape | None = None) -> dict[str, Any]:
    """Return the parsed value, or default, of every control; raise WrongSetting for invalid ones."""
    controls = {control.name: control for control in view.controls}
    for name in texts:
        if name not in controls:
            expected = ", ".join(controls) or "none"
            raise WrongSetting(f"{view.title} has no setting {quoted(name)}; it has {expected}.")
    return {
        name: control.parse(texts.get(name, str(control.start(about))), about)
        for name, control in controls.items()
    }


def image_set_setting(view: View, text: str = "") -> str:
    """Return the parsed value of the setting that chooses the survey; "" if the view has none."""
    name = view.scope.set_control
    return parse_settings(view, {name: text} if text else {})[name] if name else ""


def settings_for_files(view: View, settings: Settings, grid: Grid) -> dict[str, Any]:
    """Return the settings for files: positions of tokens become prefix tokens' names or patch numbers."""
    counted = {c.name for c in view.controls if isinstance(c, IntSetting | IntListSetting) and c.tokens}
    return {name: token_names(value, grid) if name in counted else value for name, value in settings.items()}


def item_array(view: View, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
    """Return a view's item or chart, by name, as the array that is sent to the page."""
    item = find_item(view, name)
    if name == CHART:
        return json_bytes(to_json(view.chart(subject, settings)))
    return item.checked(item_values(view, subject, name, settings), subject.about)


def export_axes(view: View) -> dict[str, str]:
    """Return the axes of each array that `View.numbers` returns; token axes start with the prefix tokens."""
    return {**{item.name: item.axes for item in view.items}, **view.export.arrays}
