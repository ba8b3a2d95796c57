"""HTTP routes of the app: binary data of figures (slow as JSON), camera and video frames, browser modules.

The routes are under /gradio_api, because elsewhere Gradio's server-side rendering would respond with the
page. They bypass Gradio's login, so access requires an unguessable key. A visitor's mistake gives a sentence;
any other error is a bug, which is logged with its traceback and reported as such.

A frame is traced like the image on the page: by the same checkpoints, at the same size, with the same
ablations. Only the edits are left out, because they belong to a photograph. The response holds what the page
shows of the frame for the views in view. The session does not store the frame, so links, lessons and zips do
not contain it.
"""

import base64
import io
import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from vitviz.errors import ImageError, Unknown, VitvizError, WrongSetting, quoted
from vitviz.export.video import first_map, flicker
from vitviz.server.api import checks, figures, lessons, modules, videos
from vitviz.server.api.serialization import error_json, error_text
from vitviz.server.i18n import mark
from vitviz.server.page import facts
from vitviz.server.page.figures import figure_frame, figures_of
from vitviz.server.security import request_context
from vitviz.server.security.scheduler import as_one_request
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.samples import sample_image
from vitviz.traces.unicode import parse_json
from vitviz.views import VIEWS, Needs, typefaces
from vitviz.views.printing import is_printable

CARD = Path(__file__).with_name("card.jpg")  # the preview of a shared link
KEPT = {"Cache-Control": "private, max-age=86400, immutable"}
FOREVER = "public, max-age=31536000, immutable"  # for an address that contains a version
PASSING = {"Cache-Control": "no-store"}  # for camera frames
AT_ONCE = 1_000_000  # bytes sent without a thread
BASE = "/gradio_api/vitviz"
STATIC = nullcontext  # for routes that compute nothing
HEADS = {  # per-head values in a video's strip: view, item, and the settings that the item takes
    "distance": ("distance", "distance", ()),
    "entropy": ("tokens", "entropy", ()),
    "share": ("evidence", "heads", ("target",)),
}
ITEMS = 64  # drawn by a page per frame
LARGEST = 2048  # pixels per side of a requested frame
TYPES = {"second": str, "last": str, "views": list, "video": str}  # of the fields of a posted request
NO_FRAME = mark("Not a camera frame: expected a JPEG or PNG file.")


