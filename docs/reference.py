"""What each view means, from its own words: `python docs/reference.py` writes docs/views.md anew.

Nothing is said there that the page does not say; a test compares. `python docs/build.py` builds the site.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

HEAD = """# Definitions of the views

Formula, source and limits of every view, in the words of the page. Layers and heads count from 1. *The paper*
is [*An Image is Worth 16x16 Words*](https://arxiv.org/abs/2010.11929). `python docs/reference.py` writes this
page. [page.md](page.md) describes the use of the page, [glossary.md](glossary.md) the terms.
"""


def definitions() -> str:
    """docs/views.md: all views in the order of the page."""
    from vitviz.views import VIEWS

    parts = [HEAD]
    for view in VIEWS:
        words, items = view.words, [item for item in view.items if item.in_export and item.description]
        told = (
            f"{words.what} {words.how}",
            words.definition,
            f"**Source.** {words.source}.",
            f"**What it does not show.** {words.caveat}",
        )
        parts.append("\n\n".join([f"## {view.title}", *map(_folded, told)]) + "\n")
        if items:
            rows = "\n".join(f"| `{item.name}` | {item.axes} | {item.description} |" for item in items)
            parts.append(f"| Numbers | Axes | What they are |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _folded(text: str) -> str:
    """At 110 columns; a formula stays on its line, as Markdown wants it."""
    whole = re.sub(r"\$[^$]+\$", lambda one: one[0].replace(" ", "\0"), text)
    lines = textwrap.fill(whole, 110, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


if __name__ == "__main__":
    (HERE / "views.md").write_text(definitions(), encoding="utf-8")
