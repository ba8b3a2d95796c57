"""What a hub may say, and what the hub library's errors mean for the person at the page.

Its answers become names of files in the cache, so they are checked before the library uses them: whoever
plays the hub (a mirror, somebody on a line without TLS) chooses the hash and the revision that it announces,
and with "../" in one of them a file is written anywhere.
"""

import errno
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub import constants, errors, get_session

from vitviz.errors import HubError, said


class NoSuchFile(HubError):
    """The repository exists, but not this file in it."""


def in_words(error: Exception, repo: str, filename: str) -> HubError:
    """The HubError that says what went wrong with a file of a repository, and what to do."""
    if isinstance(error, HubError):
        return error
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return NoSuchFile(f"{repo} has no file {filename} on the hub.")
    page, log_in = f"{constants.ENDPOINT}/{repo}", "log in with `hf auth login` or set HF_TOKEN"
    offline = "HF_HUB_OFFLINE forbids to ask the hub for it"
    private = "or it is private. Check its name; for a private one"
    for kind, sentence in (  # what is more special first
        (errors.OfflineModeIsEnabled, f"{repo} is not on this machine, and {offline}."),
        (errors.GatedRepoError, f"{repo} is gated: accept its conditions at {page}, then {log_in}."),
        (errors.RevisionNotFoundError, f"{repo} does not have the revision that was asked for."),
        (errors.RepositoryNotFoundError, f"The hub has no repository {repo}, {private} {log_in}."),
        (errors.HFValidationError, f"{repo!r} cannot be a repository's name; expected is organisation/name."),
        (errors.FileMetadataError, _no_hub()),
    ):
        if isinstance(error, kind):
            return HubError(sentence)
    if isinstance(error, errors.HfHubHTTPError):
        return HubError(_status(error.response.status_code, repo))
    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        return in_words(error.__cause__, repo, filename)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return HubError(
            f"The disk is full: {filename} of {repo} could not be stored in the hub's cache. Make room on the"
            " server."
        )
    return HubError(_connection(error, repo, filename))


def _no_hub() -> str:
    proxy = "Check HF_ENDPOINT and the proxy settings"
    return f"{constants.ENDPOINT} answered, but not as a model hub does. {proxy}."


def _status(status: int, repo: str) -> str:
    log_in, many = "Log in with `hf auth login`", "The hub has had too many requests from here (429)"
    refused = (
        f"The hub refuses access to {repo} ({status}). {log_in}, or set HF_TOKEN to a token that may read it."
    )
    return {
        401: refused, 403: refused, 404: f"The hub has no repository {repo}. Check its name.",
        429: f"{many}. Wait a few minutes before asking for {repo} again.",
    }.get(status, f"The hub answered {status} when asked for {repo}. Try again later.")  # fmt: skip


def _connection(error: Exception, repo: str, filename: str) -> str:
    # httpx's, whose module's name changes with the library
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol"}:
        return f"The hub ({constants.ENDPOINT}) cannot be reached from here ({said(error)})."
    if "TimeoutException" in kinds:
        return f"The hub ({constants.ENDPOINT}) stopped answering when asked for {repo}. Try again later."
    if kinds & {"RemoteProtocolError", "ReadError"} or "Consistency check" in str(error):
        return f"The download of {filename} of {repo} broke off half-way; nothing of it was kept. Try again."
    return f"{filename} of {repo} could not be downloaded: {said(error)}."


_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's SHA-1 of a small file, SHA-256 of a large one
_REVISION = re.compile(r"[0-9a-f]{40}")
_ours = threading.local()


def require_hash(etag: str | None) -> str:
    """The announced hash of a file; HubError for none, and for what can be none."""
    if not etag:
        raise HubError(_no_hub())
    if not _HASH.fullmatch(etag):
        raise HubError(
            f"The hub ({constants.ENDPOINT}) announces something else than a file's hash, so nothing was"
            " downloaded. Check HF_ENDPOINT."
        )
    return etag


@contextmanager
def checked_answers() -> Iterator[None]:
    """Within it, this thread's answers of the hub may not lead out of the cache: HubError."""
    client = get_session()
    hooks = client.event_hooks
    if _check not in hooks.get("response", []):
        client.event_hooks = {**hooks, "response": [*hooks.get("response", []), _check]}
    _ours.asking = True
    try:
        yield
    finally:
        _ours.asking = False


def _check(response: Any) -> None:
    if not getattr(_ours, "asking", False):
        return
    headers = response.headers
    revision = headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT)
    if revision is not None and not _REVISION.fullmatch(revision):
        raise HubError(
            f"The hub ({constants.ENDPOINT}) names a revision that can be none, so nothing was downloaded."
            " Check HF_ENDPOINT."
        )
    etag = headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_ETAG) or headers.get("ETag")
    if response.request.method == "HEAD" and response.status_code == 200 and etag is not None:
        require_hash(etag.removeprefix("W/").strip('"'))
