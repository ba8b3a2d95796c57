"""A script before Gradio's own: Gradio inserts its `head=` only after it has chosen its language."""

from __future__ import annotations


class FirstScript:
    """ASGI middleware that puts a script at the beginning of the <head> of every HTML page."""

    def __init__(self, app, script: str):
        self._app, self._script = app, f"<head><script>{script}</script>".encode()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/gradio_api") or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        start, body = None, b""

        async def pass_on(message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_page(message):
                start = message  # kept until its length is known
            elif start is None or message["type"] != "http.response.body":
                await send(message)
            else:
                body += message.get("body", b"")
                if message.get("more_body"):
                    return
                whole = body.replace(b"<head>", self._script, 1)
                headers = [pair for pair in start["headers"] if pair[0].lower() != b"content-length"]
                await send({**start, "headers": [*headers, (b"content-length", str(len(whole)).encode())]})
                await send({"type": "http.response.body", "body": whole})

        await self._app(scope, receive, pass_on)


def _is_page(message) -> bool:
    headers = {name.lower(): value for name, value in message["headers"]}
    return headers.get(b"content-type", b"").startswith(b"text/html") and b"content-encoding" not in headers
