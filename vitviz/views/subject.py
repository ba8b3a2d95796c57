"""Input of a view: a checkpoint and, unless only weights matter, the trace of an image or a survey."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from vitviz.traces.samples import sample_image
from vitviz.views.controls import MOST, ModelShape

if TYPE_CHECKING:
    from vitviz.engine import Inspector
    from vitviz.traces.grid import Grid
    from vitviz.traces.trace import ModelInput, Trace

Settings = Mapping[str, Any]  # the value of every setting of a view, by name
T = TypeVar("T")
ComputeOnce = Callable[[str, Callable[[], T]], T]


class ViewContext:
    """Checkpoint, trace or survey, and caches for one view.

    The model is loaded only if a view needs it; numbers that need only the trace never reload an evicted
    model.

    Args:
        inspector: The loaded checkpoint, or a function that loads it.
        trace: Trace of the image, if any.
        survey: Survey of a set of images, if any.
        once: `once(name, make)` computes a value shared by several items once, even for parallel requests.
        once_of_weights: As `once`, for values that depend on the checkpoint and the input size only.
        once_by_passes: As `once`, for values that need their own forward passes; a server queues these.
        sampled: Surveys the images that come with vitviz. For views of many images.
        beside: The second checkpoint, if any. For views that compare two.
        film: Surveys the images that come with vitviz at every step of the checkpoint's training.
        grid: The patch grid, if there is no trace yet.
        seen: Returns the model input, if there is no trace yet.
        made: `made(name)` is True if the value of this name is cached.
        another: `another(name)` is another image with the same checkpoint.
        training: Returns this image at every step of the checkpoint's training.
        fitted: For a frame of a video: `fitted(name, fit)` calls `fit` once on the contexts of all frames.
        original: Returns the unedited image with nothing removed; None if this is that image.
    """

    def __init__(
        self,
        inspector: Inspector | Callable[[], Inspector],
        trace: Trace | None = None,
        survey: Any = None,
        once: ComputeOnce = lambda name, make: make(),
        once_of_weights: ComputeOnce = lambda name, make: make(),
        once_by_passes: ComputeOnce | None = None,
        sampled: Callable[[], Any] | None = None,
        beside: ViewContext | None = None,
        film: Callable[[], Mapping[int, Any]] = dict,
        grid: Grid | None = None,
        seen: Callable[[], ModelInput] | None = None,
        made: Callable[[str], bool] = lambda name: False,
        another: Callable[[str], ViewContext] | None = None,
        training: Callable[[], Sequence[ViewContext]] = tuple,
        fitted: ComputeOnce | None = None,
        original: Callable[[], ViewContext] | None = None,
    ):
        self._inspector, self.trace, self.survey = inspector, trace, survey
        self.once, self.once_of_weights = once, once_of_weights
        self.once_by_passes = once_by_passes or once
        self.sampled, self.beside, self.film = sampled, beside, film
        self._grid, self._seen = grid, seen
        self.made, self.another, self.training = made, another or self._sample, training
        self.fitted, self.original = fitted, original

    @property
    def inspector(self) -> Inspector:
        """The loaded checkpoint."""
        if callable(self._inspector):
            self._inspector = self._inspector()
        return self._inspector

    def _sample(self, name: str) -> ViewContext:
        """Return the context of an image that comes with vitviz, at the same input size."""
        size = self.trace.view.picture.shape[:2]
        return ViewContext(self.inspector, self.inspector.trace(sample_image(name), size, self.trace.without))

    @property
    def checkpoint(self) -> str:
        """The checkpoint's name."""
        source = self.trace or self.survey
        return self.inspector.checkpoint.name if source is None else source.checkpoint

    @property
    def grid(self) -> Grid:
        """The patch grid: of the trace, of the survey, or the checkpoint's own."""
        source = self.trace or self.survey
        if source is not None:
            return source.grid
        return self.inspector.grid() if self._grid is None else self._grid

    @property
    def seen(self) -> ModelInput | None:
        """The model input; None if there is none, as for a survey."""
        if self.trace is not None:
            return self.trace.view
        return self._seen() if self._seen else None

    @property
    def awaited(self) -> bool:
        """True if this is one image whose trace is still pending."""
        return self.trace is None and self._seen is not None

    @property
    def about(self) -> ModelShape:
        """The shape of the model, which bounds the settings."""
        if self.trace is not None:
            trace, layers = self.trace, self.trace.layers
            outputs = None if trace.logits is None else trace.logits.numel()
            return ModelShape(len(layers), layers[0].heads, trace.grid, trace.head_type, outputs)
        if self.survey is not None:
            survey = self.survey
            return ModelShape(survey.layers, survey.heads, survey.grid, survey.head_type)
        return ModelShape(MOST, MOST, self.grid)  # views of weights have no setting for layers or heads
