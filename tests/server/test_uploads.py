"""Upload checks without the middleware, as in an app that is mounted in another."""

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
def upload_folder():
    """A folder inside the upload folder, removed after the test."""
    folder = Path(get_upload_folder()) / f"test-{time.time_ns()}"
    folder.mkdir(parents=True)
    yield folder
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def foreign_paths(upload_folder: Path, tmp_path: Path) -> list:
    """Return paths and values that are not uploads."""
    secret = tmp_path / "secret.png"
    sample_image("coffee").save(secret)
    (upload_folder / "link.png").symlink_to(secret)
    (upload_folder / "round.png").symlink_to(upload_folder / "round.png")
    os.mkfifo(upload_folder / "pipe.png")
    (upload_folder / "away").symlink_to(tmp_path)
    back = os.path.relpath(secret, upload_folder)
    named = [
        secret,
        "/dev/zero",
        "/etc/passwd",
        upload_folder,
        upload_folder.parent,
        upload_folder / "link.png",
        upload_folder / "round.png",
        upload_folder / "pipe.png",
        upload_folder / "nothing.png",
    ]
    return [
        *named,
        upload_folder / back,
        upload_folder / "away/secret.png",
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


def expected_message(path) -> str:
    return uploads.ADDRESS if "://" in str(path) else uploads.NOT_UPLOADED


def test_only_uploaded_files_are_opened(service, upload_folder, tmp_path):
    sample_image("coffee").save(upload_folder / "mine.png")
    assert service.pictures.add_upload(str(upload_folder / "mine.png"))
    for path in foreign_paths(upload_folder, tmp_path):
        with pytest.raises(uploads.NotUploaded) as error:
            service.pictures.add_upload(path)
        assert str(error.value) == expected_message(path), path


def test_oversized_upload_is_not_read_into_memory(upload_folder, monkeypatch):
    (upload_folder / "huge.png").write_bytes(b"")
    os.truncate(upload_folder / "huge.png", 50 * 2**30)  # a sparse file
    tracemalloc.start()
    with pytest.raises(ImageError, match="larger than 20 MB"):
        uploads.read_upload(upload_folder / "huge.png")
    assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
    tracemalloc.stop()
    (upload_folder / "most.png").write_bytes(bytes(MAX_BYTES))
    assert len(uploads.read_upload(upload_folder / "most.png")) == MAX_BYTES


def test_file_swapped_after_the_check_is_not_opened(upload_folder, tmp_path, monkeypatch):
    foreign_paths(upload_folder, tmp_path)
    for path in (upload_folder, upload_folder / "pipe.png", upload_folder / "nothing.png", "/dev/zero"):
        with pytest.raises(uploads.NotUploaded):
            uploads.resolve_upload(path)
    monkeypatch.setattr(uploads, "resolve_upload", lambda path: path)
    for path in (upload_folder / "link.png", upload_folder / "nothing.png", upload_folder, "/dev/zero"):
        with pytest.raises(uploads.NotUploaded):
            uploads.read_upload(path)
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(uploads.read_upload, upload_folder / "pipe.png")
        try:
            with pytest.raises(uploads.NotUploaded):
                future.result(5)
        finally:
            os.close(os.open(upload_folder / "pipe.png", os.O_RDWR))  # unblocks a reader of the pipe


@sweep("view", [view for view in VIEWS if view.scope.averages], quick=1, ids=lambda view: view.slug)
def test_survey_opens_only_uploaded_files(service, upload_folder, tmp_path, view):
    over = ImageSetPanel(service)
    start = {"key": service.look(service.pictures.sample("coffee"), "vitviz-tiny")}
    sample_image("coffee").save(upload_folder / "mine.png")
    state, *_ = over.give(start, [str(upload_folder / "mine.png")])
    assert list(over.survey(state, event_data(view=view.slug)))[-1][0]["surveys"][view.slug]
    for path in foreign_paths(upload_folder, tmp_path):
        same, panel, _ = over.give(start, [str(upload_folder / "mine.png"), path])
        assert panel["told"]["text"] == expected_message(path) and same == gr.skip()
    (upload_folder / "mine.png").unlink()
    (page,) = over.survey(state, event_data(view=view.slug))
    assert page[-1]["told"]["text"] == uploads.NOT_UPLOADED and page[0] == gr.skip()


def test_upload_components_open_no_files(tmp_path):
    upload, pictures = ImageUpload(), FileInput("multiple")
    zero = upload.data_model(path="/dev/zero")
    assert upload.preprocess(zero) == "/dev/zero"
    assert pictures.preprocess(pictures.data_model([{"path": "/dev/zero"}])) == ["/dev/zero"]


def test_quota_evicts_oldest_uploads_and_keeps_samples(upload_folder, monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    files = [tmp_path / name / "file" for name in ("sample", "first", "second", "third")]
    for age, file in enumerate(reversed(files)):
        file.parent.mkdir()
        file.write_bytes(bytes(100))
        os.utime(file, (time.time() - 10 * age - 10,) * 2)
    quota = uploads.Quota(400, [str(files[0])])
    assert quota.request == 100 and quota.full(1), "the quota ignores existing files"
    quota.make_room()
    assert [file.exists() for file in files] == [True] * 4
    assert not quota.full(100) and quota.full(1)
    quota = uploads.Quota(300, [str(files[0])])
    quota.make_room()
    assert [file.exists() for file in files] == [True, False, True, True]
    os.utime(files[2], (time.time() - uploads.LIFETIME - 1,) * 2)
    quota.make_room()
    assert [file.exists() for file in files] == [True, False, False, True], "an expired file was kept"
    os.utime(files[1].parent, (time.time() - uploads.LIFETIME - 1,) * 2)
    quota.make_room()
    assert not files[1].parent.exists(), "an expired empty folder was kept"
    assert files[2].parent.exists() and tmp_path.exists(), "a recently used folder was removed"


def test_full_disk_evicts_uploads_but_not_files_in_use(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    files = [tmp_path / name for name in ("used", "oldest", "older", "newest")]
    for age, file in enumerate(reversed(files)):
        file.write_bytes(bytes(100))
        os.utime(file, (time.time() - 10 * age - 10,) * 2)
    free_bytes = [10**9]
    monkeypatch.setattr(uploads, "_free", lambda: free_bytes[0])
    quota = uploads.Quota(10**6)
    quota.make_room()
    assert not quota.full(1) and all(file.exists() for file in files)
    free_bytes[0] = 0
    assert quota.full(1), "a full disk does not count as full"
    with uploads.protect_files([files[0]]), uploads.protect_files([files[0]]):
        quota.make_room()
    assert [file.exists() for file in files] == [True, False, True, True]
    os.utime(files[0], (0, 0))
    with uploads.protect_files([files[0]]):
        quota.make_room()
        assert files[0].exists(), "a file in use was removed"
    quota.make_room()
    assert not files[0].exists() and not uploads._used


@pytest.mark.processes
def test_folder_of_a_killed_process_is_removed_by_the_next(tmp_path):
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
    foreign_folders = [
        tmp_path / name for name in ("vitviz-tests-x", "vitviz-empty/uploads", "other/uploads")
    ]
    [place.mkdir(parents=True) for place in foreign_folders]
    (tmp_path / "vitviz-link").symlink_to(running)
    own_folder = starting.ProcessFolder(tmp_path)
    assert (
        not killed.exists()
        and running.exists()
        and own_folder.uploads.is_dir()
        and all(place.exists() for place in foreign_folders)
    )
    own_folder.remove()
    assert not own_folder.path.exists()
    for run in runs:
        run.kill(), run.wait(), run.stdout.close()


def test_session_is_restored_by_page_after_gradio_evicts_it(monkeypatch):
    request = {"page": "a"}
    monkeypatch.setattr(request_context, "page_session", lambda: request["page"])
    sessions = Sessions()
    state_before = sessions.settled(sessions.with_session({"picture": "coffee"}), lambda state: [state])[0]
    assert (
        sessions.newest({}) == state_before
        and sessions.settled({}, lambda state: [{**state, "size": "64"}])[0]["picture"] == "coffee"
    )
    request["page"] = "b"
    assert sessions.newest({}) == {}
    request["page"] = None
    assert sessions.newest({}) == {}


def test_page_state_survives_gradio_eviction():
    """Uses Gradio itself, whose session state is cleared."""
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
    StateHolder().set_blocks(demo)  # clears all sessions
    after = asked_for("resize", [None, "96"])
    texts = json.dumps(after["data"], default=str)
    assert "coffee" in json.dumps(first["data"], default=str) and '"rows": 12' in texts and "coffee" in texts


def test_internal_error_of_an_endpoint_is_reported_and_logged(service, monkeypatch, caplog):
    monkeypatch.setattr(service, "look", lambda *_, **__: 1 / 0)
    with pytest.raises(gr.Error, match="server log"):
        _as_gradio_error(Endpoints(service).predict)("coffee")
    assert "ZeroDivisionError" in caplog.text


def test_concurrent_uploads_are_counted():
    quota = uploads.Quota(10_000)
    quota._held = 0
    threads = [threading.Thread(target=lambda: [quota.full(1) for _ in range(1_000)]) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert quota._held == 8_000


def test_file_size_limit_equals_request_limit(monkeypatch):
    """A video of 57 MB was rejected although 500 MB, a quarter of the quota, is promised."""
    given = {}
    queue, nothing = SimpleNamespace(), lambda *given, **named: None
    demo = SimpleNamespace(blocks={}, fns={}, _queue=queue, queue=nothing)
    demo.launch = lambda **named: given.update(named)
    monkeypatch.setattr("vitviz.server.page.build._warm_up", nothing)
    options = parse_options(["--upload-quota", "2000", "--device", "cpu"])
    launch(demo, AnalysisService(options.settings), options)
    assert given["max_file_size"] == uploads.Quota(options.upload_quota).request == 500_000_000
