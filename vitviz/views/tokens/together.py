"""What is looked at together: a second photograph, the second checkpoint, all steps of a training.

All that share a basis are fitted as one set, depth by depth, so that a colour means the same in each; the
turn of the colours is found for all of them at once, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vitviz import analyses
from vitviz.errors import WrongSetting
from vitviz.record.sentence import Sentence

if TYPE_CHECKING:
    from torch import Tensor

    from vitviz.engine import Inspector
    from vitviz.views.subject import Settings, Subject

NO_SECOND = "There is no second checkpoint. Choose one under “Compare, and input size”, or another basis."
NO_PHOTO = "There is no second photograph. Choose one under Similarity, or another basis."
NO_STEPS = "{checkpoint} is no step of a training that was kept, so its steps have no basis in common."
APART = (
    "{checkpoint} has {own}, {other} has {others}, so they have no basis in common: it needs the same depth"
    " and width."
)
SHAPE = "{depths} depths of tokens {width} numbers wide"


def members(subject: Subject, settings: Settings) -> list[Subject]:
    """Those that share the basis, this one among them; WrongSetting where there is no other to be had."""
    basis = settings["basis"]
    if basis == "beside":
        if subject.beside is None or subject.beside.trace is None:
            raise WrongSetting(Sentence(NO_SECOND))
        found = [subject, subject.beside]
    elif basis == "photo":
        found = [subject, second(subject, settings)]
    elif basis == "film":
        found = list(subject.training())
        if not found:
            raise WrongSetting(Sentence(NO_STEPS, checkpoint=subject.checkpoint))
    else:
        found = [subject]
    for one in found:
        if _shape(one) != _shape(subject):
            told = {"checkpoint": subject.checkpoint, "own": _said(subject)}
            raise WrongSetting(Sentence(APART, **told, other=one.checkpoint, others=_said(one)))
    return found


def patches(subject: Subject, depth: int, settings: Settings) -> Tensor:
    """Of one depth, raw or through the final norm of its own checkpoint."""
    return analyses.patches_at(subject.trace, depth, norm_of(subject, settings))


def norm_of(subject: Subject, settings: Settings) -> Inspector | None:
    """Through which final norm tokens go; None for raw ones."""
    return subject.inspector if settings["norm"] == "final" else None


def named(subject: Subject, settings: Settings) -> str:
    """What a basis is kept under: all that it depends on besides the run."""
    other = {"photo": settings["other"]}.get(settings["basis"], "")
    if settings["basis"] == "beside" and subject.beside is not None and subject.beside.trace is not None:
        trace = subject.beside.trace
        other = f"{trace.checkpoint} {trace.grid} {trace.without.text()}"
    return f"{settings['norm']} {settings['basis']} {other}"


def second(subject: Subject, settings: Settings) -> Subject:
    """The second photograph; WrongSetting where none has been chosen."""
    if not settings["other"]:
        raise WrongSetting(Sentence(NO_PHOTO))
    return subject.another(settings["other"])


def across(subject: Subject, settings: Settings) -> np.ndarray:
    """Every patch with every patch of the second photograph: patch, other."""
    if not settings["other"]:
        return np.zeros((subject.grid.patches, 0))
    other, centred = second(subject, settings), settings["mean"] == "out"
    norm = norm_of(subject, settings)
    found = analyses.patch_cosines(subject.trace, other.trace, settings["depth"], centred, norm)
    return found.flatten(2).flatten(0, 1).numpy()


def photo(subject: Subject, settings: Settings) -> np.ndarray:
    """The second photograph as the model gets it; empty where there is none."""
    return second(subject, settings).trace.view.picture if settings["other"] else np.zeros((0, 0, 3))


def facing(subject: Subject, settings: Settings) -> np.ndarray:
    """Every patch with the chosen one of the second photograph; not a number where there is none."""
    grid = subject.grid
    if not settings["other"]:
        return np.full((grid.rows, grid.cols), np.nan)
    other, norm = second(subject, settings).trace, norm_of(subject, settings)
    depth, centred = settings["depth"], settings["mean"] == "out"
    found = analyses.token_similarity(subject.trace, depth, settings["partner"], centred, norm, of=other)
    return found.numpy()


def _shape(subject: Subject) -> tuple[int, int]:
    return len(subject.trace.tokens), subject.trace.tokens[0].shape[-1]


def _said(subject: Subject) -> Sentence:
    depths, width = _shape(subject)
    return Sentence(SHAPE, depths=depths, width=width)
