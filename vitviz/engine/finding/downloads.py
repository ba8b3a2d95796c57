"""One download at a time of each file, shared by all who wait for it, given up when it stands still."""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_hub_download

from vitviz.engine.finding.hub_answers import checked_answers, in_words
from vitviz.errors import HubError

Progress = Callable[[int, int], Any]  # bytes done, bytes in all (0 where unknown)
Wanted = tuple[str, str | None, str]  # repository, revision, file

# The library hands bytes on in chunks of 10 MiB, between which a slow line looks like a dead one.
constants.DOWNLOAD_CHUNK_SIZE = 256 * 1024
# bytes that must be new within the time that a download may stand still, all retries together
_STEP = 64 * 1024
_UNANNOUNCED = 20_000_000  # bytes of a file whose size the hub does not tell


@dataclass
class _Job:
    """A download on its way. Its thread cannot be killed: with nobody waiting it ends at its next byte."""

    total: int
    etag: str
    done: int = 0
    wire: int = 0
    heard: int = 0  # the same on the wire
    farthest: int = 0  # the bytes at which the clock was last set back
    moved: float = field(default_factory=time.monotonic)
    waiting: int = 0
    path: str = ""
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class _Abandoned(Exception):
    pass


_jobs: dict[Wanted, _Job] = {}
_lock = threading.Lock()


def _forget() -> None:
    """In a forked process nobody goes on with what the parent's threads had begun, or opens their lock."""
    global _lock
    _lock = threading.Lock()
    _jobs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def download(
    wanted: Wanted, total: int, etag: str, progress: Progress | None, token: str | None, stall: float
) -> Path:
    """Where the file lies once it is there and its hash is right; joins a download of it on its way.

    `total` in bytes and `etag` are what the hub announced. Raises HubError where it breaks off, is damaged,
    or brings no byte for `stall` seconds; what `progress` raises goes through.
    """
    repo, _, filename = wanted
    with _lock:
        job = _jobs.get(wanted)
        if job is None:
            job = _jobs[wanted] = _Job(total, etag)
            name, told = f"download {repo}", (wanted, job, token)
            threading.Thread(target=_run, args=told, daemon=True, name=name).start()
        job.waiting += 1
        job.moved = time.monotonic()
    try:
        while not job.ended.wait(0.2):
            if progress is not None:
                progress(job.done, job.total)
            if time.monotonic() - job.moved > stall:
                raise HubError(
                    f"The download of {filename} of {repo} stood still for {stall:g} seconds, "
                    f"{job.done:,} of {job.total:,} bytes in. Try again later."
                )
    finally:
        with _lock:
            job.waiting -= 1
    if isinstance(job.error, _Abandoned):  # left by others just before we came
        return download(wanted, total, etag, progress, token, stall)
    if job.error is not None:
        raise in_words(job.error, repo, filename) from job.error
    if progress is not None:
        progress(job.total or job.done, job.total or job.done)
    return Path(job.path)


def _run(wanted: Wanted, job: _Job, token: str | None) -> None:
    repo, revision, filename = wanted
    counter = _counter(job)
    try:
        with checked_answers():
            job.path = hf_hub_download(repo, filename, revision=revision, token=token, tqdm_class=counter)
        _verify(Path(job.path), job, f"{filename} of {repo}")
    except Exception as error:  # noqa: BLE001 - handed over to whoever waits
        job.error = error
    finally:
        with _lock:
            _jobs.pop(wanted, None)
        job.ended.set()


def _counter(job: _Job) -> type:
    """A stand-in for tqdm's bar that counts bytes for the page, and ends a download that nobody waits for."""

    class Counter:
        def __init__(self, *_: Any, total: float | None = None, **__: Any):
            self.total = total

        def update(self, count: float | None = 1) -> None:
            if job.waiting == 0:
                raise _Abandoned
            job.done += int(count or 0)
            if job.done > (job.total or _UNANNOUNCED):
                raise HubError(
                    f"The hub sends more than the {job.total or _UNANNOUNCED:,} bytes that it announced; the"
                    " download was cut off."
                )
            # A line that trickles, or begins anew for ever, gets no farther: only many new bytes count.
            if job.done >= min(job.farthest + _STEP, job.total or _STEP):
                job.farthest, job.moved = job.done, time.monotonic()

        def update_transfer(self, count: float | None = 1) -> None:  # on the wire, but not yet on disk
            job.wire += int(count or 0)
            if job.heard + _STEP <= job.wire <= job.total:  # more than all of it has begun anew
                job.heard, job.moved = job.wire, time.monotonic()

        def __enter__(self) -> Any:
            return self

        def nothing(self, *_: Any, **__: Any) -> None: ...

        __exit__ = close = refresh = set_postfix_str = set_transfer_postfix_str = nothing

    return Counter


def _verify(path: Path, job: _Job, what: str) -> None:
    """Compares a file with the hash that the hub told: SHA-256 of large files, git's SHA-1 of small ones."""
    git = b"blob %d\0" % path.stat().st_size
    digest = hashlib.sha256() if len(job.etag) == 64 else hashlib.sha1(git, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            job.moved = time.monotonic()
    if digest.hexdigest() != job.etag:
        blob = path.resolve()
        path.unlink(missing_ok=True)
        blob.unlink(missing_ok=True)
        raise HubError(
            f"{what} arrived damaged: its hash is not the one that the hub announced. It was thrown away; try"
            " again."
        )
