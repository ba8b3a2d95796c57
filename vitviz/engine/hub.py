"""Downloads from the model hub that end: with a file, or with a sentence within seconds.

huggingface_hub does the work (its cache, its endpoint and its token are respected); what is added here is a clock. A
socket that accepts and never answers can hold the library for minutes, so the first answer has a deadline of its own,
and a download that stands still is given up. Both run in threads, because nothing else bounds DNS, TLS and trickling
servers alike. A file is checked against the hub's hash before it is handed out, which plain HTTP downloads are not.

This module imports neither torch nor timm.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from vitviz.engine.hub_errors import NoSuchFile, in_words
from vitviz.errors import HubError

if TYPE_CHECKING:
    from vitviz.engine.checkpoint import Checkpoint

ANSWER_SECONDS = 4.5  # the page promises a sentence within 5
STALL_SECONDS = 20.0  # no byte for so long: given up
# In the order in which timm and transformers prefer them.
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")

Progress = Callable[[int, int], Any]  # bytes done, bytes in all (0 where unknown)

# The library hands bytes on in chunks of 10 MiB, between which a slow line looks like a dead one.
constants.DOWNLOAD_CHUNK_SIZE = 256 * 1024


def fetch(location: str, filename: str, progress: Progress | None = None, token: str | None = None, stall: float = STALL_SECONDS) -> Path:
    """One file of a repository ("organisation/name" or "organisation/name@revision"), from the cache or the hub.

    Already cached: no network. `progress(done, total)` is called a few times a second with bytes; what it raises ends
    the waiting. Raises HubError within 5 s where the hub does not answer, later where it refuses, breaks off, stands
    still for `stall` seconds or sends something else than it announced; NoSuchFile where the file does not exist.

    >>> fetch("timm/vit_tiny_patch16_224.augreg_in21k", "model.safetensors")  # doctest: +SKIP
    PosixPath('…/model.safetensors')
    """
    found = cached(location, filename)
    if found:
        return found
    repo, revision = _split(location)
    metadata = _answer(repo, revision, filename, token)
    path = _download(repo, revision, filename, metadata.size or 0, progress, token, stall)
    _verify(path, metadata.etag, f"{filename} of {location}")
    return path


def cached(location: str, filename: str) -> Path | None:
    """Where a file lies in the hub's cache on this machine; None where it does not."""
    repo, revision = _split(location)
    try:
        found = try_to_load_from_cache(repo, filename, revision=revision)
    except HFValidationError:  # no repository can have this name; the download will say so
        return None
    return Path(found) if isinstance(found, str) else None


def cached_weights(location: str) -> Path | None:
    """The same for whichever weights file of a repository lies in the cache."""
    return next((found for name in WEIGHT_FILES if (found := cached(location, name))), None)


