"""Download from the model hub, with time limits and checks: a call ends with a file or an error.

huggingface_hub does the work (its cache, its endpoint and its token are respected); this module adds a clock.
A socket that accepts and never answers can hold the library for minutes, so the first answer has a deadline,
and a stalled download is abandoned. Both run in threads, because nothing else limits DNS, TLS and slow
servers alike. Each file has one download at a time, shared by all callers, and is checked against the hub's
hash, because plain HTTP is not checked.

The hub's answers become file names in the cache, so they are checked before the library uses them. A mirror,
or an attacker on a connection without TLS, chooses the announced hash and revision, and "../" in either would
write a file anywhere.

This module imports neither torch nor timm.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub as hub
from filelock import FileLock, Timeout
from huggingface_hub import constants, errors

from vitviz.engine.formats.folder import HUB_FILES, is_index, read_json, shard_names
from vitviz.errors import CheckpointError, HubError, first_line, quoted

if TYPE_CHECKING:
    from vitviz.engine.checkpoint import Checkpoint

ANSWER_SECONDS = 4.5  # the page promises a sentence within 5
STALL_SECONDS = 20.0  # a download without progress for this long is abandoned
IDLE_SECONDS = 5.0  # an unlocked file without a write for this long is a leftover
OnBytes = Callable[[int, int], Any]  # bytes done, bytes in all (0 where unknown)
FileKey = tuple[str, str | None, str]  # repository, revision, file

# The library's chunks of 10 MiB would make a slow connection look stalled.
constants.DOWNLOAD_CHUNK_SIZE = 256 * 1024
# new bytes needed within the stall limit, over all retries
_STEP = 64 * 1024
_UNANNOUNCED = 20_000_000  # limit in bytes for a file whose size the hub does not announce


class NoSuchFile(HubError):
    """The repository exists, but does not have this file."""


def fetch(location: str, filename: str, progress: OnBytes | None = None, *, stall=STALL_SECONDS) -> Path:
    """Return one file of a repository, from the cache or the hub.

    A cached file needs no network.

    Args:
        location: "organisation/name" or "organisation/name@revision".
        filename: The file.
        progress: Called as `progress(done, total)` a few times a second with bytes; its exceptions end the
            wait.
        stall: Seconds without progress after which the download is abandoned.

    Raises:
        HubError: The hub does not answer (within 5 s), refuses, breaks off, stalls or sends another file.
        NoSuchFile: The repository does not have the file.

    >>> fetch("timm/vit_tiny_patch16_224.augreg_in21k", "model.safetensors")  # doctest: +SKIP
    PosixPath('…/model.safetensors')
    """
    if path := cached_file(location, filename):
        return path
    file = (*_split(location), filename)
    metadata = _file_metadata(*file)
    return _downloaded(file, metadata.size or 0, _require_hash(metadata.etag), progress, stall)


def fetch_weights(location: str, filename: str, progress: OnBytes | None = None) -> Path:
    """Return a weights file as `fetch` does; for an index also fetch all its shards.

    `progress` counts the bytes of all shards as one file. Raises NoSuchFile only if `filename` itself does
    not exist, and HubError for a missing shard.
    """
    if not filename.endswith(".index.json"):
        return fetch(location, filename, progress)
    index = fetch(location, filename)
    metadata = read_json(index).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    announced = int(size) if isinstance(size, (int, float)) else 0  # all shards, without headers
    done = 0
    for name in shard_names(index):

        def onward(got: int, size: int, before: int = done) -> None:
            if progress is not None:
                progress(before + got, max(announced, before + size))

        try:
            done += fetch(location, name, onward).stat().st_size
        except NoSuchFile as error:
            raise HubError(
                f"{error} Its {filename} refers to it, so the repository is incomplete. Choose another."
            ) from error
    return index


def cached_file(location: str, filename: str) -> Path | None:
    """Return a file's path in the hub's cache on this machine; None if it is not cached."""
    repo, revision = _split(location)
    try:
        path = hub.try_to_load_from_cache(repo, filename, revision=revision)
    except errors.HFValidationError:  # no repository can have this name; the download will say so
        return None
    return Path(path) if isinstance(path, str) else None


def cached_weights(location: str) -> Path | None:
    """Return a repository's cached weights file, or index if all shards are cached; None if there is none."""
    there = (cached_file(location, name) for name in HUB_FILES)
    return next((result for result in there if result and _all_shards_cached(location, result)), None)


