"""Export videos: check the request, compute the frames in turns, and encode them in one turn.

A request for a video carries a ticket under which the client can query the progress.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from vitviz.engine import Snapshot
from vitviz.errors import Unknown, VitvizError
from vitviz.export import Figure
from vitviz.export.animation import (
    FORMATS,
    NO_FILM,
    Animation,
    OnFrame,
    check_axis,
    check_video_format,
    check_width,
    layer_video,
    predicted_class_setting,
    training_video,
)
from vitviz.export.video import video_at_mean_rate
from vitviz.server.api import figures
from vitviz.server.api.figures import QueryTexts
from vitviz.server.api.serialization import parse_whole
from vitviz.server.security import request_context
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.server.services.frames import thin_out
from vitviz.traces.localized_text import LocalizedText, message_of, text_to_json
from vitviz.views import Needs, View
from vitviz.views.printing import ALONE, PrintStyle, layer_frames
from vitviz.views.routes import parse_settings

FRAMES = 120  # frames of an exported video; longer inputs are sampled evenly
MOST = 60  # frames of a training history; longer ones are sampled, with the first and last snapshot
WIDE = 1280  # pixels, maximum width
PREFIX = "film."
ASKED = ("over", "width", "seconds", "detail", "dark", "lang", "ticket", "video", "first", "last")
TOO_LONG = (
    "This view takes too long to compute for every frame. In Python, vitviz.animation and "
    "vitviz.video export the video."
)
OF_A_SET = "A video shows one image. Switch back from the average to one image."


def page_video(
    service: AnalysisService, key: str, slug: str, query: QueryTexts, over: str = "training",
    style: PrintStyle = ALONE, on_frame: OnFrame = lambda done, of: None
) -> Animation:  # fmt: skip
    """Return a view's video over "training" or "layers"; call `on_frame` after each snapshot's figure.

    Raises VitvizError if the view has no such video.
    """
    if service.sets.survey(key) is not None:
        raise Unknown(OF_A_SET)
    view, run, (_, second) = service.view(slug), service.runs.run(key), service.runs.both(key)

    if check_axis(over) == "layers":
        subject = service.subject(key)
        settings = parse_settings(view, query, subject.about)

        def grown(each: Mapping[str, Any]):
            request_context.require_visitor()
            return figures.figure_of_settings(service, key, view, each, style)

        return layer_video(view, subject, settings, style.detail, grown)
    moments = _moments(service, view, run.checkpoint)
    subject = service.subject(key)
    query = {**query, **predicted_class_setting(subject, parse_settings(view, query, subject.about))}
    done = iter(range(1, len(moments) + 1))

    def figure_of(name: str):
        moment = service.look(run.picture, name, run.size, without=run.without, strokes=run.strokes)
        request_context.require_visitor()
        moment = service.runs.pair(moment, second) if second else moment
        made = figures.figure(service, moment, slug, query, style)
        on_frame(next(done), len(moments))
        return made

    return training_video(run.checkpoint, moments, figure_of)


def upload_video(
    service: AnalysisService, key: str, slug: str, query: QueryTexts, video: str, part: slice,
    style: PrintStyle, on_frame: OnFrame
) -> Animation:  # fmt: skip
    """Return a view's video over a slice (`part`) of a video's frames, traced like the image of `key`."""
    view = service.view(slug)
    if view.scope.on_request or view.needs is not Needs.RUN:
        raise VitvizError(TOO_LONG if view.scope.on_request else OF_A_SET)
    frames = thin_out(service.videos.of(video).frames[part], FRAMES)

    def each() -> Iterator[tuple[int, float, Figure]]:
        for done, (number, seconds, data) in enumerate(frames):
            request_context.require_visitor()
            with service.frames.passing(data, video) as picture:
                seen = service.frames.traced_like(key, picture)
                with service.frames.in_use(seen):
                    yield number, seconds, figures.figure(service, seen, slug, query, style)
            on_frame(done + 1, len(frames))

    return video_at_mean_rate(each())


def video_file(
    service: AnalysisService, key: str, slug: str, ending: str, query: QueryTexts
) -> tuple[bytes, str]:
    """Return a video file and its name; film.over, .width, .seconds, .detail, .dark, .lang set the format."""
    address = figures.FigureRequest(query, PREFIX, "Films", ASKED, ending, FORMATS)
    ticket = address.text("ticket", "", "[0-9a-z]{0,40}", "up to 40 letters and digits")
    count = service.progress_counter(key, ticket)
    width = address.number("width", "960")
    seconds = float(address.text("seconds", "0.8", r"[0-9](\.[0-9])?", "0.1 to 5, such as 0.8"))
    require_video_format(ending, width, seconds)
    over, how = address.text("over", "training"), (address.look(), partial(_count, count, 0))
    if over == "video":
        part = slice(address.number("first", "0"), address.number("last", "9999") + 1)
        made = upload_video(service, key, slug, address.theirs, address.text("video", ""), part, *how)
    else:
        made = page_video(service, key, slug, address.theirs, over, *how)
    data = encode_video(service, made, ending, width, seconds, partial(_count, count, 1))
    return data, f"{made.name}.{ending}"


def require_video_format(form: str, width: int, seconds: float) -> None:
    """Raise VitvizError for an invalid format. Called before the frames are computed, which takes long."""
    check_video_format(form, seconds)
    check_width(parse_whole(width, "width", 1, WIDE))


def encode_video(
    service: AnalysisService, made: Animation, form: str, width: int, seconds: float,
    on_frame: OnFrame = lambda done, of: None
) -> bytes:  # fmt: skip
    """Return a video as the bytes of a file in format `form`, encoded in an expensive turn."""
    with service.work.drawing(width * width):
        return made.file(form, width, seconds, on_frame)


def video_lengths(service: AnalysisService, key: str, slug: str, query: QueryTexts) -> dict[str, Any]:
    """Return the number of frames of each video of a view, or the reason why there is none."""
    view, subject = service.view(slug), service.subject(key)
    _, theirs = figures.split_by_prefix(query, PREFIX)

    def option(count: Callable[[], int]) -> int | dict[str, Any]:
        try:
            if service.sets.survey(key) is not None:
                raise Unknown(OF_A_SET)
            return count()
        except VitvizError as error:
            return text_to_json(message_of(error))

    def layers() -> int:
        return len(layer_frames(view, parse_settings(view, theirs, subject.about), subject.about))

    training = option(lambda: len(_moments(service, view, service.runs.run(key).checkpoint)))
    return {"training": training, "layers": option(layers)}


def _moments(service: AnalysisService, view: View, checkpoint: str) -> list[Snapshot]:
    """Return at most MOST snapshots for a video. Raises VitvizError for none, or if each takes too long."""
    moments = thin_out(service.checkpoints.moments(checkpoint), MOST)
    if not moments:
        raise VitvizError(LocalizedText(NO_FILM, checkpoint=checkpoint))
    if view.scope.on_request:
        raise VitvizError(TOO_LONG)
    return moments


def _count(count: list[int], drawn: int, done: int, of: int) -> None:
    """Set `count` to [done, total]; a frame counts as computed (`drawn` is 0) and as drawn (1)."""
    count[:] = [done + drawn * of, 2 * of]
