"""Downloads from the model hub that end: with a file, or with a sentence within seconds.

huggingface_hub does the work (its cache, its endpoint and its token are respected); what is added here is a
clock. A socket that accepts and never answers can hold the library for minutes, so the first answer has a
deadline of its own, and a download that stands still is given up. Both run in threads, because nothing else
bounds DNS, TLS and trickling servers alike. A file is checked against the hub's hash, as plain HTTP's is not.

This module imports neither torch nor timm.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

from vitviz.engine.finding.downloads import Progress, download
from vitviz.engine.finding.hub_answers import NoSuchFile, checked_answers, in_words, require_hash
from vitviz.engine.reading.folder import HUB_FILES, is_index, listed, read_json
from vitviz.errors import CheckpointError, HubError

if TYPE_CHECKING:
    from vitviz.engine.checkpoint import Checkpoint

ANSWER_SECONDS = 4.5  # the page promises a sentence within 5
STALL_SECONDS = 20.0  # no byte for so long: given up


def fetch(
    location: str, filename: str, progress: Progress | None = None, token: str | None = None, *, stall=None
) -> Path:
    """One file of a repository ("organisation/name" or "organisation/name@revision"), from cache or hub.

    Already cached: no network. `progress(done, total)` is called a few times a second with bytes; what it
    raises ends the waiting. Raises HubError within 5 s where the hub does not answer, later where it refuses,
    breaks off, stands still for `stall` seconds or sends something else; NoSuchFile where there is none.

    >>> fetch("timm/vit_tiny_patch16_224.augreg_in21k", "model.safetensors")  # doctest: +SKIP
    PosixPath('…/model.safetensors')
    """
    if found := cached(location, filename):
        return found
    wanted = (*_split(location), filename)
    told = _answer(*wanted, token)
    return download(wanted, told.size or 0, require_hash(told.etag), progress, token, stall or STALL_SECONDS)


def fetch_weights(
    location: str, filename: str, progress: Progress | None = None, token: str | None = None
) -> Path:
    """A weights file like `fetch`; an index with all its shards, whose bytes are told as those of one file.

    Raises NoSuchFile only where `filename` itself does not exist, and HubError for a shard that does not.
    """
    if not filename.endswith(".index.json"):
        return fetch(location, filename, progress, token)
    index = fetch(location, filename, token=token)
    announced, done = _total_size(index), 0
    for name in listed(index):

        def onward(got: int, size: int, before: int = done) -> None:
            if progress is not None:
                progress(before + got, max(announced, before + size))

        try:
            done += fetch(location, name, onward, token).stat().st_size
        except NoSuchFile as error:
            raise HubError(
                f"{error} Its {filename} names it, so the repository is not whole. Choose another."
            ) from error
    return index


def cached(location: str, filename: str) -> Path | None:
    """Where a file lies in the hub's cache on this machine; None where it does not."""
    repo, revision = _split(location)
    try:
        found = try_to_load_from_cache(repo, filename, revision=revision)
    except HFValidationError:  # no repository can have this name; the download will say so
        return None
    return Path(found) if isinstance(found, str) else None


def cached_weights(location: str) -> Path | None:
    """The same for whichever weights file of a repository lies in the cache; an index with all its shards."""
    there = (cached(location, name) for name in HUB_FILES)
    return next((found for found in there if found and _whole(location, found)), None)


def is_cached(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint can be loaded without any network."""
    if checkpoint.source != "hub":
        return Path(checkpoint.location).exists()
    return cached_weights(checkpoint.location) is not None


def cached_repositories() -> set[str]:
    """The ids of all repositories of which anything lies in the cache, read from one folder."""
    try:
        folders = [entry.name.partition("models--") for entry in Path(constants.HF_HUB_CACHE).iterdir()]
    except OSError:
        return set()
    return {name.replace("--", "/") for before, mark, name in folders if mark and not before}


def _answer(repo: str, revision: str | None, filename: str, token: str | None) -> Any:
    """The hub's first answer about a file (size, hash), or HubError within ANSWER_SECONDS."""
    result: list[Any] = []
    patience = 2 * ANSWER_SECONDS  # of the thread that asks: it ends some day, after we have spoken

    def ask() -> None:
        try:
            url = hf_hub_url(repo, filename, revision=revision)
            with checked_answers():
                result.append(get_hf_file_metadata(url, token=token, timeout=patience))
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


def _whole(location: str, weights: Path) -> bool:
    try:
        return not is_index(weights) or all(cached(location, name) for name in listed(weights))
    except CheckpointError:  # to be told when it is loaded, not when it is listed
        return False


def _total_size(index: Path) -> int:
    """The bytes of all shards as the index announces them, headers left out; 0 where it does not."""
    metadata = read_json(index).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(size) if isinstance(size, (int, float)) else 0


def _split(location: str) -> tuple[str, str | None]:
    repo, _, revision = location.partition("@")
    return repo, revision or None
