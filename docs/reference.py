"""The reference that people read: the API from its docstrings, and what each view means from its own words.

    python docs/reference.py            writes docs/views.md anew, which a test compares
    python docs/reference.py FOLDER     builds the whole reference as HTML

Nothing is said here that the code does not say: pdoc reads docstrings and signatures, and a view's
definition, source and limits are the words that the page shows.
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

PUBLIC = ("vitviz", "vitviz.errors", "vitviz.notebook", "vitviz.surveys")
NO_OTHERS = r"!vitviz\.(?!(errors|notebook|surveys)$)"
HEAD = """# What each view means

Formula, source and limits of every view, as the page tells them. Layers and heads count from 1. *The paper*
is [*An Image is Worth 16x16 Words*](https://arxiv.org/abs/2010.11929). Written by `python docs/reference.py`.
"""


def definitions() -> str:
    """docs/views.md: all views in the order of the page."""
    from vitviz.views import VIEWS

    parts = [HEAD]
    for view in VIEWS:
        words, items = view.words, [item for item in view.items if item.taken and item.says]
        told = (
            f"{words.what} {words.how}",
            words.definition,
            f"**Source.** {words.source}.",
            f"**What it does not show.** {words.caveat}",
        )
        parts.append("\n\n".join([f"## {view.title}", *map(_folded, told)]) + "\n")
        if items:
            rows = "\n".join(f"| `{item.name}` | {item.axes} | {item.says} |" for item in items)
            parts.append(f"| Numbers | Axes | What they are |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _folded(text: str) -> str:
    """At 110 columns; a formula stays on its line, as Markdown wants it."""
    whole = re.sub(r"\$[^$]+\$", lambda one: one[0].replace(" ", "\0"), text)
    lines = textwrap.fill(whole, 110, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def build(out: Path) -> None:
    """The reference as HTML in a folder; what pdoc cannot read it warns of."""
    import pdoc
    from pdoc.render_helpers import to_html

    pdoc.render.configure(docformat="markdown", math=True, footer_text="vitviz", show_source=False)
    for module in map(importlib.import_module, PUBLIC):
        for name in getattr(module, "__all__", ()):  # found when they are first used: pdoc sees what has been
            setattr(module, name, getattr(module, name))
    pdoc.pdoc(*PUBLIC, NO_OTHERS, output_directory=out)
    body = to_html(definitions())
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>vitviz: views</title>'
    page = f"{head}<body>{body}</body></html>"
    (out / "views.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        build(Path(sys.argv[1]))
    else:
        (HERE / "views.md").write_text(definitions(), encoding="utf-8")