def is_cached(checkpoint: Checkpoint) -> bool:
    """Return True if a checkpoint can be loaded without network."""
    if checkpoint.source != "hub":
        return Path(checkpoint.location).exists()
    return cached_weights(checkpoint.location) is not None


def cached_repositories() -> set[str]:
    """Return the ids of all repositories in the cache, read from one folder."""
    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return {folder.name.removeprefix("models--").replace("--", "/") for folder in folders}


def remove_leftovers() -> None:
    """Delete files in the cache from killed downloads, of this and of other programs that use the hub.

    A running download holds a lock on the file's name and keeps writing. On filesystems without working
    locks, the time of the last write decides.
    """
    cache = Path(constants.HF_HUB_CACHE)
    for path in cache.glob("models--*/blobs/*.incomplete"):
        lock = cache / ".locks" / path.parent.parent.name / f"{path.name.partition('.')[0]}.lock"
        with suppress(OSError, Timeout), FileLock(lock, timeout=0) if lock.exists() else nullcontext():
            if time.time() - path.stat().st_mtime > IDLE_SECONDS:
                path.unlink()


def _file_metadata(repo: str, revision: str | None, filename: str) -> Any:
    """Return the hub's metadata of a file (size, hash); raise HubError if none comes in ANSWER_SECONDS."""
    result: list[Any] = []
    patience = 2 * ANSWER_SECONDS  # the thread's own limit; the thread may end after this function

    def ask() -> None:
        try:
            url = hub.hf_hub_url(repo, filename, revision=revision)
            with _checked_answers():
                result.append(hub.get_hf_file_metadata(url, timeout=patience))
        except Exception as error:  # noqa: BLE001 - passed to the waiting thread
            result.append(error)

    thread = threading.Thread(target=ask, daemon=True, name=f"ask hub for {repo}")
    thread.start()
    thread.join(ANSWER_SECONDS)
    if not result:
        raise HubError(f"The hub ({constants.ENDPOINT}) did not respond within {ANSWER_SECONDS:g} seconds.")
    if isinstance(result[0], Exception):
        raise _in_words(result[0], repo, filename) from result[0]
    return result[0]


@dataclass
class _Job:
    """A running download. Its thread cannot be killed; without waiting callers it ends at its next byte."""

    total: int
    etag: str
    done: int = 0
    wire: int = 0
    heard: int = 0  # bytes received at the last reset of the clock
    farthest: int = 0  # bytes at the last reset of the clock
    moved: float = field(default_factory=time.monotonic)
    waiting: int = 0
    path: str = ""
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class _Abandoned(Exception):
    pass


_jobs: dict[FileKey, _Job] = {}
_lock = threading.Lock()


def _forget() -> None:
    """Clear downloads and renew the lock in a forked process, where the parent's threads do not exist."""
    global _lock
    _lock = threading.Lock()
    _jobs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _downloaded(file: FileKey, total: int, etag: str, progress: OnBytes | None, stall: float) -> Path:
    """Return the path of a file of `total` bytes and this hash; joins a running download of the file."""
    repo, _, filename = file
    with _lock:
        job = _jobs.get(file)
        if job is None:
            job = _jobs[file] = _Job(total, etag)
            name = f"download {repo}"
            threading.Thread(target=_run, args=(file, job), daemon=True, name=name).start()
        job.waiting += 1
        job.moved = time.monotonic()
    try:
        while not job.ended.wait(0.2):
            if progress is not None:
                progress(job.done, job.total)
            if time.monotonic() - job.moved > stall:
                raise HubError(
                    f"The download of {filename} of {repo} made no progress for {stall:g} seconds, after"
                    f" {job.done:,} of {job.total:,} bytes. Try again later."
                )
    finally:
        with _lock:
            job.waiting -= 1
    if isinstance(job.error, _Abandoned):  # abandoned by its other callers just before this one joined
        return _downloaded(file, total, etag, progress, stall)
    if job.error is not None:
        raise _in_words(job.error, repo, filename) from job.error
    if progress is not None:
        progress(job.total or job.done, job.total or job.done)
    return Path(job.path)


