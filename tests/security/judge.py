"""Checks the response, time and memory of a running app for a hostile request."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import httpx

from tests.browser.conftest import ROOT
from tests.security.hostile_calls import HostileRequest
from vitviz.server.api.serialization import UNEXPECTED

SECONDS, BYTES = 5, 10**9
SESSION = "hostile"  # default session of the requests


class Judge:
    """Sends requests to a server and collects faults."""

    def __init__(self, process: int, http: httpx.Client):
        self._status = Path(f"/proc/{process}/status")
        self._forget = Path(f"/proc/{process}/clear_refs")
        self._http = http
        self.faults: list[str] = []

    def ask(self, name: str, question: HostileRequest) -> None:
        """Send a request and check the response."""
        self._forget.write_text("5")  # resets the peak memory
        before, start = self._memory("VmRSS"), time.monotonic()
        try:
            status, text = self.answer(question)
            faults = response_faults(status, text)
        except httpx.TimeoutException:
            faults, text = ["no answer"], ""
        seconds, growth = time.monotonic() - start, self._memory("VmHWM") - before
        faults += [f"{seconds:.1f} s"] if seconds > SECONDS else []
        faults += [f"{growth / 1e6:.0f} MB"] if growth > BYTES else []
        if faults:
            asked = str(question.json or question.content)[:200]
            self.faults.append(f"{name}: {', '.join(faults)}; {question.path[:120]} {asked} -> {text[:300]}")

    def _memory(self, field: str) -> int:
        return 1024 * int(re.search(rf"{field}:\s+(\d+)", self._status.read_text())[1])

    def answer(self, question: HostileRequest) -> tuple[int, str]:
        """Send a request; return the status and text of its response."""
        content, body = question.content, question.json
        if body is not None:
            if isinstance(body, dict) and "fn_index" in body and "queue/join" in question.path:
                body = {"session_hash": SESSION, **body}
            content = json.dumps(body).encode()
        kind = {"content-type": "application/json"} if body is not None else {}
        try:
            request = self._http.build_request(
                question.method, question.path, content=content, headers=kind | question.headers
            )
            response = self._http.send(request)
        except (
            httpx.LocalProtocolError,
            httpx.InvalidURL,
            UnicodeError,
        ):  # the client does not send it
            return 400, "not sent"
        except (
            httpx.RemoteProtocolError,
            httpx.ReadError,
            httpx.WriteError,
        ):  # the server closed the connection
            return 400, "the line was closed"
        event = _event(response) if question.event and response.status_code == 200 else None
        if event is None:
            return response.status_code, response.text
        return 200, self._event_messages(question, event)

    def _event_messages(self, question: HostileRequest, event: str) -> str:
        """Return the messages of an event up to its end."""
        join = "queue/join" in question.path
        path = "gradio_api/queue/data" if join else f"{question.path}/{event}"
        messages = []
        with self._http.stream("GET", path, params={"session_hash": SESSION} if join else None) as lines:
            for line in lines.iter_lines():
                messages.append(line)
                if event in line and "process_completed" in line:
                    break
        return "\n".join(one for one in messages if not join or "process_completed" in one)


def response_faults(status: int, text: str) -> list[str]:
    """Return the faults of a response to any request."""
    # Gradio responds with 500 and the message if an endpoint rejects a call.
    faults = [f"status {status}"] if status >= 500 and '{"error":"' not in text else []
    for what, sign in (
        ("a mistake of ours", str(UNEXPECTED)), ("a mistake of ours", "Internal Server Error"),
        ("Python's words", "Traceback"),
        ("a path", str(ROOT)), ("a path", "site-packages"), ("another file", "root:x:"), ("no sentence",
        '"error": null'),
        ("no sentence", "event: error\ndata: null"),
    ):  # fmt: skip
        faults += [what] if sign in text else []
    return faults


def _event(answer: httpx.Response) -> str | None:
    try:
        return answer.json().get("event_id")
    except (ValueError, AttributeError):
        return None
