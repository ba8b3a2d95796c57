"""What guards uploads without the door before it, as in an app that is mounted in another."""

import json
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
from gradio.state_holder import StateHolder
from gradio.utils import get_upload_folder

from tests import loops
from tests.browser.conftest import ROOT
from tests.server.conftest import event_data
from tests.tiers import sweep
from vitviz.engine.images.opening import MAX_BYTES
from vitviz.errors import ImageError
from vitviz.server import launch as starting
from vitviz.server.api.endpoints import Endpoints, _as_gradio_error
from vitviz.server.options import parse_options
from vitviz.server.page.build import build_page, launch
from vitviz.server.page.components import FileInput, ImageUpload
from vitviz.server.page.over_a_set import ImageSetPanel
from vitviz.server.security import request_context, uploads
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.server.services.sessions import Sessions
from vitviz.traces.samples import sample_image
from vitviz.views import VIEWS


@pytest.fixture
def own():
    """A folder in that of uploads, which goes with the test."""
    place = Path(get_upload_folder()) / f"test-{time.time_ns()}"
    place.mkdir(parents=True)
    yield place
    for file in place.iterdir():
        file.unlink()
    place.rmdir()


def strange(own: Path, tmp_path: Path) -> list:
    """What is no upload though somebody names it."""
    secret = tmp_path / "secret.png"
    sample_image("coffee").save(secret)
    (own / "link.png").symlink_to(secret)
    (own / "round.png").symlink_to(own / "round.png")
    os.mkfifo(own / "pipe.png")
    (own / "away").symlink_to(tmp_path)
    back = os.path.relpath(secret, own)
    named = [
        secret,
        "/dev/zero",
        "/etc/passwd",
        own,
        own.parent,
        own / "link.png",
        own / "round.png",
        own / "pipe.png",
        own / "nothing.png",
    ]
    return [
        *named,
        own / back,
        own / "away/secret.png",
        "http://127.0.0.1:9/x.png",
        "file:///etc/passwd",
        "",
        "\0",
        "x" * 10_000,
        None,
        3,
        [],
        {},
    ]


def refusal(path) -> str:
    return uploads.ADDRESS if "://" in str(path) else uploads.NOT_UPLOADED


def test_only_an_upload_is_opened(service, own, tmp_path):
    sample_image("coffee").save(own / "mine.png")
    assert service.pictures.add_upload(str(own / "mine.png"))
    for path in strange(own, tmp_path):
        with pytest.raises(uploads.NotUploaded) as refused:
            service.pictures.add_upload(path)
        assert str(refused.value) == refusal(path), path


def test_no_more_than_is_accepted_is_read(own, monkeypatch):
    (own / "huge.png").write_bytes(b"")
    os.truncate(own / "huge.png", 50 * 2**30)  # takes no room, and would be read for minutes
    tracemalloc.start()
    with pytest.raises(ImageError, match="larger than 20 MB"):
        uploads.read_upload(own / "huge.png")
    assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
    tracemalloc.stop()
    (own / "most.png").write_bytes(bytes(MAX_BYTES))
    assert len(uploads.read_upload(own / "most.png")) == MAX_BYTES


def test_what_takes_an_uploads_place_after_it_was_checked_is_not_opened(own, tmp_path, monkeypatch):
    strange(own, tmp_path)
    for path in (own, own / "pipe.png", own / "nothing.png", "/dev/zero"):
        with pytest.raises(uploads.NotUploaded):
            uploads.resolve_upload(path)
    monkeypatch.setattr(uploads, "resolve_upload", lambda path: path)
    for path in (own / "link.png", own / "nothing.png", own, "/dev/zero"):
        with pytest.raises(uploads.NotUploaded):
            uploads.read_upload(path)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(uploads.read_upload, own / "pipe.png")
        try:
            with pytest.raises(uploads.NotUploaded):
                asked.result(5)
        finally:
            os.close(os.open(own / "pipe.png", os.O_RDWR))  # whoever waits for a writer goes on


@sweep("view", [view for view in VIEWS if view.averages], quick=1, ids=lambda view: view.slug)
def test_a_survey_opens_only_uploads(service, own, tmp_path, view):
    over = ImageSetPanel(service)
    start = {"key": service.look(service.pictures.sample("coffee"), "vitviz-tiny")}
    sample_image("coffee").save(own / "mine.png")
    state, *_ = over.give(start, [str(own / "mine.png")])
    assert list(over.survey(state, event_data(view=view.slug)))[-1][0]["surveys"][view.slug]
    for path in strange(own, tmp_path):
        same, panel, _ = over.give(start, [str(own / "mine.png"), path])
        assert panel["told"]["text"] == refusal(path) and same == gr.skip()
    (own / "mine.png").unlink()
    (page,) = over.survey(state, event_data(view=view.slug))
    assert page[-1]["told"]["text"] == uploads.NOT_UPLOADED and page[0] == gr.skip()


def test_widgets_open_nothing_by_themselves(tmp_path):
    upload, pictures = ImageUpload(), FileInput("multiple")
    zero = upload.data_model(path="/dev/zero")
    assert upload.preprocess(zero) == "/dev/zero"
    assert pictures.preprocess(pictures.data_model([{"path": "/dev/zero"}])) == ["/dev/zero"]


