"""`vitviz.animation`: a view's figure as a film, over the steps of a training or growing over the layers.

Every frame is a figure for print. Scales and axes have one range over all frames, and everything stands in
one place, so that what moves is the model.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from vitviz import stopping
from vitviz.errors import VitvizError
from vitviz.figures.paper.steady import steady
from vitviz.languages import translated
from vitviz.prints import moving
from vitviz.prints.caption import name_of
from vitviz.prints.figure import Figure, looked_at, paper, printed, read, upload_of
from vitviz.sentence import Sentence
from vitviz.views.printing import NOTHING_GROWS, Asked, Film, joined

if TYPE_CHECKING:
    from vitviz.engine import Frame, Inspector
    from vitviz.views import Subject, View

OVER = ("training", "layers")
PIXELS = (320, 1920)  # across
NO_FILM = "{checkpoint} has no film of its training: no snapshots lie beside its weights."

Told = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Animation:
    """A film. `frames` are its figures, all with the same scales and axes; `labels` says what each is."""

    frames: tuple[Figure, ...]
    labels: tuple[str, ...]
    name: str  # view, checkpoint and settings: a file's name without its ending
    caption: str  # of the last frame, and what the film goes over

    def mp4(self, width: int = 960, seconds: float = 0.8) -> bytes:
        """H.264, `width` pixels across; each frame stands for `seconds`, the last three times as long."""
        return self.file("mp4", width, seconds)

    def gif(self, width: int = 960, seconds: float = 0.8) -> bytes:
        """The same as a GIF of 256 colours, which begins anew at its end."""
        return self.file("gif", width, seconds)

    def file(
        self, form: str, width: int = 960, seconds: float = 0.8, told: Told = lambda done, of: None
    ) -> bytes:
        """Any of them by its name, and "txt" for the caption; VitvizError for what does not exist.

        `width` is even, from 320 to 1920 pixels; `seconds` 0.1 to 5. `told` hears how many frames are done.
        """
        if form == "txt":
            return self.caption.encode()

        def drawn(done: int, of: int) -> None:
            stopping.check()
            told(done, of)

        return moving.written(self._reel(width), form, seconds, drawn)

    def picture(self, number: int, width: int = 960) -> UInt8[np.ndarray, "tall wide 3"]:
        """A frame, counted from 0, as it stands in the film."""
        return self._reel(width)[number]

    def save(self, path: str | Path, width: int = 960, seconds: float = 0.8) -> Path:
        """Writes a .mp4 or .gif, and the caption beside it as .txt; returns the film's path.

        VitvizError for any other ending, width or time, and where there is no encoder.
        """
        path = Path(path)
        path.write_bytes(self.file(path.suffix.lower().removeprefix("."), width, seconds))
        path.with_suffix(".txt").write_text(self.caption, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        shown = base64.b64encode(self.gif(width=640)).decode()
        return f'<img alt="" src="data:image/gif;base64,{shown}">'

    def _reel(self, width: int) -> Any:
        checked_width(width)
        first = self.frames[0]

        def say(text):
            return translated(text, first.language)

        plates = [frame.plate for frame in self.frames]
        return paper("reel").Reel(plates, self.labels, width, first.dark, say, first.language)


def animation(
    view: str,
    inspector: Inspector,
    picture: Any = None,
    *,
    over: str = "training",
    detail: bool = False,
    dark: bool = False,
    language: str = "en",
    size: int | tuple[int, int] | None = None,
    without: Any = None,
    **settings: Any,
) -> Animation:
    """The film of one view: `over` the "training" of its checkpoint, or growing over its "layers".

    `view`, `settings`, `detail`, `dark` and `language` are those of `vitviz.figure`; `picture` is a path, PIL
    image or array, which filters, positions and compared do not need; `size` and `without` are those of
    `Inspector.trace`. Over the layers there are "rollout", "evidence", "tokens" and "explorer". Raises
    VitvizError where a view or a checkpoint has no such film, with the reason.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> film = animation("rollout", inspector, vitviz.sample_image("chelsea"), over="layers")
    >>> str(film.labels[2]), film.gif(width=320)[:3]
    ('Layers 1 to 3', b'GIF')
    """

    def seen(by: Inspector) -> tuple[View, Subject, dict, Asked]:
        trace = None if picture is None else by.trace(picture, size, without)
        found, subject = looked_at(view, by, trace)
        return found, subject, read(found, subject, settings), Asked(detail, upload_of(picture, trace))

    if wanted(over) == "layers":
        looked = seen(inspector)
        found, subject, parsed, asked = looked
        return over_layers(
            found, subject, parsed, detail, lambda each: printed(found, subject, each, asked, dark, language)
        )
    from vitviz import engine
    from vitviz.engine.models.film import folder_of, frames

    checkpoint = inspector.checkpoint
    like = {"device": str(inspector.device), "dtype": inspector.dtype, "folder": folder_of(checkpoint)}
    return over_training(
        checkpoint.name,
        frames(checkpoint),
        lambda name: printed(*seen(engine.load(name, **like)), dark, language),
    )


def checked_width(width: int) -> None:
    """VitvizError for a width that films do not have."""
    low, high = PIXELS
    if isinstance(width, bool) or not isinstance(width, int) or not low <= width <= high or width % 2:
        wanted = f"an even number of pixels from {low} to {high}"
        raise VitvizError(f"Given a width of {width!r}; expected {wanted}.")


def wanted(over: str) -> str:
    """What a film goes over; VitvizError for anything else."""
    if over not in OVER:
        raise VitvizError(f"There is no film over {over!r}; expected one of {', '.join(OVER)}.")
    return over


def over_training(checkpoint: str, moments: Sequence[Frame], figure_of: Callable[[str], Figure]) -> Animation:
    """The film over a training's moments, `figure_of` the name of each; VitvizError where there are none."""
    if not moments:
        raise VitvizError(Sentence(NO_FILM, checkpoint=checkpoint))
    figures = [figure_of(moment.name) for moment in moments]
    return _made(figures, [_label(moment) for moment in moments], f"{figures[-1].name}_over-training")


