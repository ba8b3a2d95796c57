"""Views in groups. A new folder here is found automatically."""

import importlib
import pkgutil

from vitviz.views.base import Item, Needs, View, ViewTexts
from vitviz.views.controls import (
    Choice,
    Control,
    IntListSetting,
    IntSetting,
    LayerRange,
    ModelShape,
    QuerySetting,
    Slider,
    Text,
)
from vitviz.views.parts import ExportDefaults, File, Scope, VideoDefaults
from vitviz.views.subject import ViewContext

ORDER = {  # group: the folders of its views, in page order
    "Start here": ("tour",),
    "Input": ("patches", "filters", "positions"),
    "Attention": ("explorer", "distance", "rollout"),
    "Layers": ("tokens", "compared"),
    "Why?": ("evidence", "trial"),
    "What if?": ("experiment",),
}
ELSE = "Layers"  # group of the views that ORDER does not list, after its own


def _views_by_group() -> dict[str, tuple[View, ...]]:
    """Return the views in the folders here by group; without empty groups."""
    folders = {module.name for module in pkgutil.iter_modules(__path__) if module.ispkg}
    new = sorted(folders - {name for names in ORDER.values() for name in names})
    order = {group: [*names, *(new if group == ELSE else ())] for group, names in ORDER.items()}
    views = {group: tuple(_view(name) for name in names if name in folders) for group, names in order.items()}
    return {group: result for group, result in views.items() if result}


def _view(folder: str) -> View:
    """Import a view's folder by name; return an instance of its view class."""
    module = importlib.import_module(f"{__name__}.{folder}")
    result = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, View)]
    return next(cls() for cls in result if cls.__module__ == module.__name__)


GROUPS: dict[str, tuple[View, ...]] = _views_by_group()
VIEWS: tuple[View, ...] = tuple(view for views in GROUPS.values() for view in views)

__all__ = [
    "GROUPS", "VIEWS", "ModelShape", "Choice", "Control", "File", "Item", "LayerRange", "Needs",
    "QuerySetting", "Slider", "ViewContext", "Text", "View", "IntSetting", "IntListSetting", "ViewTexts",
    "ExportDefaults", "Scope", "VideoDefaults"
]  # fmt: skip
