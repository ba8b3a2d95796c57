"""Concurrent downloads: one per file, shared, cancelled and verified."""

import hashlib

import pytest

from tests.engine.models.hub_server import CONTENT, Hub, run_script, served


@pytest.fixture(scope="module")
def hub():
    with served() as endpoint:
        yield endpoint


@pytest.mark.processes
def test_concurrent_requests_share_download_and_one_may_leave(hub, tmp_path):
    Hub.requests.clear()
    code = """
    class Enough(Exception): pass
    def leave(done, total):
        if any(job.waiting > 1 for job in downloads._jobs.values()): raise Enough
    left = []
    def impatient():
        try: downloads.fetch("some/slow-both", "model.safetensors", leave)
        except Enough: left.append(True)
    thread = threading.Thread(target=impatient); thread.start()
    result = attempt("some/slow-both"); thread.join()
    print(json.dumps(result | {"left": left}))
    """
    result = run_script(code, hub, tmp_path)
    assert result["left"] and result["size"] == len(CONTENT)
    assert len([line for line in Hub.requests if line.startswith("GET") and "slow-both" in line]) == 1


@pytest.mark.processes
def test_abandoned_download_stops_and_leaves_no_file(hub, tmp_path):
    code = """
    class Enough(Exception): pass
    def leave(done, total): raise Enough
    try: downloads.fetch("some/slow-left", "model.safetensors", leave)
    except Enough: pass
    while downloads._jobs: time.sleep(0.05)
    print(json.dumps({"cached": downloads.cached_file("some/slow-left", "model.safetensors") is not None}))
    """
    assert run_script(code, hub, tmp_path)["cached"] is False
    assert not list((tmp_path / "hub").rglob("*.incomplete"))


def test_small_file_is_verified_by_git_hash(tmp_path):
    from vitviz.engine.hub import downloads
    from vitviz.errors import HubError

    content = b'{"architecture": "vit"}'
    job = downloads._Job(len(content), hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
    path = tmp_path / "config.json"
    path.write_bytes(content)
    downloads._verify(path, job, "config.json")
    path.write_bytes(content[:-1] + b" ")
    with pytest.raises(HubError, match="damaged"):
        downloads._verify(path, job, "config.json")
    assert not path.exists()
