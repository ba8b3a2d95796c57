"""`vitviz.animation`: a view's figure as a video over training snapshots or over layers.

Every frame is a figure for print. Scales and axes have one range over all frames, and the layout is fixed, so
that only the model's numbers change. imageio-ffmpeg, which includes its own encoder, encodes MP4 (H.264);
Pillow encodes GIF. A GIF has 256 colours, shared by all frames. An MP4 has full colour, but at half the
resolution of its brightness.
"""

from __future__ import annotations

import base64
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from vitviz._deprecated import renamed_parameters
from vitviz.charts.mpl.spec import share_scales
from vitviz.errors import VitvizError, quoted
from vitviz.export.figure import (
    Figure,
    figure_file_name,
    import_mpl_module,
    print_view,
    save_with_caption,
    upright_upload,
    validate_settings,
    view_by_slug,
    view_contexts,
)
from vitviz.traces import cancellation
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.languages import translate
from vitviz.views.printing import PrintStyle, join_texts, layer_frames

if TYPE_CHECKING:
    from vitviz.charts.mpl.page import FrameRenderer
    from vitviz.engine import Inspector, Snapshot
    from vitviz.views import View, ViewContext


MISSING = (
    "Videos in MP4 are encoded by imageio-ffmpeg, which is not installed: pip install 'vitviz[film]'. A GIF"
    " needs nothing more."
)
FAILED = "The MP4 encoder failed; the server’s log has its error message. A GIF needs no encoder."
FORMATS = ("mp4", "gif")
RATE = 10  # frames per second of an MP4; longer frames are repeated, because players expect a constant rate
HELD = 3  # duration of the last frame, relative to the others
SEEN = 5  # frames sampled for the palette of a GIF, each reduced to about WIDE pixels across
WIDE = 400
FAITHFUL = [  # nearly lossless, BT.709 colours, playable while it downloads
    *("-crf", "14", "-preset", "medium", "-tune", "stillimage", "-threads", "2"),
    *("-vf", "scale=out_color_matrix=bt709:out_range=tv", "-color_range", "tv", "-colorspace", "bt709"),
    *("-color_primaries", "bt709", "-color_trc", "bt709", "-movflags", "+faststart"),
]

OnFrame = Callable[[int, int], None]


def check_video_format(form: str, seconds: float) -> None:
    """Raise VitvizError for an unknown format or an invalid duration."""
    if form not in FORMATS:
        raise VitvizError(f"There is no video format {quoted(form)}; expected one of {', '.join(FORMATS)}.")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.1 <= seconds <= 5:
        raise VitvizError(f"{quoted(seconds)} seconds for each frame is not valid; expected 0.1 to 5.")


def _rendered_frames(reel: FrameRenderer, on_frame: OnFrame) -> Iterator[UInt8[np.ndarray, "tall wide 3"]]:
    """Yield every rendered frame in order; after each, call `on_frame(done, total)`."""
    for number in range(len(reel)):
        yield reel[number]
        cancellation.check()
        on_frame(number + 1, len(reel))


def _mp4(reel: FrameRenderer, times: list[int], rate: float, on_frame: OnFrame) -> bytes:
    """Return an H.264 MP4 at `rate` frames per second; frame n is repeated times[n] times.

    Raise VitvizError if imageio-ffmpeg is not installed or its encoder fails.
    """
    try:
        from imageio_ffmpeg import get_ffmpeg_exe, write_frames

        get_ffmpeg_exe()
    except (ImportError, RuntimeError):  # not installed, or no encoder for this machine
        raise VitvizError(MISSING) from None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        form = {"fps": rate, "quality": None, "codec": "libx264", "macro_block_size": 2}
        said = {"ffmpeg_log_level": "error", "output_params": FAITHFUL}
        encoder = write_frames(str(path), reel.size, **form, **said)
        try:
            encoder.send(None)
            for frame, count in zip(_rendered_frames(reel, on_frame), times, strict=True):
                for _ in range(count):
                    encoder.send(np.ascontiguousarray(frame))
        except OSError as error:  # the encoder did not start, or ended early
            raise VitvizError(FAILED) from error
        finally:
            encoder.close()  # waits for the encoder to end
        if not path.is_file() or not path.stat().st_size:
            raise VitvizError(FAILED)
        return path.read_bytes()


def _gif(reel: FrameRenderer, times: list[int], rate: float, on_frame: OnFrame) -> bytes:
    """Return a looping GIF with one palette of 256 colours; frame n lasts times[n] / rate seconds."""
    colours = _colours(reel)
    none = Image.Dither.NONE  # dithering dots would look like data
    frames = map(Image.fromarray, _rendered_frames(reel, on_frame))
    drawn = (frame.quantize(palette=colours, dither=none) for frame in frames)
    file = io.BytesIO()
    lasting = [round(1000 * count / rate) for count in times]
    next(drawn).save(file, "GIF", save_all=True, append_images=drawn, duration=lasting, loop=0)
    return file.getvalue()


