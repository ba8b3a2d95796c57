"""The words of words.txt occur neither in code nor in comments, docs or the page's English."""

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
OLD_NAMES = "vitviz/_deprecated.py"  # this file must contain the old names for one more release
FILES = [
    path
    for pattern in (
        "vitviz/**/*.py",
        "vitviz/**/*.js",
        "vitviz/**/*.css",
        "vitviz/**/*.md",
        "docs/*.md",
        "docs/*.py",
        "*.md",
    )
    for path in sorted(ROOT.glob(pattern))
    if path != ROOT / OLD_NAMES and path.name != "CHANGELOG.md"
]
# parts of an identifier count as words
PATTERN = re.compile(r"(?<![a-zA-Z])(?:" + "|".join(WORDS) + r")(?![a-zA-Z])", re.I)


def listed_words(text: str) -> list[str]:
    """Return 'line: word, use …' for each word of the list in a text."""
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, use "
        + next(better for word, better in WORDS.items() if re.fullmatch(word, match[0], re.I))
        for match in PATTERN.finditer(text)
    ]


def test_listed_words_are_found_in_sentences_and_names():
    assert listed_words("One.\nPut back the dear_one.") == [
        "2: 'Put back', use restores, resets",
        "2: 'dear', use expensive",
    ]
    assert not listed_words("The tape deck was diary-dearth.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_contains_no_listed_word(path):
    found = listed_words(path.read_text(encoding="utf-8"))
    assert not found, f"{path.relative_to(ROOT)}:\n" + "\n".join(found)