def routes(service: AnalysisService) -> list[APIRoute]:
    """Return the routes for Gradio's `launch(app_kwargs={"routes": ...})`."""

    def picture(given: dict, key: str, which: str) -> Response:
        with service.frames.in_use(key) as passing:
            data = service.image(key, which)
        kind = "image/png" if which == "input" else "image/jpeg"
        return Response(data, media_type=kind, headers=PASSING if passing else KEPT)

    def far(given: dict, key: str, *ticket: str) -> Response:
        done, of = service.progress(key, *ticket)
        return JSONResponse({"done": done, "of": of})

    def everything(given: dict, key: str) -> Response:
        data = lessons.lesson_zip(service, key, given)
        return download_response(data, lessons.file_name(service.subject(key).checkpoint))

    def check(given: dict, key: str, name: str) -> Response:
        if name.startswith("report"):
            return download_response(*checks.file(service, key, name, given))
        return JSONResponse(checks.step_json(service, key, name, given), headers=PASSING)

    def film_progress(given: dict, key: str, view: str) -> Response:
        service.view(view)
        return far(given, key, given.get(f"{videos.PREFIX}ticket", ""))

    def item(given: dict, key: str, view: str, name: str) -> Response:
        kind, dot, ending = name.partition(".")
        with service.frames.in_use(key) as passing:
            seen = service.view(view)
            if name == "numbers.npz":
                return download_response(service.numbers(key, view, given), f"vitviz-{view}.npz")
            if name == "film.json":
                return JSONResponse(videos.video_lengths(service, key, view, given))
            if dot and kind in ("film", "print"):
                file = videos.video_file if kind == "film" else figures.figure_file
                return download_response(*file(service, key, view, ending, given))
            if name in [file.name for file in seen.export.files]:
                return download_response(service.file(key, view, name, given), f"vitviz-{view}-{name}")
            return array_response(service.item(key, view, name, given), PASSING if passing else KEPT)

    def available_now(given: dict, key: str, view: str, name: str) -> Response | None:
        # errors are reported by `item`
        with suppress(VitvizError), service.frames.in_use(key) as passing:
            array = service.available_now(key, view, name, given)
            if array is not None and array.nbytes <= AT_ONCE:
                return array_response(array, PASSING if passing else KEPT)
        return None

    def module(given: dict, version: str, path: str) -> Response:
        return Response(modules.module_source(path), media_type="text/javascript", headers=KEPT)

    def plotly(given: dict, version: str) -> Response:
        headers = {"Cache-Control": FOREVER, "Content-Encoding": "gzip"}
        return Response(modules.plotly_script(), media_type="text/javascript", headers=headers)

    def font(given: dict, version: str, file: str) -> Response:
        headers = {"Cache-Control": FOREVER}
        return Response(typefaces.font_file(file), media_type="font/woff2", headers=headers)

    def card(given: dict) -> Response:
        return Response(CARD.read_bytes(), media_type="image/jpeg", headers=KEPT)

    def labels(given: dict, key: str) -> Response:
        return JSONResponse(list(service.subject(key).trace.labels), headers=KEPT)

    def sample(given: dict, name: str) -> Response:
        return Response(_sample(name), media_type="image/jpeg", headers=KEPT)

    def live(question: Any, key: str) -> Response:
        with service.work.sparing():
            return _frame_response(service, live_page(service, key, question), question)

    def video(question: Any, key: str) -> Response:
        return JSONResponse(decode_video(service, question), headers=PASSING)

    turn = service.work.request_turn
    return [
        _route("card.jpg", card, STATIC),
        _route("modules/{version}/{path:path}", module, STATIC),
        _route("plotly/{version}/plotly.min.js", plotly, STATIC),
        _route("fonts/{version}/{file}", font, STATIC),
        _route("sample/{name}", sample, STATIC),
        _route("{key}/progress", far, STATIC),
        _route("{key}/labels", labels, turn),
        _route("{key}/{view}/film.progress", film_progress, STATIC),
        _route("{key}/picture/{which}", picture, turn),
        _route("{key}/everything.zip", everything, turn),
        _route("{key}/check/{name}", check, turn),
        _route("{key}/{view}/{name}", item, turn, available_now),
        _route("{key}/live", live, turn, method="POST"),
        _route("{key}/video", video, turn, method="POST"),
    ]


def _route(
    path: str, answer: Callable[..., Response], turn: Callable[[], AbstractContextManager],
    available_now: Callable | None = None, method: str = "GET",
) -> APIRoute:  # fmt: skip
    """Return a route whose `answer` gets the query (or the posted JSON) and the parts of the path.

    `turn` is held while answering: a scheduler turn with a time limit, or STATIC if nothing is computed.
    Requests are answered in a thread, unless `available_now` has the response: beside running computations,
    every thread switch waits.
    """

    async def handle(request: Request) -> Response:
        parts = request.path_params
        given = dict(request.query_params) if method == "GET" else await request.body()
        result = available_now(given, **parts) if available_now else None

        def made() -> Response:
            return answer(given if method == "GET" else _parse_body(given), **parts)

        return result or await run_in_threadpool(lambda: run_answer(made, request, turn))

    return APIRoute(f"{BASE}/{path}", handle, methods=[method], include_in_schema=False)


def _parse_body(body: bytes) -> Any:
    """Return posted JSON, parsed; None for an empty body. Raises WrongSetting for invalid JSON."""
    try:
        return parse_json(body) if body else None
    except (ValueError, RecursionError):
        raise WrongSetting("The request is not valid JSON.") from None


def array_response(array: np.ndarray, headers: dict[str, str]) -> Response:
    """Return an array's bytes, with shape and dtype in the headers."""
    described = {"X-Shape": ",".join(map(str, array.shape)), "X-Dtype": str(array.dtype), **headers}
    return Response(array.tobytes(), media_type="application/octet-stream", headers=described)


def download_response(data: bytes, name: str) -> Response:
    """Return a file as a download, which browsers never render in the page's origin."""
    safe = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(data, media_type="application/octet-stream", headers=safe)


