"""An app that ends leaves nothing of its visitors behind, and takes nothing from another one."""

import signal
import time
import uuid
from collections.abc import Generator

import httpx
import pytest

from tests.browser.conftest import Server, event_payload

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "service"])
def test_files_lie_in_a_folder_of_the_app_and_go_with_it(tmp_path, how):
    with Server(TMPDIR=str(tmp_path)) as running:
        (own,) = tmp_path.glob("vitviz-*")
        sent = httpx.post(f"{running.url}gradio_api/upload", files={"files": ("mine.png", b"an upload")})
        assert sent.status_code == 200 and [file.read_bytes() for file in own.rglob("mine.png")]
        running.process.send_signal(how)
        running.process.wait(20)
        said = running.said()
    assert running.process.returncode == 0 and "Traceback" not in said, said
    assert not own.exists()


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["Ctrl-C", "service"]
)
def test_a_pass_that_runs_is_not_waited_for(tmp_path, how, status):
    with Server("--device", "cpu", TMPDIR=str(tmp_path)) as running:
        (own,) = tmp_path.glob("vitviz-*")
        with httpx.Client(base_url=running.url, timeout=30) as http:
            session = uuid.uuid4().hex
            first, second = opening_and_resizing(http.get("config").json())
            heard(http, session, first, "process_completed").close()
            line = heard(http, session, second, "process_starts")  # hung up, it would be given up
            time.sleep(0.5)  # of a pass of seconds
            running.process.send_signal(how)
            start = time.monotonic()
            running.process.wait(20)
            took = time.monotonic() - start
            line.close()
    assert running.process.returncode == status and took < 5, (running.process.returncode, took)
    assert not own.exists()


def heard(http: httpx.Client, session: str, question: dict, last: str) -> Generator[str, None, None]:
    """Asks, and listens until something is said; the line, open until it is closed."""
    http.post("gradio_api/queue/join", json={**question, "session_hash": session})
    request = http.build_request("GET", "gradio_api/queue/data", params={"session_hash": session})
    lines = http.send(request, stream=True).iter_lines()
    while last not in next(lines):
        pass
    return lines


def opening_and_resizing(config: dict) -> list[dict]:
    """What a browser asks as it opens the page, and as somebody chooses an input of 4,900 tokens."""
    size = next(one["id"] for one in config["components"] if one["props"].get("elem_id") == "vitviz-size")
    listeners = [one for one in config["dependencies"] if one["backend_fn"]]
    (load,) = [one for one in listeners if any(event == "load" for _, event in one["targets"])]
    (resize,) = [one for one in listeners if [size, "input"] in map(list, one["targets"])]
    return [event_payload(load, {}), event_payload(resize, {size: "560"})]
