"""What a figure over a set of pictures looks at: those that come with vitviz, or surveys that were made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from vitviz.errors import VitvizError
from vitviz.surveys.result import Survey
from vitviz.views.subject import ComputeOnce, ViewContext

if TYPE_CHECKING:
    from vitviz.engine import Inspector
    from vitviz.traces.trace import Trace


def subject_over(
    inspector: Inspector, of: Trace | Survey | None, second: Inspector | Survey | None, once: ComputeOnce
) -> ViewContext:
    """A checkpoint, and the `second` beside it, over a set. Nothing is looked at before a view asks for it.

    A survey is of the pictures of its own, and the second one's is a survey of the same ones; else it is the
    parts of the sample photographs, at the input size of a trace, where there is one. VitvizError where a
    survey and checkpoints do not fit together.
    """
    if isinstance(of, Survey) or isinstance(second, Survey):
        if not isinstance(of, Survey) or not isinstance(second, Survey | None):
            raise VitvizError(
                "One of two checkpoints comes with a survey: hand in a survey of the same pictures for the"
                " other one, too, or inspectors for both."
            )
        if second is None:
            return ViewContext(fitting(inspector, of), survey=of)
        if comparable(of) != comparable(second):
            raise VitvizError(
                "The two surveys are of different pictures, or measure different things: expected the same"
                " pictures in the same order and batches, and the same measures."
            )
        # a survey tells nothing of its checkpoint but a name
        beside = ViewContext(lambda: None, survey=second)
        return ViewContext(fitting(inspector, of), survey=of, beside=beside)
    size = None if of is None or of.grid == inspector.grid() else of.grid.pixels

    def sampled(by: Inspector, which: str) -> Callable[[], Survey]:
        return lambda: once(f"sampled {which}", lambda: over_samples(by, size))

    beside = second and ViewContext(second, sampled=sampled(second, "second"), grid=second.grid(size))
    more = {"film": lambda: once("film", lambda: over_training(inspector, size)), "once": once}
    return ViewContext(inspector, of, sampled=sampled(inspector, "first"), beside=beside, **more)


def fitting(inspector: Inspector, survey: Survey) -> Inspector:
    """The inspector; VitvizError where the survey is another checkpoint's."""
    if survey.checkpoint != inspector.checkpoint.name:
        raise VitvizError(
            f"The survey is of {survey.checkpoint}, the inspector of {inspector.checkpoint.name}. Hand in the"
            " one that looked at the pictures."
        )
    return inspector


def comparable(survey: Survey) -> tuple:
    """What two surveys have in common that can be compared."""
    return [one.pictures for one in survey.grams], {one.name for one in survey.measures}


def over_samples(
    inspector: Inspector, size: tuple[int, int] | None = None, measures: Iterable | None = None
) -> Survey:
    """The survey of the parts of the sample photographs; all that checkpoints are compared by."""
    from vitviz.surveys import LAYERS, in_batches, parts_of_samples, surveying

    pictures = parts_of_samples()
    batch = in_batches(len(pictures))
    *_, survey = surveying(pictures, inspector, measures or LAYERS, batch=batch, size=size)
    return survey


def over_training(inspector: Inspector, size: tuple[int, int] | None = None) -> dict[int, Survey]:
    """The similarity at every step of a checkpoint's training, first step first; empty without a film."""
    from vitviz import engine
    from vitviz.engine.hub.snapshots import folder_of, frames

    checkpoint = inspector.checkpoint
    like = {"device": str(inspector.device), "dtype": inspector.dtype, "folder": folder_of(checkpoint)}
    steps = [frame for frame in frames(checkpoint) if frame.step is not None]
    return {one.step: over_samples(engine.load(one.name, **like), size, ["similarity"]) for one in steps}
