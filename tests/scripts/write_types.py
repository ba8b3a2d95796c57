"""Write generated.d.ts: types of what Python sends to the scripts, from the Python declarations.

`python -m tests.scripts.write_types` writes the file; a test compares it with the declarations.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from vitviz.charts.chart import Bars, Chart, Matrix, ReferenceLine, Scale, Series
from vitviz.views import VIEWS, View

FILE = Path(__file__).with_name("generated.d.ts")
HEAD = """// Written by `python -m tests.scripts.write_types` from the Python declarations.

"""
# annotations of vitviz/charts/chart.py, as `to_json` sends their values
TYPES = {
    "str": "Sentence",
    "float": "number",
    "int": "number",
    "bool": "boolean",
    "np.ndarray": "(number | null)[]",
    "tuple[np.ndarray, np.ndarray]": "[number[], number[]]",
    "Mapping[str, Sequence[int]]": "Record<string, number[]>",
    "Mapping[str, Sequence[Any]]": "Record<string, any[]>",
    "Sequence[str]": "Sentence[]",
    "tuple[str, ...]": "Sentence[]",
    "tuple[LocalizedText, ...]": "Translatable[]",
    "tuple[float, float]": "[number, number]",
    "tuple[tuple[float, str], ...]": "[number, Sentence][]",
    "tuple[tuple[str, str], ...]": "[string, Sentence][]",
    "tuple[Series, ...]": "Series[]",
    "tuple[ReferenceLine, ...]": "ReferenceLine[]",
}
PLAIN = {"colour", "colours", "dash", "key", "question"}  # texts that are not translated
NAMED = {"Series": {"x": "number[]"}, "Bars": {"x": "number[]", "low": "number[]", "high": "number[]"}}
NAMED["Matrix"] = {"values": "(number | null)[][]"}


def type_of(owner: str, name: str, annotation: str) -> str:
    """Return the TypeScript type of a field."""
    if name in NAMED.get(owner, {}):
        return NAMED[owner][name]
    kept, optional = re.subn(r" \| None$", "", annotation)
    found = TYPES.get(kept, kept).replace("Sentence", "string") if name in PLAIN else TYPES.get(kept, kept)
    return found + (" | null" if optional else "")


def interface(kind: type) -> str:
    """Return a dataclass as an interface."""
    name = kind.__name__
    lines = [f"  {one.name}: {type_of(name, one.name, str(one.type))};" for one in fields(kind)]
    return f"interface {name} {{\n" + "\n".join(lines) + "\n}"


def settings(view: View) -> str:
    """Return the names and types of a view's settings, as the page holds them."""
    kinds = {one.name: "number" if one.kind in ("slider", "whole") else "string" for one in view.controls}
    return f"  {view.slug}: {{ {'; '.join(f'{name}: {kind}' for name, kind in kinds.items())} }};"


def items(view: View) -> str:
    """Return the names of a view's items."""
    return f"  {view.slug}: {' | '.join(repr(one.name) for one in view.items)};".replace('"', "'")


def types() -> str:
    """Return the text of generated.d.ts."""
    charts = [interface(kind) for kind in (Series, Bars, ReferenceLine, Chart, Scale, Matrix)]
    both = (("ViewSettings", settings), ("ViewItems", items))
    views = [f"interface {name} {{\n" + "\n".join(map(of, VIEWS)) + "\n}" for name, of in both]
    texts = [
        "interface Translatable {\n  text: string;\n  values: Record<string, any>;\n}",
        "type Sentence = string | Translatable;",
    ]
    return HEAD + "\n".join([*texts, *charts, *views]) + "\n"


if __name__ == "__main__":
    FILE.write_text(types(), encoding="utf-8")
