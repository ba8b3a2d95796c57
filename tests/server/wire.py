"""Questions to a server as they are written, and a weights folder that leads out of itself."""

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


def linked(weights: Path, outside: Path) -> tuple[Path, Path]:
    """A weights folder with links that lead out of it, and what they lead to."""
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
def wire(url: str) -> Iterator[Callable[[str], tuple[int, str, bytes]]]:
    """Asks for a path as it is: an HTTP library would tidy it up first."""
    line = http.client.HTTPConnection(urlparse(url).netloc, timeout=30)

    def get(path: str):
        line.putrequest("GET", quote(path, safe="/%?=&.:;,+-_~"), skip_accept_encoding=True)
        line.endheaders()
        response = line.getresponse()
        return response.status, response.getheader("content-type") or "", response.read()

    yield get
    line.close()


def refused(answer, path: str) -> None:
    status, kind, body = answer
    assert 400 <= status < 500, f"{status} for {path[:120]}"
    said = json.loads(body)["detail"] if "json" in kind else body.decode()
    assert len(said) <= 500 and SECRET not in said and "root:" not in said, path
