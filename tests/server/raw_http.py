"""Unnormalised HTTP requests, and a weights folder with symlinks that lead out of it."""

import http.client
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlparse

ROOT = Path(__file__).parents[2]
SECRET = "what lies beside the weights"
WEIGHTS = ("config.json", "model.safetensors")


def folder_with_symlinks(weights: Path, outside: Path) -> tuple[Path, Path]:
    """Create a weights folder with symlinks that lead out of it. Return it and the folder outside."""
    for folder in (weights / "vitviz-tiny", weights / "half", weights / "other half", outside / "theirs"):
        folder.mkdir()
        for name in WEIGHTS:
            shutil.copy(ROOT / "weights/vitviz-tiny" / name, folder)
    (outside / "secret.txt").write_text(SECRET)
    (weights / "whole").symlink_to(outside / "theirs")
    (weights / "file.safetensors").symlink_to(outside / "theirs/model.safetensors")
    for folder, name in (("half", "model.safetensors"), ("other half", "config.json")):
        (weights / folder / name).unlink()
        (weights / folder / name).symlink_to(outside / "theirs" / name)
    (weights / "secret.txt").symlink_to(outside / "secret.txt")
    return weights, outside


@contextmanager
def raw_client(url: str) -> Iterator[Callable[[str], tuple[int, str, bytes]]]:
    """Return a function that requests a path verbatim. An HTTP library would normalise the path."""
    connection = http.client.HTTPConnection(urlparse(url).netloc, timeout=30)

    def get(path: str):
        connection.putrequest("GET", quote(path, safe="/%?=&.:;,+-_~"), skip_accept_encoding=True)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.getheader("content-type") or "", response.read()

    yield get
    connection.close()


def expect_rejected(answer, path: str) -> None:
    status, kind, body = answer
    assert 400 <= status < 500, f"{status} for {path[:120]}"
    detail = json.loads(body)["detail"] if "json" in kind else body.decode()
    assert len(detail) <= 500 and SECRET not in detail and "root:" not in detail, path