def _run(file: FileKey, job: _Job) -> None:
    """Download one file into the hub's cache, verify its hash and end the job.

    The path or the error is stored in `job`; nothing is raised.
    """
    repo, revision, filename = file
    counter = _counter(job)
    try:
        with _checked_answers():
            job.path = hub.hf_hub_download(repo, filename, revision=revision, tqdm_class=counter)
        _verify(Path(job.path), job, f"{filename} of {repo}")
    except Exception as error:  # noqa: BLE001 - passed to the waiting callers
        job.error = error
    finally:
        with _lock:
            _jobs.pop(file, None)
        job.ended.set()


def _counter(job: _Job) -> type:
    """Return a replacement for tqdm's bar that counts bytes and ends a download without waiting callers."""

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
                    " download was stopped."
                )
            # Only _STEP new bytes reset the clock, so a trickling or endlessly restarting download stalls.
            if job.done >= min(job.farthest + _STEP, job.total or _STEP):
                job.farthest, job.moved = job.done, time.monotonic()

        def update_transfer(self, count: float | None = 1) -> None:  # received, but not yet on disk
            job.wire += int(count or 0)
            # more bytes than the file has mean that the transfer restarted
            if job.heard + _STEP <= job.wire <= job.total:
                job.heard, job.moved = job.wire, time.monotonic()

        def __enter__(self) -> Any:
            return self

        def nothing(self, *_: Any, **__: Any) -> None: ...

        __exit__ = close = refresh = set_postfix_str = set_transfer_postfix_str = nothing

    return Counter


def _verify(path: Path, job: _Job, what: str) -> None:
    """Compare a file with the hub's announced hash: SHA-256 of large files, git's SHA-1 of small ones."""
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
            f"{what} arrived damaged: its hash is not the one that the hub announced. It was deleted; try"
            " again."
        )


def _all_shards_cached(location: str, weights: Path) -> bool:
    """Return True unless the weights are a shard index that is damaged or lacks a cached shard."""
    try:
        return not is_index(weights) or all(cached_file(location, name) for name in shard_names(weights))
    except CheckpointError:  # reported when it is loaded, not when it is listed
        return False


def _split(location: str) -> tuple[str, str | None]:
    """Split 'organisation/name@revision' into repository and revision; None without a revision."""
    repo, _, revision = location.partition("@")
    return repo, revision or None


