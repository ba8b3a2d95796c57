"""Stopping the app removes its temporary folder and does not wait for a running pass."""

import signal
import time
import uuid
from collections.abc import Generator

import httpx
import pytest

from tests.browser.conftest import Server, event_payload

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "service"])
def test_stop_removes_uploads_and_temporary_folder(tmp_path, how):
    with Server(TMPDIR=str(tmp_path)) as running:
        (folder,) = tmp_path.glob("vitviz-*")
        response = httpx.post(f"{running.url}gradio_api/upload", files={"files": ("mine.png", b"an upload")})
        assert response.status_code == 200 and [file.read_bytes() for file in folder.rglob("mine.png")]
        running.process.send_signal(how)
        running.process.wait(20)
        output = running.output()
    assert running.process.returncode == 0 and "Traceback" not in output, output
    assert not folder.exists()


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["Ctrl-C", "service"]
)
def test_stop_does_not_wait_for_a_running_pass(tmp_path, how, status):
    with Server("--device", "cpu", TMPDIR=str(tmp_path)) as running:
        (folder,) = tmp_path.glob("vitviz-*")
        with httpx.Client(base_url=running.url, timeout=30) as http:
            session = uuid.uuid4().hex
            first, second = load_and_resize_requests(http.get("config").json())
            read_events_until(http, session, first, "process_completed").close()
            line = read_events_until(
                http, session, second, "process_starts"
            )  # a closed stream would cancel the pass
            time.sleep(0.5)  # the pass takes seconds
            running.process.send_signal(how)
            start = time.monotonic()
            running.process.wait(20)
            seconds = time.monotonic() - start
            line.close()
    assert running.process.returncode == status and seconds < 5, (running.process.returncode, seconds)
    assert not folder.exists()


def read_events_until(
    http: httpx.Client, session: str, question: dict, last: str
) -> Generator[str, None, None]:
    """Send a request and read events up to one that contains `last`. Return the open stream."""
    http.post("gradio_api/queue/join", json={**question, "session_hash": session})
    request = http.build_request("GET", "gradio_api/queue/data", params={"session_hash": session})
    lines = http.send(request, stream=True).iter_lines()
    while last not in next(lines):
        pass
    return lines


def load_and_resize_requests(config: dict) -> list[dict]:
    """Return the requests of opening the page and of choosing an input of 4,900 tokens."""
    size = next(item["id"] for item in config["components"] if item["props"].get("elem_id") == "vitviz-size")
    listeners = [item for item in config["dependencies"] if item["backend_fn"]]
    (load,) = [item for item in listeners if any(event == "load" for _, event in item["targets"])]
    (resize,) = [item for item in listeners if [size, "input"] in map(list, item["targets"])]
    return [event_payload(load, {}), event_payload(resize, {size: "560"})]
