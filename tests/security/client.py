"""Requests of an untrusted client."""

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


def upload(http, data: bytes, name: str = "mine.png") -> str:
    return http.post("gradio_api/upload", files={"files": (name, data)}).json()[0]


def listener(config: dict, element: str, event: str) -> int:
    """Return the number of the listener for an event of an element."""
    component = next(one["id"] for one in config["components"] if one["props"].get("elem_id") == element)
    return next(
        one["id"]
        for one in config["dependencies"]
        if [component, event] in [list(target) for target in one["targets"]] and one["backend_fn"]
    )


def queue_response(http, number: int, data: list, **more) -> tuple[int, str]:
    """Send a request through the queue, and return status and response text."""
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


def file_forms(path: str) -> list[dict]:
    """Return a path in every form in which Gradio has accepted files."""
    return [
        {"path": path},
        {"path": path, "meta": {}},
        {"path": path, "meta": {"_type": "other"}},
        {"path": path, "meta": MARK},
        {"path": path, "url": "http://127.0.0.1:9/x", "meta": MARK},
        {"path": path, "is_stream": True, "meta": MARK},
        {"path": path, "orig_name": "mine.png", "is_file": True, "name": path, "data": None},
    ]