def _in_words(error: Exception, repo: str, filename: str) -> HubError:
    """Return, not raise, a HubError with the cause of a failed download and the remedy."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return NoSuchFile(f"{repo} has no file {filename} on the hub.")
    page, log_in = f"{constants.ENDPOINT}/{repo}", "log in with `hf auth login` or set HF_TOKEN"
    offline = "HF_HUB_OFFLINE forbids downloads from the hub"
    private = "or it is private. Check its name; for a private one"
    for kind, sentence in (  # subclasses first
        (errors.OfflineModeIsEnabled, f"{repo} is not on this machine, and {offline}."),
        (errors.GatedRepoError, f"{repo} is gated: accept its conditions at {page}, then {log_in}."),
        (errors.RevisionNotFoundError, f"{repo} does not have the requested revision."),
        (errors.RepositoryNotFoundError, f"The hub has no repository {repo}, {private} {log_in}."),
        (
            errors.HFValidationError,
            f"{quoted(repo)} is not a valid repository name; expected organisation/name.",
        ),
        (errors.FileMetadataError, _no_hub_message()),
    ):
        if isinstance(error, kind):
            return HubError(sentence)
    if isinstance(error, errors.HfHubHTTPError):
        return HubError(_status_message(error.response.status_code, repo))
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        return _in_words(error.__cause__, repo, filename)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        detail = f"{filename} of {repo} could not be stored in the hub's cache. Make room on the server."
        return HubError(f"The disk is full: {detail}")
    return HubError(_connection_message(error, repo, filename))


def _no_hub_message() -> str:
    """Return the error sentence for an endpoint that answers, but not as a model hub."""
    proxy = "Check HF_ENDPOINT and the proxy settings"
    return f"{constants.ENDPOINT} responded, but not as a model hub does. {proxy}."


def _status_message(status: int, repo: str) -> str:
    """Return the error sentence for an HTTP status of the hub, with the remedy."""
    log_in, many = (
        "Log in with `hf auth login`",
        ("The hub has received too many requests from this address (429)"),
    )
    refused = f"The hub denies access to {repo} ({status}). {log_in}, or set HF_TOKEN to a token with access."
    return {
        401: refused, 403: refused, 404: f"The hub has no repository {repo}. Check its name.",
        429: f"{many}. Wait a few minutes before requesting {repo} again.",
    }.get(status, f"The hub sent status {status} for a request for {repo}. Try again later.")  # fmt: skip


def _connection_message(error: Exception, repo: str, filename: str) -> str:
    """Return the error sentence for a failed connection, timeout or broken-off download."""
    # httpx's errors by name, because the module's name changes with the library
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol"}:
        return f"The hub ({constants.ENDPOINT}) cannot be reached ({first_line(error)})."
    if "TimeoutException" in kinds:
        return f"The hub ({constants.ENDPOINT}) stopped responding to a request for {repo}. Try again later."
    if kinds & {"RemoteProtocolError", "ReadError"} or "Consistency check" in str(error):
        return f"The download of {filename} of {repo} was interrupted; nothing of it was kept. Try again."
    return f"{filename} of {repo} could not be downloaded: {first_line(error)}."


_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's SHA-1 of a small file, SHA-256 of a large one
_REVISION = re.compile(r"[0-9a-f]{40}")
_ours = threading.local()


def _require_hash(etag: str | None) -> str:
    """Return the announced hash of a file; raise HubError if it is missing or malformed."""
    if not etag:
        raise HubError(_no_hub_message())
    if not _HASH.fullmatch(etag):
        raise HubError(
            f"The hub ({constants.ENDPOINT}) sends something other than a file hash, so nothing was"
            " downloaded. Check HF_ENDPOINT."
        )
    return etag


@contextmanager
def _checked_answers() -> Iterator[None]:
    """Check this thread's answers from the hub: HubError for one that could lead out of the cache."""
    client = hub.get_session()
    hooks = client.event_hooks
    if _check_response not in hooks.get("response", []):
        client.event_hooks = {**hooks, "response": [*hooks.get("response", []), _check_response]}
    _ours.asking = True
    try:
        yield
    finally:
        _ours.asking = False


def _check_response(response: Any) -> None:
    """Raise HubError for an HTTP answer whose revision or file hash is malformed.

    Answers outside this thread's `_checked_answers` are ignored.
    """
    if not getattr(_ours, "asking", False):
        return
    headers = response.headers
    revision = headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT)
    if revision is not None and not _REVISION.fullmatch(revision):
        raise HubError(
            f"The hub ({constants.ENDPOINT}) sends an invalid revision, so nothing was downloaded. Check"
            " HF_ENDPOINT."
        )
    etag = headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_ETAG) or headers.get("ETag")
    if response.request.method == "HEAD" and response.status_code == 200 and etag is not None:
        _require_hash(etag.removeprefix("W/").strip('"'))
