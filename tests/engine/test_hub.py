"""The hub, played by a small server of our own: good, slow, silent, refusing, gone, breaking off, lying.

The library reads its endpoint and cache when it is imported, so each scene runs in a process of its own; hub.py is
imported without its package there, which would import torch.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 8000  # 2 MB
COMMIT = "c" * 40

# Stands at the top of every scene: `attempt` prints what came of a fetch as JSON.
PRELUDE = f"""
import json, sys, threading, time, types
sys.path.insert(0, {str(ROOT)!r})
package = types.ModuleType("vitviz.engine")
package.__path__ = [{str(ROOT / "vitviz" / "engine")!r}]
sys.modules["vitviz.engine"] = package
from vitviz.engine import downloads, hub
from vitviz.errors import HubError

def attempt(repo, filename="model.safetensors", **options):
    start, seen = time.monotonic(), []
    try:
        path = hub.fetch(repo, filename, lambda done, total: seen.append((done, total)), **options)
        result = {{"size": path.stat().st_size}}
    except HubError as error:
        result = {{"error": str(error), "kind": type(error).__name__}}
    return result | {{"seconds": time.monotonic() - start, "seen": seen, "repo": repo, "cached": hub.cached(repo, filename) is not None}}

def attempts(*calls):
    results = {{}}
    def run(repo, options): results[repo] = attempt(repo, **options)
    threads = [threading.Thread(target=run, args=call) for call in calls]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return results
"""


class Hub(BaseHTTPRequestHandler):
    """What huggingface_hub asks of the real one: HEAD and GET of /repo/resolve/revision/file, and little else."""

    protocol_version = "HTTP/1.1"
    asked: list[str] = []

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        Hub.asked.append(f"{self.command} {self.path}")
        if "/resolve/" not in self.path:
            return self.refuse(404, "")
        repo, _, rest = self.path[1:].partition("/resolve/")
        kind = repo.partition("/")[2].partition("-")[0]
        if kind == "silent":
            time.sleep(12)
            return
        refusals = {
            "gated": (403, "GatedRepo"),
            "private": (401, ""),
            "forbidden": (403, ""),
            "unknown": (404, "RepoNotFound"),
            "busy": (429, ""),
            "ill": (400, ""),
        }
        if kind in refusals:
            return self.refuse(*refusals[kind])
        if kind == "empty":
            return self.refuse(404, "EntryNotFound")
        if kind == "nohub":
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send(kind, body)

    def refuse(self, status, code):
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def content(self):
        return CONTENT

    def send(self, kind, body):
        content = self.content()
        digest = hashlib.sha256(content).hexdigest() if kind != "lying" else "0" * 64
        start = int(self.headers["Range"][6:].partition("-")[0]) if body and "Range" in self.headers else 0
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{digest}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if not body:
            return
        half = len(content) // 2
        if kind == "breaking":
            self.wfile.write(content[start:half])
            self.close_connection = True
        elif kind == "stalling":
            self.wfile.write(content[start:half])
            self.wfile.flush()
            time.sleep(5)
            self.close_connection = True
        elif kind == "slow":
            for offset in range(0, len(content), half // 4):
                self.wfile.write(content[offset : offset + half // 4])
                self.wfile.flush()
                time.sleep(0.2)
        else:
            self.wfile.write(content[start:])


@contextmanager
def served(handler=Hub):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def scene(code, endpoint, cache, prelude=PRELUDE, **environment):
    """Runs a scene in a fresh process and returns the JSON that it prints last."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    clean |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "no_proxy": "127.0.0.1", **environment}
    watch = "import faulthandler; faulthandler.dump_traceback_later(60, exit=True)\n"  # a scene that hangs says where
    program = [sys.executable, "-c", watch + prelude + textwrap.dedent(code)]
    done = subprocess.run(program, env=clean, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def hub():
    with served() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def results(hub, tmp_path_factory):
    """All scenes that need nothing of their own, at the same time in one process."""
    cache = tmp_path_factory.mktemp("cache")
    repos = ["good", "slow", "silent", "gated", "private", "forbidden", "unknown", "busy", "ill", "empty", "nohub", "breaking", "lying"]
    calls = [(f"some/{repo}", {}) for repo in repos] + [("some/stalling", {"stall": 1.5}), ("no such", {})]
    found = scene(f"print(json.dumps(attempts(*{calls!r})))", hub, cache)
    return {name.removeprefix("some/"): value for name, value in found.items()} | {"cache": cache}


def test_good_download_arrives_whole_and_is_cached(results):
    assert results["good"]["size"] == len(CONTENT) and results["good"]["cached"]
    assert results["good"]["seen"][-1] == [len(CONTENT), len(CONTENT)]


def test_slow_download_tells_its_bytes_on_the_way(results):
    done = [done for done, _ in results["slow"]["seen"]]
    assert results["slow"]["size"] == len(CONTENT)
    assert done == sorted(done) and any(0 < bytes_done < len(CONTENT) for bytes_done in done)
    assert {total for _, total in results["slow"]["seen"]} == {len(CONTENT)}


def test_silent_hub_is_told_within_five_seconds(results):
    assert "did not answer within 4.5 seconds" in results["silent"]["error"] and results["silent"]["seconds"] < 5


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gated", "gated: accept its conditions"),
        ("private", "HF_TOKEN"),
        ("forbidden", r"refuses access to some/forbidden (403)"),
        ("unknown", "no repository some/unknown"),
        ("busy", "too many requests"),
        ("ill", "answered 400"),
        ("empty", "no file model.safetensors"),
        ("nohub", "not as a model hub"),
        ("no such", "cannot be a repository's name"),
    ],
)
def test_refusals_are_clear_and_quick(kind, words, results):
    assert words in results[kind]["error"] and results[kind]["seconds"] < 5 and not results[kind]["cached"]