def test_the_oldest_uploads_make_room_and_the_pages_own_stay(own, monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    files = [tmp_path / name / "file" for name in ("sample", "first", "second", "third")]
    for age, file in enumerate(reversed(files)):
        file.parent.mkdir()
        file.write_bytes(bytes(100))
        os.utime(file, (time.time() - 10 * age - 10,) * 2)
    quota = uploads.Quota(400, [str(files[0])])
    assert quota.request == 100 and quota.full(1), "the first upload looks what is there"
    quota.make_room()
    assert [file.exists() for file in files] == [True] * 4
    assert not quota.full(100) and quota.full(1)
    quota = uploads.Quota(300, [str(files[0])])
    quota.make_room()
    assert [file.exists() for file in files] == [True, False, True, True]
    os.utime(files[2], (time.time() - uploads.LIFETIME - 1,) * 2)
    quota.make_room()
    assert [file.exists() for file in files] == [True, False, False, True], "an hour is the end of any"
    os.utime(files[1].parent, (time.time() - uploads.LIFETIME - 1,) * 2)
    quota.make_room()
    assert not files[1].parent.exists(), "a folder that has been empty for so long goes as well"
    assert files[2].parent.exists() and tmp_path.exists(), "one that a file has just left may get another"


def test_a_small_disk_is_the_limit_and_what_is_in_use_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    files = [tmp_path / name for name in ("used", "oldest", "older", "newest")]
    for age, file in enumerate(reversed(files)):
        file.write_bytes(bytes(100))
        os.utime(file, (time.time() - 10 * age - 10,) * 2)
    room = [10**9]
    monkeypatch.setattr(uploads, "_free", lambda: room[0])
    quota = uploads.Quota(10**6)
    quota.make_room()
    assert not quota.full(1) and all(file.exists() for file in files)
    room[0] = 0
    assert quota.full(1), "before the limit is reached"
    with uploads.protect_files([files[0]]), uploads.protect_files([files[0]]):
        quota.make_room()
    assert [file.exists() for file in files] == [True, False, True, True]
    os.utime(files[0], (0, 0))
    with uploads.protect_files([files[0]]):
        quota.make_room()
        assert files[0].exists(), "however old"
    quota.make_room()
    assert not files[0].exists() and not uploads._used


@pytest.mark.processes
def test_what_a_killed_run_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    code = """
import sys, time
from vitviz.server.launch import ProcessFolder
folder = ProcessFolder(sys.argv[1])
print(folder.path, flush=True), time.sleep(60)
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(2)
    ]
    killed, running = (Path(run.stdout.readline().strip()) for run in runs)
    runs[0].kill(), runs[0].wait()
    strangers = [tmp_path / name for name in ("vitviz-tests-x", "vitviz-empty/uploads", "other/uploads")]
    [place.mkdir(parents=True) for place in strangers]
    (tmp_path / "vitviz-link").symlink_to(running)
    mine = starting.ProcessFolder(tmp_path)
    assert (
        not killed.exists()
        and running.exists()
        and mine.uploads.is_dir()
        and all(place.exists() for place in strangers)
    )
    mine.remove()
    assert not mine.path.exists()
    for run in runs:
        run.kill(), run.wait(), run.stdout.close()


def test_a_page_that_gradio_has_forgotten_goes_on_where_it_was(monkeypatch):
    asking = {"page": "a"}
    monkeypatch.setattr(request_context, "page_session", lambda: asking["page"])
    sessions = Sessions()
    kept = sessions.settled(sessions.with_session({"picture": "coffee"}), lambda state: [state])[0]
    assert (
        sessions.newest({}) == kept
        and sessions.settled({}, lambda state: [{**state, "size": "64"}])[0]["picture"] == "coffee"
    )
    asking["page"] = "b"
    assert sessions.newest({}) == {}
    asking["page"] = None
    assert sessions.newest({}) == {}


def test_the_page_goes_on_after_hundreds_of_other_visitors():
    """By Gradio itself, whose memory of the page is taken away."""
    service = AnalysisService(ServiceSettings(device="cpu"))
    demo = build_page(service)
    numbers = {fn.api_name: number for number, fn in demo.fns.items()}
    request = gr.Request(session_hash="mine", query_params={}, headers={})

    async def ask(name: str, data: list):
        demo.state_holder = getattr(demo, "state_holder", None)
        return await demo.process_api(
            demo.fns[numbers[name]], data, request=request, state=demo.state_holder["mine"]
        )

    def asked_for(name: str, data: list) -> dict:
        return loops.run(ask(name, data))

    StateHolder().set_blocks(demo)
    first = asked_for("first", [None, None])
    StateHolder().set_blocks(demo)  # everything is forgotten
    after = asked_for("resize", [None, "96"])
    said = json.dumps(after["data"], default=str)
    assert "coffee" in json.dumps(first["data"], default=str) and '"rows": 12' in said and "coffee" in said


def test_an_endpoint_that_fails_by_our_mistake_says_so(service, monkeypatch, caplog):
    monkeypatch.setattr(service, "look", lambda *_, **__: 1 / 0)
    with pytest.raises(gr.Error, match="server log"):
        _as_gradio_error(Endpoints(service).predict)("coffee")
    assert "ZeroDivisionError" in caplog.text


def test_many_uploads_at_once_are_counted_together():
    quota = uploads.Quota(10_000)
    quota._held = 0
    threads = [threading.Thread(target=lambda: [quota.full(1) for _ in range(1_000)]) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert quota._held == 8_000


def test_one_file_may_have_all_that_one_request_may_bring(monkeypatch):
    """A video of 57 MB was refused where a quarter of the quota, 500 MB, is promised."""
    given = {}
    queue, nothing = SimpleNamespace(), lambda *given, **named: None
    demo = SimpleNamespace(blocks={}, fns={}, _queue=queue, queue=nothing)
    demo.launch = lambda **named: given.update(named)
    monkeypatch.setattr("vitviz.server.page.build._warm_up", nothing)
    options = parse_options(["--upload-quota", "2000", "--device", "cpu"])
    launch(demo, AnalysisService(options.settings), options)
    assert given["max_file_size"] == uploads.Quota(options.upload_quota).request == 500_000_000
