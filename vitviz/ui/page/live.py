"""The routes of what passes: a camera's frame comes, or one of a video that was dropped in is asked for, and
what the page shows of it goes back, for the views that are in view.

The frame is looked at as the photograph on the page is, by the same checkpoints, at the same size, without
the same heads and patches; only strokes stay behind, which are painted over a photograph. The session knows
nothing of it, and so neither do links, lessons and zips.
"""

import base64
import binascii
from typing import Annotated, Any

from fastapi import Body, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from vitviz.errors import ImageError
from vitviz.ui.answers.routes import PASSING, answered
from vitviz.ui.memory.studio import Studio
from vitviz.ui.page import facts
from vitviz.ui.page.figures import figures_of, framed
from vitviz.ui.words import told

LARGEST = 2048  # pixels of a side that a frame is asked for
NO_FRAME = told("This is no frame of a camera: expected a JPEG or PNG file.")


def routes(studio: Studio) -> list[APIRoute]:
    """The routes to hand to Gradio's `launch`."""

    def live(key: str, request: Request, asked: Annotated[Any, Body()] = None) -> Response:
        return answered(lambda: JSONResponse(shown(studio, key, asked), headers=PASSING), request)

    def video(key: str, request: Request, asked: Annotated[Any, Body()] = None) -> Response:
        return answered(lambda: JSONResponse(decoded(studio, asked), headers=PASSING), request)

    base, how = "/gradio_api/vitviz/{key}", {"methods": ["POST"], "include_in_schema": False}
    return [APIRoute(f"{base}/live", live, **how), APIRoute(f"{base}/video", video, **how)]


def decoded(studio: Studio, asked: Any) -> dict[str, Any]:
    """A video's key and its frames' numbers in the file and seconds, from the `path` of an upload."""
    key = studio.videos.keep(asked.get("path") if isinstance(asked, dict) else None)
    found = studio.videos.of(key)
    frames = [{"number": number, "seconds": seconds} for number, seconds, _ in found.frames]
    return {"video": key, "frames": frames, "step": found.step}


def shown(studio: Studio, key: str, asked: Any) -> dict[str, Any]:
    """What the page shows of a `frame`, or the one `at` a place in a `video`, instead of the photograph that
    `key` (and `second`) stand for: key, answers, picture, the figures of `views`; and the size (height,
    width) that frames should have.

    The frame before it, `last`, is forgotten once this one stands, or if there is none; a video whose key is
    asked for no frame too.
    """
    asked = asked if isinstance(asked, dict) else {}
    frame, second, last, views = (asked.get(name) or "" for name in ("frame", "second", "last", "views"))
    if "at" in asked:
        data = studio.videos.frame(asked.get("video"), asked["at"])
    else:
        data = _bytes(frame)
        studio.videos.forget(asked.get("video"))
    answer = _looked_at(studio, data, [key, second], views) if data else {}
    studio.frames.forget(studio.frames.picture(str(last)))
    return answer


def _looked_at(studio: Studio, data: bytes, keys: list[str], views: Any) -> dict[str, Any]:
    views = [studio.view(str(slug)) for slug in views]
    picture = studio.frames.stand(data)
    try:
        keys = [studio.frames.seen_as(key, picture) if key else "" for key in keys]
        state = {"key": keys[0], "second_key": keys[1]}
        preprocessing, grid = studio.subject(keys[0]).inspector.preprocessing, studio.subject(keys[0]).grid
        return {
            "key": keys[0],
            "size": [min(LARGEST, int(side / preprocessing.crop_pct)) for side in grid.pixels],
            "answers": [facts.answer(studio.subject(key)) if key else {} for key in keys],
            "picture": framed(studio, keys[0], "picture"),
            "figures": {view.slug: figures_of(view, studio, state) for view in views},
        }
    except BaseException:
        studio.frames.forget(picture)
        raise


def _bytes(frame: Any) -> bytes:
    try:
        return base64.b64decode(frame, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ImageError(NO_FRAME) from None