def test_only_a_missing_file_is_told_apart_so_that_another_can_be_tried(results):
    assert results["empty"]["kind"] == "NoSuchFile" and results["unknown"]["kind"] == "HubError"


def test_download_that_breaks_off_leaves_nothing_that_looks_whole(results):
    assert "broke off" in results["breaking"]["error"] and not results["breaking"]["cached"]


def test_download_that_stands_still_is_given_up(results):
    assert "stood still for 1.5 seconds" in results["stalling"]["error"] and not results["stalling"]["cached"]
    assert results["stalling"]["seconds"] < 5 and results["stalling"]["seen"][-1][0] > 0


def test_wrong_hash_is_thrown_away(results):
    assert "hash" in results["lying"]["error"] and not results["lying"]["cached"]
    assert not [path for path in (results["cache"] / "hub").rglob("*lying*/blobs/*") if path.is_file()]


def test_what_is_cached_needs_no_network(results):
    found = scene("print(json.dumps([attempt('some/good'), attempt('some/other')]))", "http://127.0.0.1:9", results["cache"])
    assert found[0]["size"] == len(CONTENT)
    assert "cannot be reached" in found[1]["error"] and found[1]["seconds"] < 5


def test_offline_switch_is_respected(results):
    found = scene(
        "print(json.dumps([attempt('some/good'), attempt('some/other')]))", "http://127.0.0.1:9", results["cache"], HF_HUB_OFFLINE="1"
    )
    assert found[0]["size"] == len(CONTENT) and "HF_HUB_OFFLINE forbids" in found[1]["error"]


def test_socket_that_accepts_and_never_answers_is_told_within_five_seconds(tmp_path):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        found = scene("print(json.dumps(attempt('some/good')))", f"http://127.0.0.1:{deaf.getsockname()[1]}", tmp_path)
    assert "did not answer" in found["error"] and found["seconds"] < 5


def test_two_who_want_the_same_share_one_download_and_one_leaving_does_not_end_it(hub, tmp_path):
    Hub.asked.clear()
    code = """
    class Enough(Exception): pass
    def leave(done, total):
        if any(job.waiting > 1 for job in downloads._jobs.values()): raise Enough
    left = []
    def impatient():
        try: hub.fetch("some/slow-both", "model.safetensors", leave)
        except Enough: left.append(True)
    thread = threading.Thread(target=impatient); thread.start()
    result = attempt("some/slow-both"); thread.join()
    print(json.dumps(result | {"left": left}))
    """
    found = scene(code, hub, tmp_path)
    assert found["left"] and found["size"] == len(CONTENT)
    assert len([line for line in Hub.asked if line.startswith("GET") and "slow-both" in line]) == 1


