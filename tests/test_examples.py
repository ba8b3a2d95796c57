"""Doctests: every example in a docstring gives the output shown below it."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "vitviz"


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


# module -> number of examples that must run
EXAMPLES = {
    module_of(file): len(told)
    for file in sorted(PACKAGE.rglob("*.py"))
    if (told := re.findall(r"^ *>>> (?!.*doctest: \+SKIP)", file.read_text(encoding="utf-8"), re.M))
}


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_give_what_they_say(module):
    found = doctest.testmod(importlib.import_module(module))
    assert (found.failed, found.attempted) == (0, EXAMPLES[module])
