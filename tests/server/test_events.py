"""The page's custom events are declared in one file; tsc checks names and payloads of `send` and `listen`."""

import re
from pathlib import Path

import pytest

from vitviz.server.page.build import build_page

PACKAGE = Path(__file__).parents[2] / "vitviz"
EVENTS = PACKAGE / "frontend/events.js"
SOURCES = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.js")}
DECLARED = set(re.findall(r"^ \* @property \{.+\} ([\w-]+)(?= |$)", SOURCES[EVENTS], re.MULTILINE))


def names(function: str) -> set[str]:
    """Names of events that scripts send or listen to."""
    calls = re.compile(rf"\b{function}\('([\w-]+)'")
    return {name for path, text in SOURCES.items() if path != EVENTS for name in calls.findall(text)}


def sent_by_python(service) -> set[str]:
    """Names of events that the page's listeners send."""
    scripts = [one["js"] for one in build_page(service).config["dependencies"] if isinstance(one["js"], str)]
    return {name for script in scripts for name in re.findall(r"CustomEvent\('vitviz:([\w-]+)'", script)}


@pytest.mark.parametrize("forbidden", [r"\bCustomEvent\(", r"['`\"]vitviz:"])
def test_event_prefix_and_constructor_occur_in_one_script(forbidden):
    assert [path.name for path, text in SOURCES.items() if re.search(forbidden, text)] == ["events.js"]


def test_declared_events_have_senders_and_listeners(service):
    assert len(DECLARED) == 16
    assert names("listen") == DECLARED
    assert names("send") | sent_by_python(service) == DECLARED
