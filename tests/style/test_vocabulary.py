"""Words of words.txt stand neither in code nor in comments, docs or the page's English."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("words.txt")
WORDS = dict(
    line.split(" = ")
    for line in LIST.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)
OLD_NAMES = "vitviz/_deprecated.py"  # lists them, to be found for one more release
FILES = [
    path
    for pattern in ("vitviz/**/*.py", "vitviz/**/*.js", "vitviz/**/*.css", "docs/*.md", "docs/*.py", "*.md")
    for path in sorted(ROOT.glob(pattern))
    if path != ROOT / OLD_NAMES and path.name != "CHANGELOG.md"
]
# an identifier's parts are words, too
PATTERN = re.compile(r"(?<![a-zA-Z])(?:" + "|".join(WORDS) + r")(?![a-zA-Z])", re.I)


def uses(text: str) -> list[str]:
    """Return 'line: word, use …' for each word of the list in a text."""
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, use "
        + next(better for word, better in WORDS.items() if re.fullmatch(word, match[0], re.I))
        for match in PATTERN.finditer(text)
    ]


def test_uses_finds_a_word_in_a_sentence_and_in_a_name():
    assert uses("One.\nPut back the dear_one.") == [
        "2: 'Put back', use restores, resets",
        "2: 'dear', use expensive",
    ]
    assert not uses("The tape deck was diary-dearth.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_uses_no_word_of_the_list(path):
    found = uses(path.read_text(encoding="utf-8"))
    assert not found, f"{path.relative_to(ROOT)}:\n" + "\n".join(found)