def test_a_download_that_nobody_waits_for_ends_and_leaves_nothing(hub, tmp_path):
    code = """
    class Enough(Exception): pass
    def leave(done, total): raise Enough
    try: hub.fetch("some/slow-left", "model.safetensors", leave)
    except Enough: pass
    while downloads._jobs: time.sleep(0.05)
    print(json.dumps({"cached": hub.cached("some/slow-left", "model.safetensors") is not None}))
    """
    assert scene(code, hub, tmp_path)["cached"] is False
    assert not list((tmp_path / "hub").rglob("*.incomplete"))


def test_small_files_are_checked_against_gits_hash(tmp_path):
    from vitviz.engine import downloads
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


LOAD = """
import json, os, torch, urllib.request
from vitviz.engine.catalogue import checkpoints, find
from vitviz.engine.loading import load
from vitviz.errors import HubError
seen = []
loaded = load(find("test_vit.r160_in1k"), progress=lambda done, total: seen.append(done))
mine = load(find("someone/mine"))
try:
    refused = load(find("deit_tiny_patch16_224")) and ""
except HubError as error:
    refused = str(error)
try:
    urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/asked-for-the-second-time")
except OSError:
    load(find("someone/mine")), load(find("test_vit.r160_in1k"))
print(json.dumps({
    "logits": loaded.model(torch.ones(1, 3, 160, 160)).flatten()[:4].tolist(), "labels": len(loaded.labels), "seen": seen[-1],
    "mine": mine.model(torch.ones(1, 3, 32, 32)).flatten().tolist(), "mine_labels": mine.labels, "refused": refused,
    "on_disk": [c.name for c in checkpoints() if c.on_disk and c.source == "hub"],
}))
"""


def test_a_timm_name_and_a_strangers_repository_load_from_the_hub(tmp_path):
    import timm
    import torch
    from safetensors.torch import save

    theirs = timm.create_model("test_vit", pretrained=False).eval()
    mine = timm.create_model("test_vit", pretrained=False, img_size=32, num_classes=3).eval()
    config = {"architecture": "test_vit", "num_classes": 3, "model_args": {"img_size": 32}, "label_names": ["a", "b", "c"]}
    weights = {model: save({name: value.contiguous() for name, value in model.state_dict().items()}) for model in (theirs, mine)}

    class TwoRepositories(Hub):
        def send(self, kind, body):
            if "deit" in self.path or "preprocessor" in self.path:
                return self.refuse(404, "EntryNotFound" if "preprocessor" in self.path else "RepoNotFound")
            super().send(kind, body)

        def content(self):
            return json.dumps(config).encode() if self.path.endswith(".json") else weights[mine if "mine" in self.path else theirs]

    Hub.asked.clear()
    with served(TwoRepositories) as endpoint:
        found = scene(LOAD, endpoint, tmp_path, prelude=f"import sys; sys.path.insert(0, {str(ROOT)!r})\n")
    assert Hub.asked[-1] == "GET /asked-for-the-second-time"  # what was loaded once needs no hub any more
    with torch.no_grad():
        assert found["logits"] == pytest.approx(theirs(torch.ones(1, 3, 160, 160)).flatten()[:4].tolist(), abs=1e-5)
        assert found["mine"] == pytest.approx(mine(torch.ones(1, 3, 32, 32)).flatten().tolist(), abs=1e-5)
    assert found["labels"] == 1000 and found["mine_labels"] == ["a", "b", "c"] and found["seen"] == len(weights[theirs])
    assert "test_vit.r160_in1k" in found["on_disk"]
    assert "no repository" in found["refused"] and "On this machine:" in found["refused"] and "test_vit.r160_in1k" in found["refused"]
