"""The binary routes: bulk data of figures, which would be slow as JSON, and the browser's modules.

They lie under /gradio_api because elsewhere server-side rendering would answer with the page. They bypass a
login of Gradio's, so the only way in is a key that cannot be guessed. What a visitor did wrong is a sentence;
anything else is a bug of ours: logged with its traceback, and told as such.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from vitviz.errors import Unknown, VitvizError
from vitviz.ui.answers import films, lessons, modules, prints
from vitviz.ui.answers.plain import in_english, told_of
from vitviz.ui.door import visitor
from vitviz.ui.door.turns import one_answer
from vitviz.ui.memory.studio import Studio

CARD = Path(__file__).parents[1] / "page" / "card.jpg"  # what a shared link looks like
KEPT = {"Cache-Control": "private, max-age=86400, immutable"}
PASSING = {"Cache-Control": "no-store"}  # of a camera's frame
AT_ONCE = 1_000_000  # bytes that others may wait for


def routes(studio: Studio) -> list[APIRoute]:
    """The routes to hand to Gradio's `launch(app_kwargs={"routes": ...})`."""

    def picture(given: dict, key: str, which: str) -> Response:
        with studio.frames.looked_at(key) as passing:
            data = studio.image(key, which)
        kind = "image/png" if which == "input" else "image/jpeg"
        return Response(data, media_type=kind, headers=PASSING if passing else KEPT)

    def far(given: dict, key: str, *ticket: str) -> Response:
        done, of = studio.far(key, *ticket)
        return JSONResponse({"done": done, "of": of})

    def everything(given: dict, key: str) -> Response:
        data = lessons.everything(studio, key, given)
        return download(data, lessons.file_name(studio.subject(key).checkpoint, ".zip"))

    def item(given: dict, key: str, view: str, name: str) -> Response:
        kind, dot, ending = name.partition(".")
        with studio.frames.looked_at(key) as passing:
            shown = studio.view(view)
            if name == "numbers.npz":
                return download(studio.numbers(key, view, given), f"vitviz-{view}.npz")
            if name == "film.json":
                return JSONResponse(films.offered(studio, key, view, given))
            if name == "film.progress":
                return far(given, key, given.get(f"{films.PREFIX}ticket", ""))
            if dot and kind in ("film", "print"):
                files = films if kind == "film" else prints
                return download(*files.asked_for(studio, key, view, ending, given))
            if name in [file.name for file in shown.files]:
                return download(studio.file(key, view, name, given), f"vitviz-{view}-{name}")
            return binary(studio.item(key, view, name, given), PASSING if passing else KEPT)

    def at_hand(given: dict, key: str, view: str, name: str) -> Response | None:
        # what is wrong with the question is told where it is answered
        with suppress(VitvizError), studio.frames.looked_at(key) as passing:
            array = studio.at_hand(key, view, name, given)
            if array is not None and array.nbytes <= AT_ONCE:
                return binary(array, PASSING if passing else KEPT)
        return None

    def module(given: dict, version: str, path: str) -> Response:
        return Response(modules.source(path), media_type="text/javascript", headers=KEPT)

    def card(given: dict) -> Response:
        return Response(CARD.read_bytes(), media_type="image/jpeg", headers=KEPT)

    made = {
        "card.jpg": card,
        "modules/{version}/{path:path}": module,
        "{key}/picture/{which}": picture,
        "{key}/everything.zip": everything,
        "{key}/progress": far,
        "{key}/{view}/{name}": item,
    }
    known = {item: at_hand}
    return [_route(f"/gradio_api/vitviz/{path}", one, known.get(one)) for path, one in made.items()]


def _route(path: str, answer: Callable[..., Response], at_hand: Callable | None) -> APIRoute:
    """One that answers out of its address: what is given as its query, then the parts of its path; in a
    thread, unless it is at hand: beside others that compute, each change of threads waits for its turn.
    """

    async def asked(request: Request) -> Response:
        given, parts = dict(request.query_params), request.path_params
        found = at_hand(given, **parts) if at_hand else None
        return found or await run_in_threadpool(lambda: answered(lambda: answer(given, **parts), request))

    return APIRoute(path, asked, methods=["GET"], include_in_schema=False)


def binary(array: np.ndarray, headers: dict[str, str]) -> Response:
    """An array's numbers, with shape and type beside them."""
    described = {"X-Shape": ",".join(map(str, array.shape)), "X-Dtype": str(array.dtype), **headers}
    return Response(array.tobytes(), media_type="application/octet-stream", headers=described)


def download(data: bytes, name: str) -> Response:
    """A file: never shown in the page's own origin, whatever is in it."""
    safe = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(data, media_type="application/octet-stream", headers=safe)


def answered(answer: Callable[[], Response], request: Request) -> Response:
    """The answer, or what was wrong with the question; given up where the connection ends meanwhile."""
    try:
        with visitor.asking(request), one_answer():
            return answer()
    except Exception as error:
        status = 404 if isinstance(error, Unknown) else 422 if isinstance(error, VitvizError) else 500
        told = told_of(error)
        said = {"text": _short(told["text"]), "detail": _short(in_english(error))}
        return JSONResponse({**told, **said}, status_code=status)


def _short(sentence: str) -> str:
    """A refusal repeats what was asked for, which may be as long as an address can be."""
    sentence = re.sub(r"[\r\n]+", " ", sentence)
    return sentence if len(sentence) <= 500 else f"{sentence[:300]} … {sentence[-190:]}"
