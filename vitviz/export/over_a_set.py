"""Context of a figure over a set of images: the sample images, or existing surveys."""

from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from vitviz import engine, surveys
from vitviz.engine import Inspector
from vitviz.engine.hub import snapshots
from vitviz.errors import VitvizError
from vitviz.surveys.result import Survey
from vitviz.traces.trace import Trace
from vitviz.views.subject import ComputeOnce, ViewContext


class TrainingHistory(UserDict):
    """Lazy mapping from training step to the survey of that step's snapshot.

    `survey(name, asked)` surveys a snapshot: the earliest, with which a model is compared, for all measures
    ("all"), the others for "similarity".
    """

    def __init__(self, steps: Mapping[int, str], survey: Callable[[str, str], Survey]):
        super().__init__(steps)
        self._survey = survey

    def __getitem__(self, step: int) -> Survey:
        return self._survey(self.data[step], "all" if step == min(self.data) else "similarity")


def set_context(
    inspector: Inspector, of: Trace | Survey | None, second: Inspector | Survey | None, once: ComputeOnce
) -> ViewContext:
    """Return the context of a checkpoint, and of a `second` one, over a set of images.

    The set is that of the surveys. Without surveys, it consists of the crops of the sample images, at the
    input size of the trace if there is one. Nothing is computed before a view requests it.

    Raises:
        VitvizError: If surveys and checkpoints do not match.
    """
    if isinstance(of, Survey) or isinstance(second, Survey):
        if not isinstance(of, Survey) or not isinstance(second, Survey | None):
            raise VitvizError(
                "Only one of the two checkpoints has a survey: pass a survey of the same images for the"
                " other one, too, or inspectors for both."
            )
        if second is None:
            return ViewContext(require_same_checkpoint(inspector, of), survey=of)
        if comparison_key(of) != comparison_key(second):
            raise VitvizError(
                "The two surveys are of different images, or measure different things: expected the same"
                " images in the same order and batches, and the same measures."
            )
        # a survey knows only the name of its checkpoint
        beside = ViewContext(lambda: None, survey=second)
        return ViewContext(require_same_checkpoint(inspector, of), survey=of, beside=beside)
    size = None if of is None or of.grid == inspector.grid() else of.grid.pixels

    def sampled(by: Inspector, which: str) -> Callable[[], Survey]:
        return lambda: once(f"sampled {which}", lambda: survey_samples(by, size))

    beside = second and ViewContext(second, sampled=sampled(second, "second"), grid=second.grid(size))
    more = {"film": lambda: once("film", lambda: survey_training(inspector, size)), "once": once}
    return ViewContext(inspector, of, sampled=sampled(inspector, "first"), beside=beside, **more)


def require_same_checkpoint(inspector: Inspector, survey: Survey) -> Inspector:
    """Return the inspector; raise VitvizError if the survey belongs to another checkpoint."""
    if survey.checkpoint != inspector.checkpoint.name:
        raise VitvizError(
            f"The survey is of {survey.checkpoint}, the inspector of {inspector.checkpoint.name}. Pass the"
            " inspector that traced the images."
        )
    return inspector


def comparison_key(survey: Survey) -> tuple:
    """Return image identifiers and measure names, which must be equal to compare two surveys."""
    return [gram.pictures for gram in survey.grams], {measure.name for measure in survey.measures}


def survey_samples(
    inspector: Inspector, size: tuple[int, int] | None = None, measures: Iterable | None = None
) -> Survey:
    """Return the survey of the crops of the sample images, by default with all measures in `LAYERS`."""
    pictures = surveys.sample_crops()
    batch = surveys.batch_size_for(len(pictures))
    *_, survey = surveys.surveying(pictures, inspector, measures or surveys.LAYERS, batch=batch, size=size)
    return survey


def survey_training(inspector: Inspector, size: tuple[int, int] | None = None) -> TrainingHistory:
    """Return the sample crops' surveys by training step, in order; empty if there are no snapshots."""
    checkpoint = inspector.checkpoint
    folder, history = snapshots.folder_of(checkpoint), snapshots.all_snapshots(checkpoint)
    like = {"device": str(inspector.device), "dtype": inspector.dtype, "folder": folder}

    @cache
    def survey(name: str, measure: str) -> Survey:
        return survey_samples(engine.load(name, **like), size, None if measure == "all" else [measure])

    steps = {frame.step: frame.name for frame in history if frame.step is not None}
    return TrainingHistory(steps, survey)
