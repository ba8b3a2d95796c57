"""Stage 2: one plain name for each class and type alias, and the members of the style guide's table."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import deprecated
import members
from symbols import Symbols, documents, rename
from types_table import TYPES


def run(root: Path, log) -> None:
    project = Symbols(root)
    table = {(module, old): new for module, names in TYPES.items() for old, new in names.items()}
    public = {
        (package, name): project.resolve(("from", package, name))
        for package in deprecated.PACKAGES
        for name in project.exports(package)
    }
    done = rename(project, table, log)
    project.save()
    once = Counter(old for _, old in done)
    words = {old: new for (_, old), new in done.items() if once[old] == 1 and re.search("[a-z][A-Z]", old)}
    words |= {
        name: done[found[1:]]
        for (_, name), found in public.items()
        if found and found[0] == "def" and found[1:] in done and re.search("[A-Z]", name)
    }
    words |= {new_word: done[key] for new_word, key in UNAMBIGUOUS.items() if key in done}
    documents(root, project, done, words)
    fix(root, FIXES, log)
    deprecated.names(root, done, public)
    log(f"stage types: {len(done)} of {len(table)} names")
    members.run(root, "types", log)


# words that mean a type wherever they stand in backticks
UNAMBIGUOUS = {
    "Studio": ("vitviz.server.services.analysis_service", "Studio"),
    "Shown": ("vitviz.server.page.page_renderer", "Shown"),
    "Explorer": ("vitviz.views.explorer", "Explorer"),
    "Forward": ("vitviz.engine.runner", "Forward"),
    "Whole": ("vitviz.views.controls", "Whole"),
    "Query": ("vitviz.views.controls", "Query"),
    "Subject": ("vitviz.views.subject", "Subject"),
    "Sentence": ("vitviz.traces.localized_text", "Sentence"),
    "Words.of_paper": ("vitviz.views.base", "Words"),
}

FIXES = {  # text that names a type where no tool sees it: file -> [(pattern, new)]
    "tests/frontend/test_scripts.py": [
        (r"Part\\\(", r"PageComponent\\("),
    ],
    "vitviz/traces/runs.py": [(r'f"Without\(', 'f"Ablation(')],
    "tests/notebook/conftest.py": [(r'"Without": ', '"Ablation": ')],
    "CONTRIBUTING.md": [(r"`ViewTexts`", "`ViewTexts.of_paper`")],
}


def fix(root: Path, fixes, log) -> None:
    for path, pairs in fixes.items():
        place = root / path
        if not place.is_file():
            log(f"  no such file: {path}")
            continue
        text = place.read_text(encoding="utf-8")
        for old, new in pairs:
            text, count = re.subn(old, new, text)
            if not count:
                log(f"  nothing to fix: {path}: {old}")
        place.write_text(text, encoding="utf-8")
