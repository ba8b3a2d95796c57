"""The binary routes: bulk data of figures, which would be slow as JSON.

They lie under /gradio_api because elsewhere server-side rendering would answer with the page. They bypass a login of
Gradio's, so the only way in is a key that cannot be guessed.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from vitviz.errors import VitvizError
from vitviz.ui import export
from vitviz.ui.studio import Studio

KEPT = {"Cache-Control": "private, max-age=86400, immutable"}
GONE = "The server no longer knows this picture; it may have been started anew. Drop the picture in once more."


def routes(studio: Studio) -> list[APIRoute]:
    """The routes to hand to Gradio's `launch(app_kwargs={"routes": ...})`."""

    def picture(key: str, which: str) -> Response:
        return answered(
            lambda: Response(studio.image(key, which), media_type="image/png" if which == "input" else "image/jpeg", headers=KEPT)
        )

    def numbers(key: str, panel: str, request: Request) -> Response:
        return answered(lambda: _file(studio.numbers(key, panel, dict(request.query_params)), f"vitviz-{studio.panel(panel).slug}.npz"))

    def figure(key: str, request: Request) -> Response:
        return answered(lambda: _file(export.distance_page(studio, key, dict(request.query_params)).encode(), "vitviz-distance.html"))

    def table(key: str, request: Request) -> Response:
        return answered(lambda: _file(export.distance_table(studio, key, dict(request.query_params)).encode(), "vitviz-distance.csv"))

    def everything(key: str, request: Request) -> Response:
        def answer() -> Response:
            data = export.everything(studio, key, dict(request.query_params))
            return _file(data, export.file_name(studio.subject(key).inspector.checkpoint.name, ".zip"))

        return answered(answer)

    def item(key: str, panel: str, name: str, request: Request) -> Response:
        def answer() -> Response:
            array = studio.item(key, panel, name, dict(request.query_params))
            described = {"X-Shape": ",".join(map(str, array.shape)), "X-Dtype": str(array.dtype)}
            return Response(array.tobytes(), media_type="application/octet-stream", headers={**KEPT, **described})

        return answered(answer)

    base = "/gradio_api/vitviz/{key}"
    return [
        APIRoute(base + "/picture/{which}", picture, methods=["GET"], include_in_schema=False),
        APIRoute(base + "/everything.zip", everything, methods=["GET"], include_in_schema=False),
        APIRoute(base + "/distance/figure.html", figure, methods=["GET"], include_in_schema=False),
        APIRoute(base + "/distance/numbers.csv", table, methods=["GET"], include_in_schema=False),
        APIRoute(base + "/{panel}/numbers.npz", numbers, methods=["GET"], include_in_schema=False),
        APIRoute(base + "/{panel}/{name}", item, methods=["GET"], include_in_schema=False),
    ]


def _file(data: bytes, name: str) -> Response:
    """A download: never shown in the page's own origin, whatever is in it."""
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"},
    )


def answered(answer: Callable[[], Response]) -> Response:
    """The answer, or what was wrong with the question, as a sentence."""
    try:
        return answer()
    except KeyError:
        return JSONResponse({"detail": GONE}, status_code=404)
    except (VitvizError, ValueError, IndexError) as error:
        return JSONResponse({"detail": _short(str(error))}, status_code=422)


def _short(sentence: str) -> str:
    """A refusal repeats what was asked for, which may be as long as an address can be."""
    return sentence if len(sentence) <= 500 else f"{sentence[:300]} … {sentence[-190:]}"
