"""Hubs that send wrong hashes, revisions and sizes, or never finish. Hashes and revisions become names of
files.
"""

import os

import pytest

from tests.engine.models.hub_server import COMMIT, CONTENT, Hub, run_script, served

pytestmark = pytest.mark.processes


class LyingHub(Hub):
    """A hub whose behaviour depends on the repository's name. `second…` lies only from the second request
    on.
    """

    times: dict[str, int] = {}

    def send(self, kind, body):
        LyingHub.times[self.path] = LyingHub.times.get(self.path, 0) + (self.command == "HEAD")
        lies = not kind.startswith("second") or LyingHub.times[self.path] > 1
        etag = "../../../../outside" if "hash" in kind and lies else "weak" if kind == "strange" else "a" * 64
        commit = "../../../../elsewhere" if "revision" in kind and lies else COMMIT
        announced = len(CONTENT) // 100 if kind == "longer" and not body else len(CONTENT)
        self.send_response(200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", commit)
        # sends the first part and disconnects, every time from the beginning
        if kind == "anew" and body:
            self.send_header("Content-Length", str(announced))
            self.end_headers()
            self.wfile.write(CONTENT[:600_000])
            self.close_connection = True
            return
        self.send_header("Content-Length", str(announced))
        self.end_headers()
        if body:
            self.wfile.write(CONTENT)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    cache = tmp_path_factory.mktemp("deep") / "a" / "b" / "cache"
    kinds = ["hash", "strange", "revision", "secondhash", "secondrevision", "longer"]
    calls = [(f"some/{kind}", {}) for kind in kinds] + [("some/anew", {"stall": 3.0})]
    with served(LyingHub) as endpoint:
        return run_script(f"print(json.dumps(attempts(*{calls!r})))", endpoint, cache) | {"cache": cache}


@pytest.mark.parametrize("kind", ["hash", "strange", "secondhash"])
def test_invalid_hash_is_rejected_before_naming_a_file(kind, results):
    result = results[f"some/{kind}"]
    assert "something other than a file hash" in result["error"] and not result["cached"]


@pytest.mark.parametrize("kind", ["revision", "secondrevision"])
def test_invalid_revision_is_rejected_before_naming_a_folder(kind, results):
    assert "an invalid revision" in results[f"some/{kind}"]["error"]


def test_lying_hub_writes_nothing_outside_cache(results):
    root = results["cache"].parent.parent.parent
    written = [os.path.join(place, name) for place, _, names in os.walk(root) for name in names]
    assert written and all(path.startswith(f"{results['cache']}{os.sep}") for path in written)
    assert not [path for path in written if "outside" in path or "elsewhere" in path]


def test_body_longer_than_announced_is_cut_off(results):
    result = results["some/longer"]
    assert (
        f"more than the {len(CONTENT) // 100:,} bytes that it announced" in result["error"]
        and not result["cached"]
    )


def test_endlessly_restarting_download_is_given_up(results):
    assert (
        "made no progress for 3 seconds" in results["some/anew"]["error"]
        and results["some/anew"]["seconds"] < 8
    )