def _colours(reel: FrameRenderer) -> Image.Image:
    """Return a palette of 256 colours for all frames, as an image; computed from a few frames."""
    seen = sorted({round(at) for at in np.linspace(0, len(reel) - 1, SEEN)})
    step = max(1, -(-reel.size[0] // WIDE))
    result = [reel[number][::step, ::step] for number in seen]
    return Image.fromarray(np.concatenate(result)).quantize(256, Image.Quantize.MEDIANCUT)


OVER = ("training", "layers")
PIXELS = (320, 1920)  # allowed widths of a video
OF_A_FILM = (
    "A video of {count} frames, from {first} to {last}; scales and axes are the same in all of them. The"
    " text above describes the last one."
)
NO_FILM = "{checkpoint} has no video of its training: there are no snapshots beside its weights."


@dataclass(frozen=True, eq=False)
class Animation:
    """Video whose frames are figures with the same scales and axes; `labels` are the titles of the frames."""

    frames: tuple[Figure, ...]
    labels: tuple[str, ...]
    name: str  # file name without suffix: view, checkpoint and settings
    caption: str  # caption of the last frame, with the range of the frames
    rate: float = 0.0  # frames per second if made from a video file, otherwise 0

    def mp4(self, width: int = 960, seconds: float = 0.8) -> bytes:
        """Return H.264 bytes, `width` pixels wide; a frame lasts `seconds`, the last three times as long."""
        return self.file("mp4", width, seconds)

    def gif(self, width: int = 960, seconds: float = 0.8) -> bytes:
        """Return a looping GIF of 256 colours; `width` and `seconds` as for `mp4`."""
        return self.file("gif", width, seconds)

    def file(
        self, form: str, width: int = 960, seconds: float = 0.8, told: OnFrame = lambda done, of: None
    ) -> bytes:
        """Return the bytes of the video, or of its caption.

        Args:
            form: "mp4", "gif", or "txt" for the caption.
            width: Width in pixels, even, 320 to 1920.
            seconds: Duration of a frame, 0.1 to 5, in tenths of a second.
            told: Progress function of (frames done, frames).

        Raises:
            VitvizError: For an unknown format, width or duration, and if there is no encoder.
        """
        if form == "txt":
            return self.caption.encode()
        reel = self._reel(width)
        check_video_format(form, seconds)
        each = round(RATE * seconds)
        times = [1] * len(reel) if self.rate else [each] * (len(reel) - 1) + [HELD * each]
        return (_mp4 if form == "mp4" else _gif)(reel, times, self.rate or RATE, told)

    def picture(self, number: int, width: int = 960) -> UInt8[np.ndarray, "tall wide 3"]:
        """Return the RGB pixels of a frame, counted from 0."""
        return self._reel(width)[number]

    def save(self, path: str | Path, width: int = 960, seconds: float = 0.8) -> Path:
        """Write a .mp4 or .gif, and the caption next to it as .txt; return the path of the video.

        Raises:
            VitvizError: For another suffix, an invalid width or duration, and if there is no encoder.
        """
        form = Path(path).suffix.lower().removeprefix(".")
        return save_with_caption(path, self.file(form, width, seconds), self.caption)

    def _repr_html_(self) -> str:
        """Return an HTML img element with the video as a GIF 640 px wide, for notebooks."""
        shown = base64.b64encode(self.gif(width=640)).decode()
        return f'<img alt="" src="data:image/gif;base64,{shown}">'

    def _reel(self, width: int) -> FrameRenderer:
        """Return the renderer of the frames at `width` pixels; raise VitvizError for an invalid width."""
        check_width(width)
        first = self.frames[0]
        say, specs = partial(translate, tag=first.language), [frame.spec for frame in self.frames]
        renderer = import_mpl_module("page").FrameRenderer
        return renderer(specs, self.labels, width, first.dark, say, first.language)


@renamed_parameters
def animation(
    view: str, inspector: Inspector, picture: Any = None, *, over: str = "training", detail: bool = False,
    dark: bool = False, language: str = "en", size: int | tuple[int, int] | None = None, ablation: Any = None,
    **settings: Any,
) -> Animation:  # fmt: skip
    """Make a video of one view over the training snapshots of its checkpoint or over its layers.

    Args:
        view: Slug of the view, as for `vitviz.figure`. Over layers: "rollout", "evidence", "tokens" and
            "explorer".
        inspector: The model.
        picture: Image as a path, PIL image or array; not needed for filters, positions and compared.
        over: "training" or "layers".
        detail: As for `vitviz.figure`, like `dark`, `language` and `settings`.
        size: Input size, as for `Inspector.trace`.
        ablation: Ablation, as for `Inspector.trace`.

    Returns:
        The video, with one frame per snapshot or layer.

    Raises:
        VitvizError: If the view or the checkpoint has no such video, with the reason.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> film = animation("rollout", inspector, vitviz.sample_image("chelsea"), over="layers")
    >>> str(film.labels[2]), film.gif(width=320)[:3]
    ('Layers 1 to 3', b'GIF')
    """

    def trace_by(by: Inspector) -> tuple[View, ViewContext, dict, PrintStyle]:
        trace = None if picture is None else by.trace(picture, size, ablation)
        result, subject = view_contexts(view, by, trace)
        asked = PrintStyle(detail, upright_upload(picture, subject), "", dark, language)
        return result, subject, validate_settings(result, subject, settings), asked

    if check_axis(over) == "layers":
        result, subject, parsed, asked = trace_by(inspector)
        figure_of = partial(print_view, result, subject, style=asked)
        return layer_video(result, subject, parsed, detail, figure_of)
    from vitviz import engine
    from vitviz.engine.hub.snapshots import all_snapshots, folder_of

    if any(control.name == "target" for control in view_by_slug(view).controls):
        _, subject, parsed, _ = trace_by(inspector)
        settings |= predicted_class_setting(subject, parsed)
    checkpoint = inspector.checkpoint
    like = {"device": str(inspector.device), "dtype": inspector.dtype, "folder": folder_of(checkpoint)}
    moments = all_snapshots(checkpoint)
    return training_video(
        checkpoint.name, moments, lambda name: print_view(*trace_by(engine.load(name, **like)))
    )


def predicted_class_setting(subject: ViewContext, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return {"target": the predicted class}, to explain it in all frames; {} if a class was chosen."""
    trace = subject.trace
    unsaid = settings.get("target") == "top" and trace is not None and trace.logits is not None
    return {"target": str(int(trace.logits.argmax()))} if unsaid else {}


def check_width(width: int) -> None:
    """Raise VitvizError for an invalid width of a video."""
    low, high = PIXELS
    if isinstance(width, bool) or not isinstance(width, int) or not low <= width <= high or width % 2:
        wanted = f"an even number of pixels from {low} to {high}"
        raise VitvizError(f"A width of {quoted(width)} is not valid; expected {wanted}.")


def check_axis(over: str) -> str:
    """Return `over` if it is "training" or "layers"; otherwise raise VitvizError."""
    if over not in OVER:
        raise VitvizError(f"There is no video over {quoted(over)}; expected one of {', '.join(OVER)}.")
    return over


def training_video(
    checkpoint: str, moments: Sequence[Snapshot], figure_of: Callable[[str], Figure]
) -> Animation:
    """Return the video of `figure_of(snapshot name)`; raise VitvizError if there are no snapshots."""
    if not moments:
        raise VitvizError(LocalizedText(NO_FILM, checkpoint=checkpoint))
    figures = [figure_of(moment.name) for moment in moments]
    return assemble_video(figures, list(map(_label, moments)), f"{figures[-1].name}_over-training")


def layer_video(
    view: View, subject: ViewContext, settings: Mapping[str, Any], detail: bool,
    figure_of: Callable[[Mapping[str, Any]], Figure],
) -> Animation:  # fmt: skip
    """Return the video of `figure_of(settings)` over the layers, whose settings the view determines.

    Raises:
        VitvizError: If the view has no layers to go over.
    """
    details = layer_frames(view, settings, subject.about)
    figures = [figure_of(each) for _, each in details]
    name = f"{figure_file_name(view, subject, settings, detail)}_over-layers"
    return assemble_video(figures, [label for label, _ in details], name)


def assemble_video(figures: Sequence[Figure], labels: Sequence[str], name: str) -> Animation:
    """Return a video of the figures, with scales and axes widened to their range over all frames."""
    cancellation.check()
    specs = share_scales([figure.spec for figure in figures])
    frames = tuple(replace(figure, spec=spec) for figure, spec in zip(figures, specs, strict=True))
    details = LocalizedText(OF_A_FILM, count=len(frames), first=labels[0], last=labels[-1])
    caption = f"{figures[-1].caption}{translate(details, figures[-1].language)}\n"
    return Animation(frames, tuple(labels), name, caption)


def _label(moment: Snapshot) -> str:
    """Return the title of a training snapshot's frame."""
    step = LocalizedText("Finished model")
    if moment.step is not None:
        step = LocalizedText("Training step {step}", step=f"{moment.step:,}")
    if moment.top1 is None:
        return step
    return join_texts(step, LocalizedText("accuracy {share} %", share=f"{100 * moment.top1:.1f}"))
