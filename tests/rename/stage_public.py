"""Stage 3: public names. Functions of `vitviz` and `vitviz.analyses`; the parameter `without` of three of them.

Not covered: slugs of views, keys of links and lessons, measures' names, CLI flags, endpoints, result attributes.
"""

from __future__ import annotations

import re
from pathlib import Path

import deprecated
from symbols import Symbols, documents, rename

FUNCTIONS = {
    "vitviz.engine.studies.attribution": {"evidence": "logit_attribution", "lens": "logit_lens"},
    "vitviz.engine.studies.saliency": {"relevance": "saliency", "trial": "faithfulness"},
    "vitviz.engine.studies.perturbation": {"experiment": "perturbation"},
    "vitviz.engine.studies.circuits": {
        "writers": "upstream_contributions",
        "score_account": "attention_score_attribution",
        "paths": "attribution_paths",
        "edge_effects": "edge_ablation",
        "smallest_part": "sufficient_edges",
    },
    "vitviz.engine.images.editing": {"retouched": "edit_image"},
    "vitviz.engine": {"film": "training_snapshots"},
    "vitviz.notebook.results": {"lens": "logit_lens", "film": "training_snapshots"},
    "vitviz.analyses.logit_account": {"evidence": "logit_attribution"},
}

PARAMETERS = '''

PARAMETERS = {"without": "ablation"}  # of public functions: old -> new


def renamed_parameters(function):
    """Return the function, which takes its parameters under their old names too, with a warning."""

    @wraps(function)
    def call(*args, **given):
        for old in PARAMETERS.keys() & given.keys():
            new = PARAMETERS[old]
            warnings.warn(f"{function.__name__}: {old}= is {new}= now.", DeprecationWarning, stacklevel=2)
            given[new] = given.pop(old)
        return function(*args, **given)

    return call
'''
# function -> its file; every use of the parameter inside, and keywords at calls of functions of this name
TAKES = {
    "vitviz/engine/inspector.py": "trace",
    "vitviz/export/animation.py": "animation",
    "vitviz/export/video.py": "video",
}

TEST = '''"""Old public names are still found, with a warning."""

import importlib
import pickle

import pytest

import vitviz
from vitviz._deprecated import NAMES


@pytest.mark.parametrize("old", sorted(NAMES))
def test_old_name_is_the_new_one(old):
    package, _, name = old.rpartition(".")
    module = importlib.import_module(package)
    if package not in ("vitviz", "vitviz.analyses", "vitviz.surveys", "vitviz.notebook"):
        assert hasattr(module, NAMES[old])
        return
    with pytest.warns(DeprecationWarning, match=f"{old} is {package}.{NAMES[old]} now"):
        assert getattr(module, name) is getattr(module, NAMES[old])


def test_pickle_written_under_old_names_loads(trace):
    data = pickle.dumps(trace, protocol=0)
    for new, old in ((b"vitviz.traces.", b"vitviz.record."), (b"ModelInput", b"View"), (b"Ablation", b"Without")):
        data = data.replace(new, old)
    data = data.replace(b"vitviz.record.image_edits", b"vitviz.record.strokes").replace(b"ImageEdits", b"Strokes")
    with pytest.warns(DeprecationWarning):
        again = pickle.loads(data)
    assert type(again) is vitviz.Trace and (again.logits == trace.logits).all()


def test_old_parameter_is_read(inspector, photo):
    ablation = vitviz.Ablation(heads=[(0, 0)])
    expected = inspector.trace(photo, ablation=ablation)
    with pytest.warns(DeprecationWarning, match="without= is ablation= now"):
        assert (inspector.trace(photo, without=ablation).logits == expected.logits).all()
'''


