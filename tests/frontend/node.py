"""Runs the browser's modules in Node, for what they compute and not what they draw."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vitviz.server.api import modules

# What modules ask of a browser as they are loaded; an array comes as the class that the browser has for it.
RUN = """
import { readFileSync } from 'node:fs';
Object.defineProperty(globalThis, 'navigator', { value: { language: 'en' }, configurable: true });
globalThis.window = globalThis;
globalThis.location = { search: '' };
const CLASSES = { float32: Float32Array, uint8: Uint8Array };
const { path, expression, given } = JSON.parse(readFileSync(0, 'utf8'), (name, one) =>
  one?.dtype ? new CLASSES[one.dtype](one.values) : one);
const module = await import(path);
const known = { ...module, ...given };
delete known.default; // no name of a parameter
const found = new Function(...Object.keys(known), `return ${expression};`)(...Object.values(known));
console.log(JSON.stringify(found, (name, one) =>
  ArrayBuffer.isView(one) ? Array.from(one) : Number.isNaN(one) ? 'NaN' : one));
"""


def written(given: Any) -> Any:
    """As JSON: arrays by their class and their numbers row by row; what is not a number as a word."""
    if isinstance(given, np.ndarray):
        numbers = [one if math.isfinite(one) else "NaN" for one in given.ravel().tolist()]
        return {"dtype": given.dtype.name, "values": numbers}
    if isinstance(given, Mapping):
        return {name: written(one) for name, one in given.items()}
    return [written(one) for one in given] if isinstance(given, (list, tuple)) else given


class Node:
    """The modules, as they are served, in a folder from which Node loads them."""

    def __init__(self, home: Path):
        self.home = home
        for path, text in modules._sources().items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text, encoding="utf-8")
        (home / "package.json").write_text('{"type": "module"}')
        (home / "run.js").write_text(RUN)

    def __call__(self, path: str, expression: str, /, **given: Any) -> Any:
        """What an expression gives that names a module's exports and the values given; numbers in lists."""
        asked = {"path": f"./{path}", "expression": expression, "given": written(given)}
        found = subprocess.run(
            ["node", "run.js"],
            cwd=self.home,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)
