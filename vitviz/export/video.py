"""`vitviz.video`: a view of every frame of a video, yielded frame by frame.

Only the image changes between frames. All frames share one scale: the widest so far, or in an exported video
the widest of all. Components share one basis, fitted to all frames before the first one is yielded. The
explained class, unless it is given, is the prediction for the first frame. Nothing is smoothed. The change of
a map is

    flicker = mean over the patches of |map_t - map_(t-1)|,    in the map's own unit,

which does not distinguish a change of the image from a change of the model's response. Only the previous
frame is kept in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from vitviz._deprecated import renamed_parameters
from vitviz.charts.mpl.spec import FigureSpec, Map, share_scales
from vitviz.errors import VitvizError
from vitviz.export.animation import RATE, Animation, assemble_video
from vitviz.export.figure import Figure, print_view, validate_settings, view_by_slug, view_contexts
from vitviz.traces import cancellation
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.unicode import escape_unencodable
from vitviz.views import Needs, ViewContext
from vitviz.views.printing import PrintStyle, is_printable

if TYPE_CHECKING:
    from vitviz.engine import Inspector
    from vitviz.traces.trace import Trace

FASTEST = 60.0  # maximum frames per second of an exported video
SIDE = 640  # maximum side in pixels of the images that an exported video keeps in memory


@dataclass(frozen=True, eq=False)
class VideoFrame:
    """Result of one video frame.

    `figure` and `scale` use the widest range of all frames so far. Fields are None if there is no map, no
    classifier or no previous frame.
    """

    number: int  # position in the file, from 0
    seconds: float  # display time
    picture: UInt8[np.ndarray, "height width 3"]
    trace: Trace
    figure: Figure
    map: Float[np.ndarray, "row col"] | None  # values that the figure draws over the image
    scale: tuple[float, float] | None  # range of the colours, in the unit of the map
    answer: str | None  # predicted class
    probability: float | None
    flicker: float | None  # mean absolute change since the previous frame, in the unit of the map
    value: float | None = None  # largest output of a head of values; `answer` is its name


@renamed_parameters
def video(
    source: str | os.PathLike, inspector: Inspector, view: str = "rollout", *, start: float = 0.0,
    stop: float | None = None, step: int = 1, most_seconds: float = 60.0, most_frames: int = 1_000,
    detail: bool = False, dark: bool = False, language: str = "en", size: int | tuple[int, int] | None = None,
    ablation: Any = None, **settings: Any,
) -> Iterator[VideoFrame]:  # fmt: skip
    """Yield a view of every `step`-th frame of a video file, as `VideoFrame` objects.

    MP4, MOV, WebM, MKV and AVI require 'vitviz[film]'; GIF and animated WebP do not. The whole file is
    decoded once before the first frame is yielded, so that a file that is too long or damaged fails at once.
    For components, every frame needs two forward passes. `vitviz.export.video_of_frames` exports the frames
    as a video. Source: see the module.

    Args:
        source: Path of the video file.
        inspector: The model.
        view: Slug of the view, as for `vitviz.figure`.
        start: First time in seconds.
        stop: End time in seconds, exclusive; None for the end of the file.
        step: Yield every `step`-th frame.
        most_seconds: Maximum length in seconds, counted from `start`.
        most_frames: Maximum number of frames.
        detail: As for `vitviz.figure`, like `dark`, `language` and `settings`.
        size: Input size, as for `Inspector.trace`.
        ablation: Ablation, as for `Inspector.trace`.

    Yields:
        Number, time, image, trace, figure, map, prediction and flicker of every frame.

    Raises:
        VitvizError: For an unknown view or setting and invalid times, on the first iteration.
        ImageError: If the file is not a video, damaged or too large.
        TooMuch: If the video exceeds `most_seconds` or `most_frames`.

    >>> import vitviz
    >>> next(vitviz.video("nowhere.mp4", vitviz.load("vitviz-tiny")))
    Traceback (most recent call last):
    vitviz.errors.ImageError: There is no file nowhere.mp4; expected the path of a video.
    """
    from vitviz.engine.images.opening import open_for_drawing
    from vitviz.engine.images.video import frames_of

    shown_view = view_by_slug(view)
    if shown_view.needs is not Needs.RUN or not is_printable(shown_view):
        raise VitvizError(
            shown_view.export.unprinted
            or f"{shown_view.title} does not show an image, so a video changes nothing in it."
        )
    if not (start >= 0 and (stop is None or stop > start) and step >= 1 and step == int(step)):
        raise VitvizError(
            f"start={start}, stop={stop}, step={step} are not valid: expected seconds from 0, an end after"
            " the start, and a whole number of frames from 1."
        )
    settings = {**shown_view.export.video.settings, **settings}
    # reports invalid settings before decoding
    asked = validate_settings(shown_view, ViewContext(inspector), settings)
    frames = partial(frames_of, source, start, stop, int(step), most_seconds, most_frames)
    trace_of = partial(inspector.trace, size=size, ablation=ablation)
    for _ in frames(glance=True):
        cancellation.check()
    kept: dict[str, Any] = {}

    def fit_once(name: str, fit: Callable[[Iterator[ViewContext]], Any]) -> Any:
        if name not in kept:
            with closing(frames()) as each:
                kept[name] = fit(ViewContext(inspector, trace_of(picture)) for *_, picture in each)
        return kept[name]

    before, name = None, escape_unencodable(Path(source).stem)
    with closing(frames()) as each:
        for number, seconds, picture in each:
            trace = trace_of(picture)
            best = trace.top(1)
            if before is None and best and asked.get("target") == "top":
                settings["target"] = int(trace.logits.argmax())
            _, subject = view_contexts(view, inspector, trace)
            subject.fitted = fit_once
            wanted = PrintStyle(detail, open_for_drawing(picture), name, dark, language)
            figure = print_view(shown_view, subject, validate_settings(shown_view, subject, settings), wanted)
            if before is not None:  # its figure has the widest scale of all earlier frames
                figure = replace(figure, spec=share_scales([before.figure.spec, figure.spec])[-1])
            over, values = first_map(figure)
            changed = before and over and flicker(before.map, values)
            scale = over and over.scale and (over.scale.low, over.scale.high)
            answer, score = best[0] if best else (None, None)
            details = {"probability": None, trace.quantity: score}
            known = number, seconds, picture, trace, figure, values, scale, answer
            before = VideoFrame(*known, flicker=changed, **details)
            yield before


def first_map(figure: Figure) -> tuple[Map, Float[np.ndarray, "row col"]] | tuple[None, None]:
    """Return the first map of a figure and its values; (None, None) if there is no map."""
    panels = (panel for row in figure.spec.rows for panel in row)
    over = next((panel for panel in panels if isinstance(panel, Map) and panel.values is not None), None)
    return (over, np.asarray(over.values, float)) if over else (None, None)


def flicker(before: Float[np.ndarray, "row col"], after: Float[np.ndarray, "row col"]) -> float:
    """Return the mean absolute change of a map between frames, in its own unit. Source: see the module."""
    return float(np.nanmean(np.abs(after - before)))


def video_of_frames(frames: Iterable[VideoFrame]) -> Animation:
    """Return the frames as a video at their mean frame rate, with one scale: `.save("x.mp4")` or .gif.

    The video keeps a figure of every frame in memory.

    Args:
        frames: Results of `vitviz.video`.

    Raises:
        VitvizError: If there is no frame.
    """
    return video_at_mean_rate((frame.number, frame.seconds, frame.figure) for frame in frames)


def video_at_mean_rate(frames: Iterable[tuple[int, float, Figure]]) -> Animation:
    """Return a video of (number, seconds, figure) triples, at their mean frame rate."""
    figures, labels, times = [], [], []
    for number, seconds, figure in frames:
        figures.append(replace(figure, spec=_lighter(figure.spec)))
        labels.append(LocalizedText("Frame {number}, {seconds} s", number=number, seconds=f"{seconds:.2f}"))
        times.append(seconds)
    if not figures:
        raise VitvizError(
            "No frames of a video were passed; expected those of vitviz.video, from its beginning."
        )
    lasts = times[-1] - times[0]
    rate = min((len(times) - 1) / lasts, FASTEST) if lasts > 0 else RATE
    return replace(assemble_video(figures, labels, f"{figures[-1].name}_over-video"), rate=rate)


def _lighter(spec: FigureSpec) -> FigureSpec:
    """Return the figure with the images of its maps reduced to at most SIDE pixels per side."""

    def lighter(panel: Any) -> Any:
        if not isinstance(panel, Map) or panel.picture is None or max(panel.picture.shape) <= SIDE:
            return panel
        small = Image.fromarray(panel.picture)
        small.thumbnail((SIDE, SIDE))
        share = small.width / panel.picture.shape[1]
        box = panel.box and tuple(share * one for one in panel.box)
        return replace(panel, picture=np.asarray(small), box=box)

    return replace(spec, rows=tuple(tuple(map(lighter, row)) for row in spec.rows))
