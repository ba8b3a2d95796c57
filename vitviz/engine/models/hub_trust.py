"""What a hub may say: its answers become names of files in the cache, so they are checked before the library
uses them.

Whoever plays the hub (a mirror, somebody on a line without TLS) chooses the hash and the revision that it
announces, and with "../" in one of them a file is written anywhere.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub import constants, get_session

from vitviz.errors import HubError

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's SHA-1 of a small file, SHA-256 of a large one
_REVISION = re.compile(r"[0-9a-f]{40}")
_ours = threading.local()


def require_hash(etag: str | None) -> str:
    """The announced hash of a file; HubError for none, and for what can be none."""
    if not etag:
        raise HubError(
            f"{constants.ENDPOINT} answered, but not as a model hub does. Check HF_ENDPOINT and the proxy"
            " settings."
        )
    if not _HASH.fullmatch(etag):
        raise HubError(
            f"The hub ({constants.ENDPOINT}) announces something else than a file's hash, so nothing was"
            " downloaded. Check HF_ENDPOINT."
        )
    return etag


@contextmanager
def checked_answers() -> Iterator[None]:
    """Within it, answers that this thread gets from the hub are refused with a HubError where they could lead
    out of the cache.
    """
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
