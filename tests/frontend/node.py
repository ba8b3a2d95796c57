"""Runs the browser's modules in Node to test what they compute."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vitviz.server.api import modules

# Browser globals that modules need at load time. Arrays become the matching typed arrays.
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


def to_json(given: Any) -> Any:
    """Return JSON values: arrays with dtype and flat values, non-finite numbers as "NaN"."""
    if isinstance(given, np.ndarray):
        numbers = [one if math.isfinite(one) else "NaN" for one in given.ravel().tolist()]
        return {"dtype": given.dtype.name, "values": numbers}
    if isinstance(given, Mapping):
        return {name: to_json(one) for name, one in given.items()}
    return [to_json(one) for one in given] if isinstance(given, (list, tuple)) else given


class Node:
    """The served modules, in a folder from which Node imports them."""

    def __init__(self, home: Path):
        self.home = home
        for path, text in modules._sources().items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(text, encoding="utf-8")
        (home / "package.json").write_text('{"type": "module"}')
        (home / "run.js").write_text(RUN)

    def __call__(self, path: str, expression: str, /, **given: Any) -> Any:
        """Evaluate an expression over the exports of a module and the given values."""
        request = {"path": f"./{path}", "expression": expression, "given": to_json(given)}
        result = subprocess.run(
            ["node", "run.js"],
            cwd=self.home,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)
