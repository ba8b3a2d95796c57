"""What a view looks at: a checkpoint and, unless weights alone matter, a picture's trace or a survey."""

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
    """A model is loaded only where a view asks for it: what the trace alone answers never brings it back.

    `once(name, make)` makes what several items share a single time, however many ask at once;
    `once_of_weights` the same for what depends on the checkpoint and the input size and on no picture, and
    `once_by_passes` for what takes passes of its own, which on a server wait for their turn; `made(name)`
    says whether such a thing is there already. `another(name)` is another picture by the same checkpoint, and
    `training()` this one at every step of the checkpoint's training.
    `sampled()` surveys the pictures that come with vitviz, `film()` does so at every step of the checkpoint's
    training, and `beside` is the second checkpoint: for views that look at many pictures. `grid` and `seen()`
    are the patch grid and the picture as the model gets it, where there is no trace yet that tells them.
    `original()` is the picture as it was, not retouched and with nothing taken away; None where this is that.
    Of a video's frame `fitted(name, fit)` is what `fit` makes of its frames' subjects, made a single time.
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
        """One of the pictures that come with vitviz, at the same input size."""
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
        """The picture as the model gets it; None where there is none, as of a survey."""
        if self.trace is not None:
            return self.trace.view
        return self._seen() if self._seen else None

    @property
    def awaited(self) -> bool:
        """Whether it is one picture's, whose trace is still to be made."""
        return self.trace is None and self._seen is not None

    @property
    def about(self) -> ModelShape:
        """What the bounds of settings depend on."""
        if self.trace is not None:
            layers = self.trace.layers
            return ModelShape(len(layers), layers[0].heads, self.trace.grid, self.trace.head_type)
        if self.survey is not None:
            survey = self.survey
            return ModelShape(survey.layers, survey.heads, survey.grid, survey.head_type)
        return ModelShape(MOST, MOST, self.grid)  # of weights alone, no view asks for a layer or head
