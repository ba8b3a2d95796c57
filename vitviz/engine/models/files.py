"""The files of a checkpoint, fetched from the hub where they are not on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import timm
from timm.models import PretrainedCfg, get_pretrained_cfg

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.models import hub
from vitviz.engine.models.formats.folder import (
    HUB_FILES,
    SUFFIXES,
    config_beside,
    permitted,
    read_json,
    weights_file,
)
from vitviz.errors import CheckpointError


@dataclass(frozen=True)
class Files:
    """A weights file, the config.json that belongs to it ({} for none), and transformers'
    preprocessor_config.json.
    """

    weights: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    preprocessor: Mapping[str, Any] | None = None


def files_of(checkpoint: Checkpoint, progress: hub.Progress | None = None, token: str | None = None) -> Files:
    """Raises CheckpointError where there are no weights (any more), HubError where the hub does not deliver
    them.
    """
    if checkpoint.source == "hub":
        return _from_hub(checkpoint, progress, token)
    path = Path(checkpoint.location)
    with permitted(checkpoint.name):
        weights = weights_file(path) if path.is_dir() else path
        there = weights is not None and weights.is_file()
    if weights is None or not there:
        raise CheckpointError(
            f"{checkpoint.name} has no weights (any more): expected {path.name} to be or to hold a file"
            f" ending in {', '.join(SUFFIXES)}. Put it back, or choose another checkpoint."
        )
    beside = weights.parent / "preprocessor_config.json"
    with permitted(checkpoint.name):
        return Files(weights, config_beside(weights), read_json(beside) if beside.is_file() else None)


def registered(checkpoint: Checkpoint) -> PretrainedCfg | None:
    """timm's own record of a hub checkpoint, where it is one of timm's and no other architecture was asked
    for.

    Its repository's config.json is then not needed.
    """
    architecture = checkpoint.name.partition(".")[0]
    if (
        checkpoint.source != "hub"
        or checkpoint.architecture != architecture
        or not timm.is_model(architecture)
    ):
        return None
    config = get_pretrained_cfg(checkpoint.name)
    return config if config and config.hf_hub_id == checkpoint.location else None


def _from_hub(checkpoint: Checkpoint, progress: hub.Progress | None, token: str | None) -> Files:
    fetch = partial(hub.fetch, checkpoint.location, token=token)
    weights = hub.cached_weights(checkpoint.location)
    config = preprocessor = None
    if not registered(checkpoint):
        small = partial(_small, fetch, needed=weights is None)
        config = small("config.json")
        preprocessor = small("preprocessor_config.json") if config and "model_type" in config else None
    for name in HUB_FILES:
        weights = weights or _if_there(partial(hub.fetch_weights, checkpoint.location, name, progress, token))
    if weights is None:
        raise CheckpointError(
            f"{checkpoint.location} has no {' or '.join(HUB_FILES)} on the hub. "
            "Choose a repository with weights of timm or transformers."
        )
    return Files(weights, config or {}, preprocessor)


def _small(fetch: Callable[[str], Path], name: str, needed: bool) -> dict[str, Any] | None:
    """A small file of a repository; where it is not `needed`, a hub that cannot be reached is as good as
    none.
    """
    try:
        path = _if_there(partial(fetch, name))
    except hub.HubError:
        if needed:
            raise
        return None
    return read_json(path) if path else None


def _if_there(fetch: Callable[[], Path]) -> Path | None:
    try:
        return fetch()
    except hub.NoSuchFile:
        return None
