"""How a running app took a hostile question: what is wrong with its answer, its time or its memory."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import httpx

from tests.browser.conftest import ROOT
from tests.security.hostile_calls import Question
from vitviz.server.api.serialization import UNEXPECTED

SECONDS, BYTES = 5, 10**9
OWN = "hostile"  # the session of all questions, unless they bring another


class Judge:
    """Asks a server (its process, and a client of it), and keeps what was wrong."""

    def __init__(self, process: int, http: httpx.Client):
        self._status = Path(f"/proc/{process}/status")
        self._forget = Path(f"/proc/{process}/clear_refs")
        self._http = http
        self.faults: list[str] = []

    def ask(self, name: str, question: Question) -> None:
        """Asks, and judges the answer."""
        self._forget.write_text("5")  # the peak begins anew
        before, start = self._memory("VmRSS"), time.monotonic()
        try:
            status, said = self._answer(question)
            wrong = wrong_in(status, said)
        except httpx.TimeoutException:
            wrong, said = ["no answer"], ""
        took, grown = time.monotonic() - start, self._memory("VmHWM") - before
        wrong += [f"{took:.1f} s"] if took > SECONDS else []
        wrong += [f"{grown / 1e6:.0f} MB"] if grown > BYTES else []
        if wrong:
            asked = str(question.json or question.content)[:200]
            self.faults.append(f"{name}: {', '.join(wrong)}; {question.path[:120]} {asked} -> {said[:300]}")

    def _memory(self, field: str) -> int:
        return 1024 * int(re.search(rf"{field}:\s+(\d+)", self._status.read_text())[1])

    def _answer(self, question: Question) -> tuple[int, str]:
        content, body = question.content, question.json
        if body is not None:
            if isinstance(body, dict) and "fn_index" in body and "queue/join" in question.path:
                body = {"session_hash": OWN, **body}
            content = json.dumps(body).encode()
        kind = {"content-type": "application/json"} if body is not None else {}
        try:
            request = self._http.build_request(
                question.method, question.path, content=content, headers=kind | question.headers
            )
            found = self._http.send(request)
        except (
            httpx.LocalProtocolError,
            httpx.InvalidURL,
            UnicodeError,
        ):  # the client itself does not send it
            return 400, "not sent"
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):  # the server hung up
            return 400, "the line was closed"
        event = _event(found) if question.event and found.status_code == 200 else None
        if event is None:
            return found.status_code, found.text
        return 200, self._heard(question, event)

    def _heard(self, question: Question, event: str) -> str:
        """What comes of an event, up to its end."""
        join = "queue/join" in question.path
        path = "gradio_api/queue/data" if join else f"{question.path}/{event}"
        heard = []
        with self._http.stream("GET", path, params={"session_hash": OWN} if join else None) as lines:
            for line in lines.iter_lines():
                heard.append(line)
                if event in line and "process_completed" in line:
                    break
        return "\n".join(one for one in heard if not join or "process_completed" in one)


def wrong_in(status: int, said: str) -> list[str]:
    """What is wrong with an answer, whatever was asked."""
    # Gradio answers what an endpoint refuses with 500, and the sentence.
    wrong = [f"status {status}"] if status >= 500 and '{"error":"' not in said else []
    for what, sign in (
        ("a mistake of ours", str(UNEXPECTED)), ("a mistake of ours", "Internal Server Error"),
        ("Python's words", "Traceback"),
        ("a path", str(ROOT)), ("a path", "site-packages"), ("another file", "root:x:"), ("no sentence",
        '"error": null'),
        ("no sentence", "event: error\ndata: null"),
    ):  # fmt: skip
        wrong += [what] if sign in said else []
    return wrong


def _event(answer: httpx.Response) -> str | None:
    try:
        return answer.json().get("event_id")
    except (ValueError, AttributeError):
        return None
