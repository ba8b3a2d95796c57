"""Locate a checkpoint's files, fetch them from the hub, and identify their contents at loading time."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import timm
from timm.models import PretrainedCfg, get_pretrained_cfg

from vitviz.engine.checkpoint import Checkpoint, Identity
from vitviz.engine.formats import folder
from vitviz.engine.formats.folder import HUB_FILES, SUFFIXES, refusing_permission_errors, weights_file
from vitviz.engine.formats.mapping import mapping_file
from vitviz.engine.hub import downloads
from vitviz.engine.hub.catalogue import BESIDE, PREPROCESSORS
from vitviz.errors import CheckpointError


@dataclass(frozen=True)
class CheckpointFiles:
    """A weights file, its config.json ({} if absent), and the fields of transformers' image processor."""

    weights: Path
    config: Mapping[str, Any]
    preprocessor: Mapping[str, Any] | None


def files_of(checkpoint: Checkpoint, progress: downloads.OnBytes | None = None) -> CheckpointFiles:
    """Return a checkpoint's files, fetched from the hub if needed.

    Raises CheckpointError if there are no weights (any more), HubError if the hub does not deliver them.
    """
    if checkpoint.source == "hub":
        return _from_hub(checkpoint, progress)
    with refusing_permission_errors(checkpoint.name):
        weights = weights_of(checkpoint)
        if weights is None or not weights.is_file():
            place = Path(checkpoint.location).name
            raise CheckpointError(
                f"{checkpoint.name} has no weights (any more): expected {place} to be or to contain a file"
                f" ending in {', '.join(SUFFIXES)}. Restore it, or choose another checkpoint."
            )
        beside = (weights.with_name(name) for name in PREPROCESSORS)
        preprocessor = _preprocessor(folder.read_json(path) if path.is_file() else None for path in beside)
        return CheckpointFiles(weights, folder.config_beside(weights), preprocessor)


def weights_of(checkpoint: Checkpoint) -> Path | None:
    """Return the path of the weights, or their index, on this machine; None if there is none."""
    if checkpoint.source == "hub":
        return downloads.cached_weights(checkpoint.location)
    place = Path(checkpoint.location)
    return weights_file(place) if place.is_dir() else place


def timm_record(checkpoint: Checkpoint) -> PretrainedCfg | None:
    """Return timm's own record of a hub checkpoint, if it is timm's and no other architecture was requested.

    Its repository's config.json is then not needed.
    """
    architecture, of_hub = checkpoint.name.partition(".")[0], checkpoint.source == "hub"
    if not of_hub or checkpoint.architecture != architecture or not timm.is_model(architecture):
        return None
    config = get_pretrained_cfg(checkpoint.name)
    return config if config and config.hf_hub_id == checkpoint.location else None


def _from_hub(checkpoint: Checkpoint, progress: downloads.OnBytes | None) -> CheckpointFiles:
    """Return a hub checkpoint's files, fetched where not cached; raise CheckpointError without weights."""
    weights, config, preprocessor = weights_of(checkpoint), None, None
    if not timm_record(checkpoint):
        small = partial(_small, checkpoint.location, needed=weights is None)
        config = small("config.json")
        theirs = PREPROCESSORS if config and "model_type" in config else ()
        preprocessor = _preprocessor(map(small, theirs))
    for name in HUB_FILES:
        weights = weights or fetch_if_present(checkpoint.location, name, progress)
    if weights is None:
        advice = "Choose a repository with weights of timm or transformers."
        raise CheckpointError(f"{checkpoint.location} has no {' or '.join(HUB_FILES)} on the hub. {advice}")
    return CheckpointFiles(weights, config or {}, preprocessor)


def _preprocessor(configs: Iterable[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    """Return the image processor's fields from the files `PREPROCESSORS`; None if no file has any."""
    nested, own = [*configs, None, None][:2]
    nested = (nested or {}).get("image_processor")
    return nested if isinstance(nested, Mapping) else own


def _small(location: str, name: str, needed: bool) -> dict[str, Any] | None:
    """Return a small JSON file of a repository; None if it does not exist.

    Unless it is `needed`, also None if the hub cannot be reached.
    """
    try:
        path = fetch_if_present(location, name)
    except downloads.HubError:
        if needed:
            raise
        return None
    return folder.read_json(path) if path else None


def fetch_if_present(location: str, name: str, progress: downloads.OnBytes | None = None) -> Path | None:
    """Fetch a weights file or index; None if the repository does not have it."""
    try:
        return downloads.fetch_weights(location, name, progress)
    except downloads.NoSuchFile:
        return None


def identity_of(checkpoint: Checkpoint) -> Identity:
    """Return the present identity of a checkpoint's files; raise CheckpointError or OSError if missing."""
    stamps = _stamps(checkpoint)
    return Identity(_digest(stamps), stamps)


def files_unchanged(checkpoint: Checkpoint) -> bool:
    """Return True if a loaded checkpoint's files still have the same contents, or have been deleted.

    Usually compares only each file's size and times; files are read, once, only if these differ.
    """
    known = checkpoint.identity
    try:
        return known is None or known.stamps == _stamps(checkpoint) or known == identity_of(checkpoint)
    except (CheckpointError, OSError):
        return True


def _stamps(checkpoint: Checkpoint) -> tuple[tuple[str | int, ...], ...]:
    """Return by file its path, size, times and inode; the change time cannot be set back."""
    stats = [(str(path), os.stat(path)) for path in _files(checkpoint)]
    return tuple((path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for path, s in stats)


def _files(checkpoint: Checkpoint) -> list[Path]:
    """Return the weights, with all their shards, and the files read with them."""
    weights = weights_of(checkpoint)
    if weights is None:
        raise FileNotFoundError(checkpoint.name)
    if checkpoint.source == "hub":
        beside = [downloads.cached_file(checkpoint.location, name) for name in BESIDE]
    else:
        beside = [folder.config_file(weights), *map(weights.with_name, BESIDE[1:]), mapping_file(weights)]
    there = (path for path in beside if path and path.is_file())
    return [weights, *(folder.shards(weights) if folder.is_index(weights) else ()), *there]


@lru_cache(maxsize=256)
def _digest(stamps: tuple[tuple[str | int, ...], ...]) -> str:
    """Return the SHA-256 over the contents of all files, in order."""
    digest = hashlib.sha256()
    for path, size, *_ in stamps:
        digest.update(b"%s %d\n" % (os.path.basename(path).encode(), size))
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
