"""Every text that a visitor can read has its translations, and they carry the same values and formulas."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import vitviz
from vitviz.figures import canvas, charts
from vitviz.panels import PANELS
from vitviz.panels.base import Choice
from vitviz.panels.rollout import AUTO
from vitviz.panels.tour_facts import Facts
from vitviz.panels.tour_steps import steps
from vitviz.ui import language

HOME = Path(vitviz.__file__).parent
LANGUAGES = ["zh-CN", "ko"]
PREFIXES = [(), ("class",), ("class", "distillation"), ("class", "register 1", "register 2")]
POSITIONS = ["learned", "rotary", "relative", "none", "learned + rotary", "learned + relative", "rotary + relative"]


def tour_texts() -> set[str]:
    """What the tour can say of any model."""
    found = set()
    flags = itertools.product(PREFIXES, POSITIONS, ["class", "average", "attention", "other"], [0, 10], *[[False, True]] * 6)
    for prefix, positions, pool, classes, named, stem, plain, layer_scale, norm, square in flags:
        patch = (16, 16) if square else (16, 8)
        facts = Facts(grid=(14, 14), patch=patch, prefix=prefix, width=192, layers=12, heads=3, dim=64, mlp=768, classes=classes, named=named,
                      pool=pool, positions=positions, position_rows=197, stem=stem, plain_blocks=plain, layer_scale=layer_scale, norm_before_blocks=norm)  # fmt: skip
        for step in steps(facts):
            values = [value for value in step.values.values() if isinstance(value, str) and re.search("[a-z]", value)]
            found |= {step.title, *step.said, step.attempt, *step.shapes, *values}
    return found


def panel_texts() -> set[str]:
    found = set(AUTO.values())
    for panel in PANELS:
        found |= {panel.title, *vars(panel.explanation).values()}
        for control in panel.controls:
            found |= {control.label, control.info}
            if isinstance(control, Choice):
                found |= {text for _, text in control.options}
    for name in ("filters", "positions"):  # the sentences that stand alone in their code
        source = ast.parse((HOME / "panels" / f"{name}.py").read_text(encoding="utf-8"))
        strings = {node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        found |= {text for text in strings if text.startswith(("This is a hybrid", "it turns", "it adds", "it has no"))}
    return found - {""}


def page_texts() -> set[str]:
    """The literals handed to say, translated or told in Python, and to t in the page's scripts."""
    found = set()
    for file in (HOME / "ui").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("say", "translated", "told")
            if called and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
    for file in (HOME / "ui").glob("*.js"):
        found |= {text.replace("\\'", "'") for text in re.findall(r"\bt\('((?:[^'\\]|\\.)+)'", file.read_text(encoding="utf-8"))}
    return found


@cache
def wanted() -> frozenset[str]:
    """Every English text on the page."""
    note = json.loads((HOME.parent / "weights" / "vitviz-tiny" / "config.json").read_text(encoding="utf-8")).get("note", "")
    names = {"class", "distillation"}  # of prefix tokens
    found = {*tour_texts(), *panel_texts(), *page_texts(), *canvas.texts(), *language.PATTERNS, *chart_texts(), *names, note}
    return frozenset(text for text in found if re.search("[A-Za-z]{2}", re.sub(r"\{\w+\}", "", text)))  # q, k and sums read alike


def chart_texts() -> set[str]:
    """The words of the chart in both of its forms, with and without prefix tokens; patterns aside."""
    numbers, found = np.array([[1.0, 2.0], [3.0, 4.0]]), set()
    for mass, lines in itertools.product((None, numbers), (False, True)):
        figure = charts.distance_by_depth(numbers, 2.5, mass, sorted_heads=lines)
        found |= {figure.layout.xaxis.title.text, figure.layout.yaxis.title.text}
        found |= {text for trace in figure.data for text in (trace.name, trace.hovertemplate)}
    return {text for text in found - {None} if not re.match(r"(layer \d|uniform attention)", text)}


def braces(text: str) -> list[str]:
    return sorted(re.findall(r"%?\{[^{}]*\}", re.sub(r"\$[^$]+\$", "", text)))


def formulas(text: str) -> list[str]:
    return sorted(re.findall(r"\$[^$]+\$", text))