def is_cached(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint can be loaded without any network."""
    return cached_weights(checkpoint.location) is not None if checkpoint.source == "hub" else Path(checkpoint.location).exists()


def cached_repositories() -> set[str]:
    """The ids of all repositories of which anything lies in the cache, read from one folder."""
    try:
        folders = [entry.name for entry in Path(constants.HF_HUB_CACHE).iterdir()]
    except OSError:
        return set()
    return {name.removeprefix("models--").replace("--", "/") for name in folders if name.startswith("models--")}


@dataclass
class _Job:
    """A download on its way. Its thread cannot be killed: without anybody waiting it ends at its next byte."""

    total: int
    done: int = 0
    moved: float = field(default_factory=time.monotonic)
    waiting: int = 0
    path: str = ""
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class _Abandoned(Exception):
    pass


_jobs: dict[tuple[str, str | None, str], _Job] = {}
_lock = threading.Lock()


def _answer(repo: str, revision: str | None, filename: str, token: str | None) -> Any:
    """The hub's first answer about a file (size, hash), or HubError within ANSWER_SECONDS."""
    result: list[Any] = []

    def ask() -> None:
        try:
            result.append(get_hf_file_metadata(hf_hub_url(repo, filename, revision=revision), token=token, timeout=ANSWER_SECONDS))
        except Exception as error:  # noqa: BLE001 - handed over to the waiting thread
            result.append(error)

    thread = threading.Thread(target=ask, daemon=True, name=f"ask hub for {repo}")
    thread.start()
    thread.join(ANSWER_SECONDS)
    if not result:
        raise HubError(f"The hub ({constants.ENDPOINT}) did not answer within {ANSWER_SECONDS:g} seconds.")
    if isinstance(result[0], Exception):
        raise in_words(result[0], repo, filename) from result[0]
    return result[0]


def _download(repo: str, revision: str | None, filename: str, total: int, progress: Progress | None, token: str | None, stall: float) -> Path:
    """Waits for a download, which it joins where the same file is on its way already."""
    key = (repo, revision, filename)
    with _lock:
        job = _jobs.get(key)
        if job is None:
            job = _jobs[key] = _Job(total)
            threading.Thread(target=_run, args=(key, job, token), daemon=True, name=f"download {repo}").start()
        job.waiting += 1
        job.moved = time.monotonic()
    try:
        while not job.ended.wait(0.2):
            if progress is not None:
                progress(job.done, job.total)
            if time.monotonic() - job.moved > stall:
                raise HubError(f"The download of {filename} of {repo} stood still for {stall:g} seconds, {job.done:,} of {job.total:,} bytes in. Try again later.")
    finally:
        with _lock:
            job.waiting -= 1
    if isinstance(job.error, _Abandoned):  # left by others just before we came
        return _download(repo, revision, filename, total, progress, token, stall)
    if job.error is not None:
        raise in_words(job.error, repo, filename) from job.error
    if progress is not None:
        progress(job.total or job.done, job.total or job.done)
    return Path(job.path)


def _run(key: tuple[str, str | None, str], job: _Job, token: str | None) -> None:
    repo, revision, filename = key
    try:
        job.path = hf_hub_download(repo, filename, revision=revision, token=token, tqdm_class=_counter(job))
    except Exception as error:  # noqa: BLE001 - handed over to whoever waits
        job.error = error
    finally:
        with _lock:
            _jobs.pop(key, None)
        job.ended.set()


def _counter(job: _Job) -> type:
    """A stand-in for tqdm's bar that counts bytes for the page, and ends a download that nobody waits for."""

    class Counter:
        def __init__(self, *_: Any, total: float | None = None, **__: Any):
            self.total = total

        def update(self, count: float | None = 1) -> None:
            if job.waiting == 0:
                raise _Abandoned
            job.done, job.moved = job.done + int(count or 0), time.monotonic()

        def update_transfer(self, count: float | None = 1) -> None:  # on the wire, but not yet on disk
            job.moved = time.monotonic()

        def __enter__(self) -> Any:
            return self

        def nothing(self, *_: Any, **__: Any) -> None: ...

        __exit__ = close = refresh = set_postfix_str = set_transfer_postfix_str = nothing

    return Counter


def _verify(path: Path, etag: str | None, what: str) -> None:
    """Compares a file with the hash that the hub announced: SHA-256 for large files, git's SHA-1 for small ones."""
    etag = etag or ""
    digest = {64: hashlib.sha256(), 40: hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)}.get(len(etag))
    if digest is None:  # a mirror with hashes of its own kind; the size has been checked
        return
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != etag:
        blob = path.resolve()
        path.unlink(missing_ok=True)
        blob.unlink(missing_ok=True)
        raise HubError(f"{what} arrived damaged: its hash is not the one that the hub announced. It was thrown away; try again.")


def _split(location: str) -> tuple[str, str | None]:
    repo, _, revision = location.partition("@")
    return repo, revision or None


__all__ = ["NoSuchFile", "cached", "cached_repositories", "cached_weights", "fetch", "is_cached"]
