"""Rename attributes, fields and keywords by rules: which receivers, which calls, which classes' bodies."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

from pycode import Project, git_files

# old, new, class names whose body declares it, receivers (source of the expression), functions that take it
# as a keyword, files in which nothing is touched
RULES = {
    "types": [
        (
            "soon",
            "needs_no_pass",
            r"View$|.*View",
            r"view|self",
            r"",
            r"vitviz/server/page/page_renderer|tests/server/test_soon\.py:0",
        ),
        ("exact", "float32_only", r"View$|.*View", r"view|self", r"", r"vitviz/engine/|tests/engine/"),
        ("also", "extra_strings", r"View$|.*View", r"self|view", r"", r"vitviz/charts/|vitviz/frontend"),
        (
            "still",
            "video_defaults",
            r"View$|.*View",
            r"self|view|found|.*\.view\(\w+\)",
            r"",
            r"vitviz/analyses/",
        ),
        ("taken", "in_export", r"Item", r"item", r"Item|as_json|drawn|replace", r""),
        (
            "says",
            "description",
            r"Item",
            r"item|self\.map|view\.map|.*\.map",
            r"Item|as_json|drawn",
            r"vitviz/surveys/|tests/surveys/",
        ),
        (
            "opened",
            "only_when",
            r"Item",
            r"item|one",
            r"Item|as_json|drawn",
            r"vitviz/analyses/|tests/engine/|tests/server/|vitviz/server/",
        ),
        (
            "along",
            "x_label",
            r"Chart|Matrix|Tiles",
            r"(?!told$|kind$|self$).*",
            r"Chart|Matrix|Tiles|replace",
            r"vitviz/analyses/",
        ),
        ("up", "y_label", r"Chart", r"chart|panel|mass|one|figure|main", r"Chart|replace", r"tests/browser/"),
        (
            "down",
            "y_label",
            r"Matrix|Tiles",
            r"panel|wall|matrix|first|last|sinks|main|chart|one|figure",
            r"Matrix|Tiles|replace",
            r"tests/browser/|vitviz/engine/|vitviz/analyses/",
        ),
        ("rungs", "y_ticks", r"Chart", r".*", r"Chart|replace", r""),
    ],
    "names": [
        (
            "found",
            "item_values",
            r"View|\w+View",
            r"self|view|super\(\)",
            r"",
            r"tests/|vitviz/server/|vitviz/engine/|vitviz/notebook/",
        ),
        (
            "described",
            "to_json",
            r"Control|Choice|Slider|LayerRange|QuerySetting|IntSetting|IntListSetting|Text",
            r"control|super\(\)|one",
            r"",
            r"vitviz/(?!views/)|tests/",
        ),
        ("seen", "prepare", r"ForwardRunner", r"(self|inspector)\.forward", r"", r""),
        ("given", "with_classes", r"ForwardRunner|PlacedModel", r"self\.forward|self\.placed", r"", r""),
        ("over", "merged_with", r"Overrides", r"given", r"", r""),
        ("over", "with_runner", r"Inspector", r"self|inspector", r"", r"vitviz/(?!engine/)"),
        ("over", "with_parts", r"Survey", r"begun", r"", r""),
        ("behind", "constants_after", r"Gradients", r"found", r"", r""),
        ("placed", "hold_place", r"WorkQueue", r"(self\.|studio\.)?_?work|self", r"", r"vitviz/engine/"),
        ("named", "by_name", r"Readout", r"Readout", r"", r""),
        ("named", "label_of", r"Survey", r"survey", r"", r""),
        ("named", "select_rows", r"Edit", r"self\._edit", r"", r""),
        ("named", "name_with", r"ClassVectors", r".*\bvectors", r"", r""),
        ("measured", "measure", r"Measurement", r"self|measuring", r"", r""),
        ("of", "from_patches", r"SaliencyMap", r"SaliencyMap|cls", r"", r""),
        ("of", "from_values", r"Spread|Moments", r"Spread|Moments|cls", r"", r""),
        ("of", "from_weights", r"Linear", r"Linear|cls", r"", r""),
        ("of", "wrap", r"NamedTensor", r"NamedTensor|cls", r"", r""),
        ("of", "from_contents", r"Classes", r"Classes|cls", r"", r""),
        ("of", "load", r"Boxes", r"Boxes|cls", r"", r""),
        ("of", "join", r"SurveyPart", r"SurveyPart|cls", r"", r""),
        ("of", "from_text", r"ViewTexts", r"ViewTexts|cls", r"", r""),
        ("of", "open_folder", r"ImageFolder", r"ImageFolder|cls", r"", r""),
        (
            "heard",
            "on_event",
            r"\w+",
            r"self\.own|self\._owner|_running\.passes\[-1\]\[1\]|capture\.AttentionInterceptor",
            r"",
            r"vitviz/server/|tests/browser/|tests/analyses/",
        ),
    ],
}
JS = {
    "types": [
        (r"\b(figure|panel)\.along\b", r"\1.x_label"),
        (r"\b(figure|panel)\.up\b", r"\1.y_label"),
        (r"\b(figure)\.down\b", r"\1.y_label"),
        (r"\b(figure)\.rungs\b", r"\1.y_ticks"),
        (r"^(\s+)along: t\(", r"\1x_label: t("),
        (r"^(\s+)down: t\(", r"\1y_label: t("),
        (r"\{ up: (.*?), along: ", r"{ y_label: \1, x_label: "),
    ],
}
METHODS = {"names"}  # stages whose rules rename methods
STRINGS = {  # Python files with these names as keys of JSON or of keywords in a dict
    "types": {
        "vitviz/views/evidence/graph.py": [(r'like\["rungs"\]', 'like["y_ticks"]')],
        "vitviz/views/trial/image_set.py": [(r'like\["rungs"\]', 'like["y_ticks"]')],
        "tests/charts/test_chart.py": [(r'again\["up"\]', 'again["y_label"]')],
        "tests/export/test_figure.py": [(r'hasattr\(one, "up"\)', 'hasattr(one, "y_label")')],
        "tests/export/test_animation.py": [(r'hasattr\(panel, "up"\)', 'hasattr(panel, "y_label")')],
        "vitviz/views/base.py": [
            (r"`says` tells what", "`description` says what"),
            (r"is not\n    `taken`", "is not\n    `in_export`"),
            (r"is not `taken`", "is not `in_export`"),
            (
                r"What is\n    `opened` by a setting is asked for only where that has this value\.",
                "An item with\n    `only_when` is requested only where the settings have these values.",
            ),
        ],
        "vitviz/charts/chart.py": [(r"`rungs`", "`y_ticks`")],
        "CONTRIBUTING.md": [(r"with `soon`", "with `needs_no_pass`")],
    },
    "names": {
        "tests/engine/forward/test_truth.py": [
            (r'"heard"', '"on_event"'),
            (r"def heard\(self", "def on_event(self"),
            (r"(?<=, )heard\)", "on_event)"),
        ],
        "vitviz/engine/forward/capture.py": [(r"has `heard`", "has `on_event`")],
    },
}


def derives(node: ast.ClassDef, pattern: str) -> bool:
    names = [node.name, *(one.id for one in node.bases if isinstance(one, ast.Name))]
    return any(re.fullmatch(pattern, one) for one in names)


def run(root: Path, stage: str, log) -> None:
    project = Project(root)
    count = 0
    for file in project.files.values():
        if not file.path.startswith(("vitviz/", "tests/", "docs/")):
            continue
        classes = {}
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                for one in ast.walk(node):
                    classes[one] = node
        for old, new, owner, receivers, calls, skipped in RULES.get(stage, ()):
            if not re.search(rf"\b{old}\b", file.text) or skipped and re.match(skipped, file.path):
                continue
            for node in ast.walk(file.tree):
                span = None
                if isinstance(node, ast.Attribute) and node.attr == old:
                    source = ast.unparse(node.value)
                    fits = re.fullmatch(receivers, source)
                    if fits and source in ("cls", "self"):
                        fits = node in classes and derives(classes[node], owner)
                    if fits:
                        end = file.at(node.end_lineno, node.end_col_offset)
                        span = (end - len(old), end)
                elif isinstance(node, ast.Call) and calls:
                    name = (
                        node.func.attr
                        if isinstance(node.func, ast.Attribute)
                        else getattr(node.func, "id", "")
                    )
                    if re.fullmatch(calls, name):
                        for one in node.keywords:
                            if one.arg == old:
                                start = file.at(one.lineno, one.col_offset)
                                file.edit(start, start + len(old), new)
                                count += 1
                elif isinstance(node, ast.ClassDef) and derives(node, owner):
                    for one in node.body:
                        if isinstance(one, ast.FunctionDef) and one.name == old and stage in METHODS:
                            start = (
                                re.compile(r"def\s+")
                                .search(file.text, file.at(one.lineno, one.col_offset))
                                .end()
                            )
                            file.edit(start, start + len(old), new)
                            count += 1
                        target = (
                            one.target
                            if isinstance(one, ast.AnnAssign)
                            else one.targets[0]
                            if isinstance(one, ast.Assign) and len(one.targets) == 1
                            else None
                        )
                        if isinstance(target, ast.Name) and target.id == old:
                            start = file.at(target.lineno, target.col_offset)
                            file.edit(start, start + len(old), new)
                            count += 1
                elif isinstance(node, (ast.FunctionDef,)) and re.fullmatch(calls or "-", node.name):
                    pass
                if span:
                    file.edit(*span, new)
                    count += 1
    examples(project, stage)
    project.save()
    for path in git_files(root, "vitviz/*.js"):
        text = (root / path).read_text(encoding="utf-8")
        new = text
        for old, now in JS.get(stage, ()):
            new = re.sub(old, now, new, flags=re.M)
        if new != text:
            (root / path).write_text(new, encoding="utf-8")
            count += 1
    for path, pairs in STRINGS.get(stage, {}).items():
        place = root / path
        if not place.is_file():
            log(f"  no such file: {path}")
            continue
        text = place.read_text(encoding="utf-8")
        for old, now in pairs:
            text = re.sub(old, now, text)
        place.write_text(text, encoding="utf-8")
    log(f"  members: {count}")


def examples(project, stage) -> None:
    """`Class.method` in docstrings and comments, for the rules that name classes plainly."""
    if stage not in METHODS:
        return
    pairs = [
        (re.compile(rf"\b({owner})\.{old}\b"), new)
        for old, new, owner, *_ in RULES[stage]
        if re.fullmatch(r"[A-Za-z|]+", owner)
    ]
    for file in project.files.values():
        if not file.path.startswith("vitviz/"):
            continue
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
            if (
                token.type == tokenize.COMMENT
                or token.type == tokenize.STRING
                and token.string.lstrip("rR").startswith('"""')
            ):
                text = token.string
                for pattern, new in pairs:
                    text = pattern.sub(lambda one: f"{one[1]}.{new}", text)
                if text != token.string:
                    start = file.starts[token.start[0] - 1] + token.start[1]
                    file.edit(start, start + len(token.string), text)
