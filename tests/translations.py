"""Texts of the page and their translations: what is missing, unused, or to be reviewed.

    python -m tests.translations           # list missing and unused translations of both languages
    python -m tests.translations --write   # carry translations over to edited English, remove unused ones

The English text is the key of a translation. After an edit of the English, `--write` moves the translation of
the most similar old text to the new one and adds the new text to `to-review.LANGUAGE.txt` in
`vitviz/server/i18n`. A translator corrects the entry and deletes its line. A text without translation appears
in English.

Texts of one view are in the view's folder, texts of the scripts in `frontend`, all others in `server/i18n`. A
text of several places is in one of the last two.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import json
import re
import sys
from functools import cache
from pathlib import Path

import vitviz
from vitviz.server.page.page_renderer import PAIRS
from vitviz.traces.grid import Grid
from vitviz.views import ORDER, VIEWS, Choice, View
from vitviz.views.printing import is_mapped, map_item
from vitviz.views.tour import steps
from vitviz.views.tour.facts import Facts
from vitviz.views.tour.steps import tour_steps

HOME = Path(vitviz.__file__).parent
CONFIG = json.loads((HOME.parent / "weights/vitviz-tiny/config.json").read_text(encoding="utf-8"))
NOTE = CONFIG["vitviz"]["note"]
LANGUAGES = ["zh-CN", "ko"]
PREFIXES = [(), ("class",), ("class", "distillation"), ("class", "register 1", "register 2")]
POSITIONS = [
    "learned",
    "rotary",
    "relative",
    "none",
    "learned + rotary",
    "learned + relative",
    "rotary + relative",
]


POOLS = ["class", "average", "attention", "other"]
REST = ([0, 10], [196, 197], *[[False, True]] * 4)  # classes, rows of the table, and what a model has or not
SOME_MODELS = [
    *itertools.product(PREFIXES, POSITIONS, POOLS, *[part[-1:] for part in REST]),
    *itertools.product(PREFIXES[:2], POSITIONS[:1], POOLS, *REST),
]


def tour_texts(models=SOME_MODELS) -> set[str]:
    """What the tour can say of any model."""
    found = set()
    for prefix, positions, pool, classes, rows, named, stem, plain, extra in models:
        facts = Facts(grid=Grid(14, 14, (16, 16), prefix), width=192, layers=12, heads=3, dim=64,
                      mlp=768, classes=classes, named=named, pool=pool, positions=positions,
                      position_rows=rows, stem=stem, plain_blocks=plain,
                      layer_scale=extra, norm_before_blocks=extra)  # fmt: skip
        for step in tour_steps(facts):
            values = [
                value
                for value in step.values.values()
                if isinstance(value, str) and re.search("[a-z]", value)
            ]
            found |= {step.title, *step.said, step.attempt, *step.shapes, *values}
    return found


def written_in(folder: Path, pattern: str = "*.js") -> set[str]:
    """The literals handed to t in scripts, and the titles of figures."""
    found = set()
    for file in folder.glob(pattern):
        source = file.read_text(encoding="utf-8")
        source = re.sub(r"' \+\s+'", "", source)  # a long literal stands in several lines
        literal = r"'((?:[^'\\]|\\.)+)'"
        found |= set(re.findall(rf"\bt\(\s*{literal}", source))
        for either in re.findall(
            rf"\bt\([^'()]*(?:\?|\|\||===)\s+{literal}(?:\s+: {literal})?", source
        ):  # one or the other
            found |= {text for text in either if text}
        found |= set(re.findall(r"^  title: '((?:[^'\\]|\\.)+)',$", source, re.M))
    return {text.replace("\\'", "'") for text in found}


def literals(node: ast.expr, given: dict[str, ast.expr]) -> list[str]:
    """A text as it is written: here, one of two, in a constant of the module or one of its table."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return literals(node.body, given) + literals(node.orelse, given)
    if isinstance(node, ast.Name):
        return literals(given[node.id], {}) if node.id in given else []
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        table = given.get(node.value.id)
        return [text for one in getattr(table, "values", ()) for text in literals(one, {})]
    return []


SAYING = {"translatable", "translate", "mark", "LocalizedText", "text_to_json"}


def python_texts(folder: Path, pattern: str = "*.py", sentences: bool = True) -> set[str]:
    """The literals and the module's constants that are handed to what says something; all constants that are
    sentences.
    """
    found = set()
    for file in folder.rglob(pattern):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        given = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        constants = {
            name: value.value
            for name, value in given.items()
            if isinstance(value, ast.Constant) and isinstance(value.value, str)
        }
        found |= {
            text for text in constants.values() if sentences and re.fullmatch("[A-Z{][^\n]* [^\n]*[.]", text)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in SAYING
                and node.args
            ):
                found |= set(literals(node.args[0], given))
    return found


def findings_of_a_check() -> set[str]:
    """The sentences of the model check, wherever they stand in it, but for docstrings."""
    found = python_texts(HOME / "diagnostics", sentences=False)
    rules = json.loads((HOME / "diagnostics" / "findings.json").read_text(encoding="utf-8"))
    found |= {
        rule[part]
        for rule in rules.values()
        for part in ("bad", "good", "advice", "source", "setting")
        if part in rule
    }
    for file in (HOME / "diagnostics").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        described = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and isinstance(node.body[0], ast.Expr)
        }
        found |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described
            and re.fullmatch("[A-Z{][^\n]* [^\n]*[.]", node.value)
        }  # fmt: skip
    return found


