"""Downloads from the hub: a complete file, or an error message within seconds."""

import socket

import pytest

from tests.engine.models.hub_server import CONTENT, run_script, served

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def hub():
    with served() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def results(hub, tmp_path_factory):
    """Run all downloads that need no preparation concurrently in one process."""
    cache = tmp_path_factory.mktemp("cache")
    repos = [
        "good",
        "slow",
        "silent",
        "gated",
        "private",
        "forbidden",
        "unknown",
        "busy",
        "ill",
        "empty",
        "nohub",
        "breaking",
        "lying",
    ]
    calls = [(f"some/{repo}", {}) for repo in repos] + [("some/stalling", {"stall": 1.5}), ("no such", {})]
    outcomes = run_script(f"print(json.dumps(attempts(*{calls!r})))", hub, cache)
    return {name.removeprefix("some/"): value for name, value in outcomes.items()} | {"cache": cache}


def test_download_arrives_complete_and_cached(results):
    assert results["good"]["size"] == len(CONTENT) and results["good"]["cached"]
    assert results["good"]["seen"][-1] == [len(CONTENT), len(CONTENT)]


def test_slow_download_reports_progress(results):
    done = [done for done, _ in results["slow"]["seen"]]
    assert results["slow"]["size"] == len(CONTENT)
    assert done == sorted(done) and any(0 < bytes_done < len(CONTENT) for bytes_done in done)
    assert {total for _, total in results["slow"]["seen"]} == {len(CONTENT)}


def test_silent_hub_is_reported_within_five_seconds(results):
    assert (
        "did not respond within 4.5 seconds" in results["silent"]["error"]
        and results["silent"]["seconds"] < 5
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gated", "gated: accept its conditions"),
        ("private", "HF_TOKEN"),
        ("forbidden", r"denies access to some/forbidden (403)"),
        ("unknown", "no repository some/unknown"),
        ("busy", "too many requests"),
        ("ill", "sent status 400"),
        ("empty", "no file model.safetensors"),
        ("nohub", "not as a model hub"),
        ("no such", "is not a valid repository name"),
    ],
)
def test_rejected_request_is_reported_clearly_and_quickly(kind, words, results):
    assert words in results[kind]["error"] and results[kind]["seconds"] < 5 and not results[kind]["cached"]


def test_missing_file_has_its_own_error_type(results):
    assert results["empty"]["kind"] == "NoSuchFile" and results["unknown"]["kind"] == "HubError"


def test_interrupted_download_leaves_no_cached_file(results):
    assert "was interrupted" in results["breaking"]["error"] and not results["breaking"]["cached"]


def test_stalled_download_is_given_up(results):
    assert (
        "made no progress for 1.5 seconds" in results["stalling"]["error"]
        and not results["stalling"]["cached"]
    )
    assert results["stalling"]["seconds"] < 5 and results["stalling"]["seen"][-1][0] > 0


def test_file_with_wrong_hash_is_deleted(results):
    assert "hash" in results["lying"]["error"] and not results["lying"]["cached"]
    assert not [path for path in (results["cache"] / "hub").rglob("*lying*/blobs/*") if path.is_file()]


def test_cached_file_needs_no_network(results):
    outcomes = run_script(
        "print(json.dumps([attempt('some/good'), attempt('some/other')]))",
        "http://127.0.0.1:9",
        results["cache"],
    )
    assert outcomes[0]["size"] == len(CONTENT)
    assert "cannot be reached" in outcomes[1]["error"] and outcomes[1]["seconds"] < 5


def test_offline_switch_is_respected(results):
    outcomes = run_script(
        "print(json.dumps([attempt('some/good'), attempt('some/other')]))",
        "http://127.0.0.1:9",
        results["cache"],
        HF_HUB_OFFLINE="1",
    )
    assert outcomes[0]["size"] == len(CONTENT) and "HF_HUB_OFFLINE forbids" in outcomes[1]["error"]


def test_unresponsive_socket_is_reported_within_five_seconds(tmp_path):
    with socket.socket() as unresponsive:
        unresponsive.bind(("127.0.0.1", 0))
        unresponsive.listen()
        result = run_script(
            "print(json.dumps(attempt('some/good')))",
            f"http://127.0.0.1:{unresponsive.getsockname()[1]}",
            tmp_path,
        )
    assert "did not respond" in result["error"] and result["seconds"] < 5