def run(root: Path, log) -> None:
    place = root / "vitviz/engine/studies/circuits.py"  # the function takes the name of the module there
    text = place.read_text(encoding="utf-8")
    text = re.sub(
        r"^(from vitviz\.analyses import .*\b)sufficient_edges\b",
        r"\1sufficient_edges as edge_subsets",
        text,
        flags=re.M,
    )
    place.write_text(
        re.sub(r"(?<![\w.])sufficient_edges\.(?=\w+\()", "edge_subsets.", text), encoding="utf-8"
    )
    project = Symbols(root)
    table = {
        (module, old): new
        for module, names in FUNCTIONS.items()
        for old, new in names.items()
        if old in project.exports(module)
    }
    public = {
        (package, name): project.resolve(("from", package, name))
        for package in deprecated.PACKAGES
        for name in project.exports(package)
    }
    done = rename(project, table, log)
    project.save()
    documents(root, project, done, {})
    deprecated.names(root, done, public)
    parameters(root, log)
    old_keys = {
        name: done[found[1:]]
        for (package, name), found in public.items()
        if package == "vitviz" and found and found[0] == "def" and found[1:] in done
    }
    for path in sorted((root / "tests/notebook").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        new = re.sub(r'"(\w+)"(?=: )', lambda one: f'"{old_keys.get(one[1], one[1])}"', text)
        if path.name != "conftest.py":
            new = re.sub(
                r"^NOTHING .*$",
                lambda line: re.sub(r'"(\w+)"', lambda one: f'"{old_keys.get(one[1], one[1])}"', line[0]),
                text,
                flags=re.M,
            )
        if new != text:
            path.write_text(new, encoding="utf-8")
    (root / "tests/traces/test_deprecated.py").write_text(TEST, encoding="utf-8")
    log(f"stage public: {len(done)} of {len(table)} functions")


def parameters(root: Path, log) -> None:
    """`without=` of the three functions becomes `ablation=`."""
    import ast

    from pycode import Project

    place = root / "vitviz/_deprecated.py"
    text = place.read_text(encoding="utf-8")
    at = text.index("\n\ndef current(")
    text = text[:at].rstrip("\n") + PARAMETERS + text[at:]
    text = text.replace("import warnings\n", "import warnings\nfrom functools import wraps\n", 1)
    place.write_text(text, encoding="utf-8")

    project = Project(root)
    for path, name in TAKES.items():
        file = project.files[path]
        (node,) = (
            one for one in ast.walk(file.tree) if isinstance(one, ast.FunctionDef) and one.name == name
        )
        scope = next(s for s, *_ in file.occurrences if s.node is node)
        for used_in, other, start, where, role in file.occurrences:
            if other == "without" and used_in.home("without") is scope:
                file.edit(start, start + len("without"), "ablation")
        start = file.at(node.lineno, node.col_offset)
        file.edit(start, start, "@renamed_parameters\n" + " " * node.col_offset)
        doc = node.body[0]
        if isinstance(doc, ast.Expr):
            a, b = file.at(doc.lineno, doc.col_offset), file.at(doc.end_lineno, doc.end_col_offset)
            old = file.text[a:b]
            new = re.sub(
                r"`without`|(?<![\w.])without=", lambda one: one[0].replace("without", "ablation"), old
            )
            if new != old:
                file.edit(a, b, new)
        first = next(
            one
            for one in file.tree.body
            if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("vitviz")
        )
        at = file.at(first.lineno, first.col_offset)
        file.edit(at, at, "from vitviz._deprecated import renamed_parameters\n")
    count = 0
    for file in project.files.values():
        if not file.path.startswith(("vitviz/", "tests/", "docs/", "weights/")):
            continue
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call) and any(one.arg == "without" for one in node.keywords):
                func = node.func
                called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if called == "partial" and node.args and isinstance(node.args[0], ast.Attribute):
                    called = node.args[0].attr
                if called in TAKES.values() or called in ("animation", "video"):
                    for one in node.keywords:
                        if one.arg == "without":
                            at = file.at(one.lineno, one.col_offset)
                            file.edit(at, at + len("without"), "ablation")
                            count += 1
    project.save()
    for path in ("README.md", *(str(one.relative_to(root)) for one in (root / "docs").glob("*.md"))):
        text = (root / path).read_text(encoding="utf-8")
        new = re.sub(r"(\.trace\([^)\n]*|video\([^)\n]*|animation\([^)\n]*)\bwithout=", r"\1ablation=", text)
        new = re.sub(r"`without=", "`ablation=", new)
        if new != text:
            (root / path).write_text(new, encoding="utf-8")
    log(f"  parameter without= at {count} calls")
    layering = root / "tests/test_layering.py"
    text = layering.read_text(encoding="utf-8")
    for room in ("engine", "export"):
        text = re.sub(rf'("{room}": \{{)(?!"_dep)', r'\1"_deprecated", ', text, count=1)
    layering.write_text(text, encoding="utf-8")