def declared(view: View) -> set[str]:
    """The English texts that a view declares."""
    words = {text for name, text in vars(view.words).items() if name != "cites"}
    extra = getattr(sys.modules[type(view).__module__], "EXTRA_TEXTS", ())
    found = {view.title, view.export.unprinted, *words, *extra, *(file.label for file in view.export.files)}
    if is_mapped(view):
        found |= {map_item(view).description} if map_item(view) else set()
    for control in view.controls:
        found |= {control.label, control.info}
        if isinstance(control, Choice) and control.label:
            found |= {text for _, text in (*control.options, *control.of_values)}
    return found - {""}


@cache
def said_in() -> dict[str, set[str]]:
    """Folder -> the English texts that are said there."""
    folders = {
        f"views/{view.slug}": declared(view) | written_in(HOME / "views" / view.slug) for view in VIEWS
    }
    for view in VIEWS:  # what their figures for print say
        folders[f"views/{view.slug}"] |= python_texts(HOME / "views" / view.slug, sentences=False)
    folders["views/tour"] |= {*tour_texts(), *steps.tour_texts()}
    folders["frontend"] = written_in(HOME / "frontend") | {"class", "distillation"}  # names of prefix tokens
    for said_of_all in ("availability.py", "base.py", "printing.py", "shared.py"):
        folders["frontend"] |= python_texts(HOME / "views", said_of_all)
    folders["frontend"] |= python_texts(HOME / "charts", "chart.py")
    folders["server/i18n"] = (
        python_texts(HOME / "server")
        | python_texts(HOME / "engine", sentences=False)
        | python_texts(HOME / "export")
        | python_texts(HOME / "analyses", sentences=False)
        | python_texts(HOME / "surveys", sentences=False)
        | findings_of_a_check()
        | {"{checkpoint}: not applicable, because {reason}."}
        | written_in(HOME / "server/page")
        | {NOTE, "none", "{what}\n\n{how}"}
    )
    folders["server/i18n"] |= {text for text, _ in PAIRS} | set(ORDER)

    def needs(text: str) -> bool:  # q and k read alike
        return text == "{what}\n\n{how}" or bool(re.search("[A-Za-z]{2}", re.sub(r"\{\w+\}", "", text)))

    return {folder: {text for text in texts if needs(text)} for folder, texts in folders.items()}


def kept(folder: str, tag: str) -> dict[str, str]:
    file = HOME / (f"{folder}.{tag}.json" if folder.endswith("classes") else f"{folder}/{tag}.json")
    return json.loads(file.read_text(encoding="utf-8"))


def misplaced(tag: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the missing and the unused translations of a language, each as folder -> English texts.

    A text that several folders use belongs in `frontend` or `server/i18n`.
    """
    used = said_in()
    several = {text for one, other in itertools.combinations(used.values(), 2) for text in one & other}
    scripts, server = used["frontend"], used["server/i18n"]
    views = set().union(*(texts for folder, texts in used.items() if folder.startswith("views/")))
    wanted = {folder: texts - several for folder, texts in used.items()}
    wanted["server/i18n"] = server - views - scripts
    wanted["frontend"] = scripts - views - server
    common = several | wanted["server/i18n"] | wanted["frontend"]
    kept_in = {folder: set(kept(folder, tag)) for folder in wanted}
    shared = kept_in["frontend"] | kept_in["server/i18n"]
    missing = {folder: texts - kept_in[folder] - shared for folder, texts in wanted.items()}
    missing["frontend"] |= several - shared
    unused = {folder: kept_in[folder] - wanted[folder] for folder in wanted if folder.startswith("views/")}
    unused["frontend"] = kept_in["frontend"] - common | kept_in["frontend"] & wanted["server/i18n"]
    unused["server/i18n"] = kept_in["server/i18n"] - common | kept_in["server/i18n"] & wanted["frontend"]
    return missing, unused


def write(tag: str) -> None:
    """Move unused translations to similar missing texts, mark these for review, and drop what is left."""
    missing, unused = misplaced(tag)
    review = HOME / f"server/i18n/to-review.{tag}.txt"
    marked = review.read_text(encoding="utf-8").splitlines() if review.exists() else []
    old = {text: kept(folder, tag)[text] for folder, texts in unused.items() for text in texts}
    for folder in missing:
        texts = kept(folder, tag)
        for text in sorted(missing[folder]):
            similar = [text] if text in old else difflib.get_close_matches(text, old, 1, 0.5)
            if similar and braces(old[similar[0]]) == braces(text):
                entries = [*texts.items(), *[(similar[0], "")] * (similar[0] not in texts)]
                texts = {text if key == similar[0] else key: said or old[key] for key, said in entries}
                marked += [text] if similar != [text] else []
        texts = {text: said for text, said in texts.items() if text not in unused[folder]}
        if texts != kept(folder, tag):
            file = HOME / folder / f"{tag}.json"
            file.write_text(json.dumps(texts, ensure_ascii=False, indent=1) + "\n", "utf-8")
    marked = sorted({text for text in marked if text in set().union(*said_in().values())})
    review.write_text("".join(f"{text}\n" for text in marked), "utf-8") if marked else review.unlink(True)


def braces(text: str) -> list[str]:
    return sorted(re.findall(r"\{[^{}]*\}", re.sub(r"\$[^$]+\$", "", text)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="change the files")
    given = parser.parse_args()
    for tag in LANGUAGES:
        if given.write:
            write(tag)
        for what, folders in zip(("missing", "unused"), misplaced(tag), strict=True):
            for folder, texts in folders.items():
                for text in sorted(texts):
                    print(f"{tag} {what} in {folder}: {text}")
        review = HOME / f"server/i18n/to-review.{tag}.txt"
        for text in review.read_text(encoding="utf-8").splitlines() if review.exists() else []:
            print(f"{tag} to review: {text}")


if __name__ == "__main__":
    main()
