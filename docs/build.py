"""The documentation as a site: `python docs/build.py [FOLDER]`, after `pip install '.[docs]'`.

MkDocs turns the Markdown of this folder into pages, pdoc the docstrings into the API's reference. The first
page is the README, and the gallery's figures are drawn by the lines that the gallery shows.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PUBLIC = ("vitviz", "vitviz.errors", "vitviz.notebook", "vitviz.surveys")
NO_OTHERS = r"!vitviz\.(?!(errors|notebook|surveys)$)"
BESIDE = {name: name.lower() for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")}
LINK = re.compile(r"\[([^]]*)\]\((?!https?:|#)([^)]+)\)")


def gathered(home: Path) -> None:
    """All pages in one folder: this one's, and the README as the first."""
    ignored = shutil.ignore_patterns("*.py", "*.yml", "__pycache__")
    shutil.copytree(ROOT / "docs", home, dirs_exist_ok=True, ignore=ignored)
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    (home / "index.md").write_text(first, encoding="utf-8")
    for name, page in BESIDE.items():
        shutil.copy(ROOT / name, home / page)


def linked(home: Path) -> None:
    """Links as they lead here; what the site has not is told without one."""

    def here(link: re.Match) -> str:
        told, path = link.groups()
        path = path.removeprefix("../").removeprefix("docs/")
        path = BESIDE.get(path, path)
        return f"[{told}]({path})" if (home / path.partition("#")[0]).exists() else told

    for page in home.glob("*.md"):
        page.write_text(LINK.sub(here, page.read_text(encoding="utf-8")), encoding="utf-8")


def drawn(home: Path) -> None:
    """Draw the figures of the pages that show how they are drawn, by running their lines."""
    (home / "gallery").mkdir()
    here = Path.cwd()
    os.chdir(home)
    try:
        for page in ("gallery.md", "wrong-maps.md"):
            lines = re.findall(r"```python\n(.*?)```", Path(page).read_text(encoding="utf-8"), re.S)
            exec(compile("\n".join(lines), page, "exec"), {})
    finally:
        os.chdir(here)


def reference(out: Path) -> None:
    """The API's pages from its docstrings; what pdoc cannot read it warns of."""
    import pdoc

    pdoc.render.configure(docformat="google", math=True, footer_text="vitviz", show_source=False)
    for module in map(importlib.import_module, PUBLIC):
        for name in getattr(module, "__all__", ()):  # found when they are first used: pdoc sees what has been
            setattr(module, name, getattr(module, name))
    pdoc.pdoc(*PUBLIC, NO_OTHERS, output_directory=out)


def build(out: Path) -> None:
    """The whole site in a folder; a link that leads nowhere ends it."""
    from mkdocs.commands.build import build as mkdocs
    from mkdocs.config import load_config

    with tempfile.TemporaryDirectory() as home:
        gathered(Path(home))
        drawn(Path(home))
        linked(Path(home))
        config = load_config(str(ROOT / "docs" / "mkdocs.yml"), docs_dir=home, site_dir=str(out), strict=True)
        mkdocs(config)
    reference(out / "reference")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve())
