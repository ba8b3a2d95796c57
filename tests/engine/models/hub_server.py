"""A test server in place of the model hub: good, slow, silent, refusing, interrupted or corrupt by
repository name.

huggingface_hub reads its endpoint and cache at import, so every script runs in a process of its own. The
script imports downloads.py without its package, which would import torch.
"""

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CONTENT = bytes(range(256)) * 8000  # 2 MB
COMMIT = "c" * 40
# The start of every script. `attempt` returns the outcome of a download as a dict.
PRELUDE = f"""
import json, sys, threading, time, types
sys.path.insert(0, {str(ROOT)!r})
package = types.ModuleType("vitviz.engine")
package.__path__ = [{str(ROOT / "vitviz" / "engine")!r}]
sys.modules["vitviz.engine"] = package
from vitviz.engine.hub import downloads
from vitviz.errors import HubError

def attempt(repo, filename="model.safetensors", **options):
    start, seen = time.monotonic(), []
    try:
        path = downloads.fetch(repo, filename, lambda done, total: seen.append((done, total)), **options)
        result = {{"size": path.stat().st_size}}
    except HubError as error:
        result = {{"error": str(error), "kind": type(error).__name__}}
    cached = downloads.cached_file(repo, filename) is not None
    return result | {{"seconds": time.monotonic() - start, "seen": seen, "repo": repo, "cached": cached}}

def attempts(*calls):
    results = {{}}
    def run(repo, options): results[repo] = attempt(repo, **options)
    threads = [threading.Thread(target=run, args=call) for call in calls]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return results
"""


class Hub(BaseHTTPRequestHandler):
    """Answer the requests of huggingface_hub: HEAD and GET of /repo/resolve/revision/file."""

    protocol_version = "HTTP/1.1"
    requests: list[str] = []

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        Hub.requests.append(f"{self.command} {self.path}")
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


def run_script(code, endpoint, cache, prelude=PRELUDE, **environment):
    """Run a script in a fresh process and return the JSON of its last line."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    clean |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "no_proxy": "127.0.0.1", **environment}
    watch = (  # a script that hangs prints its position
        "import faulthandler; faulthandler.dump_traceback_later(60, exit=True)\n"
    )
    program = [sys.executable, "-c", watch + prelude + textwrap.dedent(code)]
    done = subprocess.run(program, env=clean, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
