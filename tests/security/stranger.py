"""What a stranger sends."""

from __future__ import annotations

import io
import json
import uuid

from PIL import Image

MARK = {"_type": "gradio.FileData"}


def picture(colour=(200, 1, 3), size=(64, 64)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def sent(http, data: bytes, name: str = "mine.png") -> str:
    return http.post("gradio_api/upload", files={"files": (name, data)}).json()[0]


def listener(config: dict, element: str, event: str) -> int:
    """The number of the listener to an element's event, in a page's config."""
    component = next(one["id"] for one in config["components"] if one["props"].get("elem_id") == element)
    return next(
        one["id"]
        for one in config["dependencies"]
        if [component, event] in [list(target) for target in one["targets"]] and one["backend_fn"]
    )


def answer(http, number: int, data: list, **more) -> tuple[int, str]:
    """Status and everything that is said of a question that goes through the queue, as the page's do."""
    session = uuid.uuid4().hex
    joined = http.post(
        "gradio_api/queue/join", json={"fn_index": number, "data": data, "session_hash": session, **more}
    )
    if joined.status_code != 200:
        return joined.status_code, joined.text
    with http.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as events:
        for line in events.iter_lines():
            message = json.loads(line[5:]) if line.startswith("data:") else {}
            if message.get("msg") == "process_completed":
                return 200, json.dumps(message)
    raise AssertionError("the queue ended without an answer")


def forms(path: str) -> list[dict]:
    """A path in all the ways in which Gradio has taken files, with and without its mark."""
    return [
        {"path": path},
        {"path": path, "meta": {}},
        {"path": path, "meta": {"_type": "other"}},
        {"path": path, "meta": MARK},
        {"path": path, "url": "http://127.0.0.1:9/x", "meta": MARK},
        {"path": path, "is_stream": True, "meta": MARK},
        {"path": path, "orig_name": "mine.png", "is_file": True, "name": path, "data": None},
    ]