def over_layers(
    view: View,
    subject: Subject,
    settings: Mapping[str, Any],
    detail: bool,
    figure_of: Callable[[Mapping[str, Any]], Figure],
) -> Animation:
    """The film over the layers, `figure_of` the settings of each frame; VitvizError where nothing grows."""
    told = each_layers(view, subject, settings)
    figures = [figure_of(each) for _, each in told]
    name = f"{name_of(view, subject, settings, detail)}_over-layers"
    return _made(figures, [label for label, _ in told], name)


def each_layers(view: View, subject: Subject, settings: Mapping[str, Any]) -> Film:
    """What each frame over the layers is called, and its settings; VitvizError where nothing grows."""
    found = view.over_layers(settings, subject.about)
    if not found:
        raise VitvizError(Sentence(NOTHING_GROWS, view=view.title))
    return found


def _made(figures: Sequence[Figure], labels: Sequence[str], name: str) -> Animation:
    stopping.check()
    plates = steady([figure.plate for figure in figures])
    frames = tuple(replace(figure, plate=plate) for figure, plate in zip(figures, plates, strict=True))
    told = Sentence(
        "A film of {count} frames, from {first} to {last}; scales and axes are the same in all of them. What"
        " is said above is of the last one.",
        count=len(frames),
        first=labels[0],
        last=labels[-1],
    )
    return Animation(
        frames, tuple(labels), name, f"{figures[-1].caption}{translated(told, figures[-1].language)}\n"
    )


def _label(moment: Frame) -> str:
    """A moment of a training as its frame calls it."""
    step = Sentence("Finished model")
    if moment.step is not None:
        step = Sentence("Training step {step}", step=f"{moment.step:,}")
    if moment.top1 is None:
        return step
    return joined(step, Sentence("accuracy {share} %", share=f"{100 * moment.top1:.1f}"))


__all__ = [
    "OVER", "Animation", "animation", "checked_width", "each_layers", "over_layers", "over_training",
    "wanted",
]  # fmt: skip