def run_answer(
    answer: Callable[[], Response], request: Request, turn: Callable[[], AbstractContextManager] = nullcontext
) -> Response:
    """Return the response of `answer()`, computed within `turn()`; for an error, an error response.

    The computation is cancelled when the connection closes.
    """
    try:
        with request_context.bind_request(request), as_one_request(), turn():
            return answer()
    except Exception as error:
        status = 404 if isinstance(error, Unknown) else 422 if isinstance(error, VitvizError) else 500
        details = error_json(error)
        said = {"text": _short(details["text"]), "detail": _short(error_text(error))}
        return JSONResponse({**details, **said}, status_code=status)


def _short(sentence: str) -> str:
    """Shorten an error message, which may repeat a request as long as an address can be."""
    sentence = re.sub(r"[\r\n]+", " ", sentence)
    return sentence if len(sentence) <= 500 else f"{sentence[:300]} … {sentence[-190:]}"


def _frame_response(service: AnalysisService, page: dict[str, Any], request: Any) -> Response:
    """Return a frame's page as JSON, followed by the arrays that the request lists as `items`.

    The page will need these arrays; sending them at once saves a dozen requests. The body starts with the
    length of the JSON (4 bytes, little-endian); the JSON lists the arrays in order.
    """
    if not page or not isinstance(request, dict) or "items" not in request:
        return JSONResponse(page, headers=PASSING)
    arrays = {}
    with service.frames.in_use(page["key"]):
        items = request["items"] if isinstance(request["items"], list) else []
        for address in dict.fromkeys(map(str, items[:ITEMS])):
            path, _, query = address.partition("?")
            slug, _, name = path.partition("/")
            with suppress(VitvizError):  # the view requests the item itself and reports the error
                arrays[address] = service.item(page["key"], slug, name, dict(parse_qsl(query, True)))
    named = [[name, array.shape, str(array.dtype), array.nbytes] for name, array in arrays.items()]
    head = json.dumps({**page, "arrays": named}, allow_nan=False).encode()
    body = b"".join([len(head).to_bytes(4, "little"), head, *(array.tobytes() for array in arrays.values())])
    return Response(body, media_type="application/octet-stream", headers=PASSING)


def decode_video(service: AnalysisService, request: Any) -> dict[str, Any]:
    """Decode the video at the `path` of an upload and store it; return its key and frames, as JSON.

    Returns:
        video (key), frames (number, seconds), step, and `most`, the frame limit of an exported video.
    """
    key = service.videos.add_upload(request.get("path") if isinstance(request, dict) else None)
    video = service.videos.of(key)
    frames = [{"number": number, "seconds": seconds} for number, seconds, _ in video.frames]
    return {"video": key, "frames": frames, "step": video.step, "most": videos.FRAMES}


def live_page(service: AnalysisService, key: str, request: Any) -> dict[str, Any]:
    """Return the page for one `frame`, or for the frame `at` an index of a `video`.

    The frame replaces the image that `key` (and `second`) stand for. The previous frame, `last`, is deleted
    once this frame is rendered, or if there is none. A video is deleted when a request names it without `at`.

    Returns:
        key, answers, picture, figures of `views`, and the preferred size of frames (height, width) in px.
    """
    request = _check_types(request)
    frame, second, last, views = (request.get(name) or "" for name in ("frame", "second", "last", "views"))
    if "at" in request:
        data = service.videos.frame(request.get("video"), request["at"])
    else:
        try:
            data = base64.b64decode(frame, validate=True)
        except (ValueError, TypeError):
            raise ImageError(NO_FRAME) from None
        service.videos.forget(request.get("video"))
    if not data:
        service.frames.forget(service.frames.picture(last))
        return {}
    video = request.get("video", "") if "at" in request else ""
    with service.frames.passing(data, video, stays=True) as picture:
        answer = _frame_answer(service, picture, [key, second], views)
        if video:
            of = service.videos.of(video)
            basis = {"count": len(of.sampled), "of": len(of.frames)}
            first = _video_target(service, key, request)
            target = {} if first is None else {"target": str(first)}
            answer["row"] = _frame_row(service, key, answer["key"], first, request)
            for slug, figures in answer["figures"].items():
                still = {**service.view(slug).export.video.settings, **target}
                answer["figures"][slug] = [one and {**one, "still": still, "basis": basis} for one in figures]
    service.frames.forget(service.frames.picture(last))
    return answer


