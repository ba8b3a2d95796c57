"""What stands beside a figure: a caption for a paper, and a file's name that says what it is of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import vitviz
from vitviz.languages import translated
from vitviz.sentence import Sentence
from vitviz.views.base import Needs
from vitviz.views.controls import Choice, Whole, Wholes
from vitviz.views.printing import over_which

if TYPE_CHECKING:
    from vitviz.views import Control, Subject, View

PAPER = "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, arXiv 2010.11929"
LONGEST = 140  # characters of a file's name


def caption_of(
    view: View,
    subject: Subject,
    settings: Mapping[str, Any],
    second: Subject | None = None,
    language: str = "en",
) -> str:
    """What the figure shows, its settings, definition (formulas as LaTeX), limits, source and citation."""

    def say(text):
        return translated(text, language)

    checkpoint, trace, grid = subject.inspector.checkpoint, subject.trace, subject.grid
    beside = {} if second is None else {"name": second.checkpoint, "known": _known(second)}
    told = {"height": grid.pixels[0], "width": grid.pixels[1], "rows": grid.rows, "cols": grid.cols}
    size = Sentence("Input {height} × {width} px, {rows} × {cols} patches", **told)
    assumed = ", ".join(one.taken or one.name for one in checkpoint.assumed)
    without = "" if trace is None else trace.without.text()
    parts = [
        f"{say(view.title)}, {subject.checkpoint}. {say(view.words.what)}",
        say(Sentence("Checkpoint: {name} ({known}).", name=subject.checkpoint, known=_known(subject))),
        say(Sentence("Beside it: {name} ({known}).", **beside)) if beside else "",
        say(over_which(subject)) if view.needs is Needs.SET or subject.survey is not None else "",
        say(Sentence("{size}; computed in {dtype}.", size=size, dtype=_dtype(view, subject))),
        say(Sentence("Assumed, as its file does not say it: {what}.", what=assumed)) if assumed else "",
        say(Sentence("Taken away: {what}.", what=without)) if without else "",
        say(
            Sentence("Settings: {settings}.", settings=_settings(view, subject, settings, say) or say("none"))
        ),
        say(Sentence("Definition: {definition}", definition=view.words.definition)),
        say(Sentence("What it does not show: {caveat}", caveat=view.words.caveat)),
        say(Sentence("Source: {source} ({paper}).", source=view.words.source, paper=PAPER)),
        say(
            Sentence(
                "Drawn by vitviz {version}; to cite it, see its CITATION.cff.", version=vitviz.__version__
            )
        ),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _known(subject: Subject) -> str:
    """What is known of a checkpoint; a survey alone tells nothing but its name."""
    if subject.inspector is None:
        return "–"
    one = subject.inspector.checkpoint
    told = (one.architecture, one.trained_on, one.licence, one.paper)
    return ", ".join(part for part in told if part) or "–"


def _dtype(view: View, subject: Subject) -> str:
    """In which the model computed; what is of the weights alone is read in float32."""
    source = subject.trace or subject.survey
    if source is None:
        return str(subject.inspector.dtype) if view.needs is Needs.SET else "float32"
    return source.dtype


def name_of(
    view: View, subject: Subject, settings: Mapping[str, Any], detail: bool, second: Subject | None = None
) -> str:
    """View, checkpoint, the `second` where it is shown, and every setting that is not as it is without being
    set; safe on every disk.
    """
    filed = view.filed(settings, subject.grid)
    changed = [
        f"{control.name}-{spelled(control, filed[control.name])}"
        for control in _shown(view)
        if settings[control.name] != _default(control, subject)
    ]
    shown = [subject.checkpoint, *([] if second is None else [second.checkpoint])]
    parts = [f"vitviz-{view.slug}", *shown, *(["detail"] if detail else []), *changed]
    plain = "_".join(re.sub(r"[^A-Za-z0-9.=-]+", "-", part).strip(".-") or "-" for part in parts)
    return plain[:LONGEST].rstrip("._-")


def _shown(view: View) -> list[Control]:
    """The settings that a figure shows something of."""
    return [one for one in view.controls if not (isinstance(one, Whole) and one.passing)]


def _default(control: Control, subject: Subject) -> Any:
    return control.parse(str(control.start(subject.about)), subject.about)


def _settings(view: View, subject: Subject, settings: Mapping[str, Any], say) -> str:
    """Every setting as the page words it, where it has a field; the others by their names."""
    found, filed = [], view.filed(settings, subject.grid)
    for control in _shown(view):
        value = filed[control.name]
        if value in ("", (), [], None):
            continue
        if isinstance(control, Choice) and control.label:
            value = say(dict(control.options)[value])
        found.append(f"{say(control.label) if control.label else control.name}: {spelled(control, value)}")
    return "; ".join(found)


def spelled(control: Control | None, value: Any) -> str:
    """A setting as a link spells it: several numbers with dots, a pair of layers or classes with a dash."""
    if isinstance(value, list | tuple):
        return ("." if isinstance(control, Wholes) else "-").join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


__all__ = ["caption_of", "name_of", "spelled"]