def _check_types(body: Any) -> dict[str, Any]:
    """Return a request without nulls, its types checked. Raises WrongSetting if one differs from TYPES."""
    if not isinstance(body, dict | None):
        raise WrongSetting(f"{quoted(body)} is not valid; expected a JSON object, such as one with a frame.")
    body = {name: value for name, value in (body or {}).items() if value is not None or name == "at"}
    if isinstance(views := body.get("views"), list) and len(views) > len(VIEWS):
        raise WrongSetting(f"{len(views)} views are not valid; expected each of at most {len(VIEWS)} once.")
    for name, kind in TYPES.items():
        value = body.get(name, kind())
        texts = value if isinstance(value, list) else [value]
        if not (isinstance(value, kind) and all(isinstance(text, str) for text in texts)):
            expected = "a list of texts" if kind is list else "a text"
            raise WrongSetting(f"{name}={quoted(value)} is not valid; expected {expected}.")
    return body


def _video_target(service: AnalysisService, key: str, request: dict) -> int | None:
    """Return the class explained in all frames of a video: the prediction of the first frame, or None."""
    video = service.videos.of(request["video"])
    if key not in video.asked:
        with service.frames.passing(video.frames[0][2]) as first:
            trace = service.subject(service.frames.traced_like(key, first)).trace
            video.asked[key] = int(trace.logits.argmax()) if trace.top(1) else None
    return video.asked[key]


def _frame_row(service: AnalysisService, photo: str, key: str, first: int | None, request: dict) -> dict:
    """Return a frame's numbers for a video's table, as JSON.

    Contains the prediction, its probability (or value), one number per head, and the change of the map of the
    view `flickers` since the previous frame, if that map was requested recently.
    """
    trace = service.subject(key).trace
    answer, score = (trace.top(1) or [(None, None)])[0]
    row = {"answer": answer, "probability": None, "flicker": None}
    row[trace.quantity] = score and float(score)
    if (heads := str(request.get("heads"))) in HEADS:
        slug, name, given = HEADS[heads]
        try:
            target = {one: str(first) for one in given if first is not None}
            row["heads"] = service.item(key, slug, name, target).astype(float).ravel().tolist()
        except VitvizError as error:  # quantities that a model lacks
            row["refused"] = error_json(error)
    view = None
    match request.get("flickers"):
        case [str(slug), dict(given)]:
            view = next((view for view in VIEWS if view.slug == slug), None)
    if view and view.needs is Needs.RUN and is_printable(view) and not view.scope.on_request:
        given = {str(name): str(value) for name, value in given.items()}
        question, at = repr((photo, slug, sorted(given.items()))), request["at"]
        try:
            _, values = first_map(figures.figure(service, key, slug, given))
        except VitvizError:  # the view reports the error itself
            values = None
        maps = service.videos.of(request["video"]).maps
        before = maps.peek((question, at - 1))
        if values is not None:
            maps.get((question, at), lambda: values)
            row["flicker"] = None if before is None else flicker(before, values)
    return row


@cache
def _sample(name: str) -> bytes:
    """Return a sample's thumbnail as JPEG."""
    result = sample_image(name)
    result.thumbnail((240, 240))
    data = io.BytesIO()
    result.save(data, "JPEG", quality=88)
    return data.getvalue()


def _frame_answer(service: AnalysisService, picture: str, keys: list[str], views: Any) -> dict[str, Any]:
    """Return a frame's key, preferred size in px, predictions, image, and figures by view.

    `keys` are the run keys of the first and second checkpoint ('' for none), `views` are slugs.
    """
    views = [service.view(slug) for slug in dict.fromkeys(views)]
    keys = [service.frames.traced_like(key, picture) if key else "" for key in keys]
    with service.frames.in_use(keys[0]):  # a pass may take longer than a frame's lifetime
        subject = service.subject(keys[0])
    state, crop = {"key": keys[0], "second_key": keys[1]}, subject.inspector.preprocessing.crop_pct
    size = [min(LARGEST, int(side / crop)) for side in subject.grid.pixels]
    answers = [facts.prediction_facts(service.subject(key)) if key else {} for key in keys]
    figures = {view.slug: figures_of(view, service, state) for view in views}
    details = {"key": keys[0], "size": size, "answers": answers, "figures": figures}
    return {**details, "picture": figure_frame(service, keys[0], "picture")}
