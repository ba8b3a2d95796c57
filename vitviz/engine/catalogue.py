"""Which checkpoints there are, and which one a name means.

First the folder `weights/`: what vitviz ships and what the user dropped in. Then timm's pretrained plain ViTs, which
the hub delivers. Listing reads folders, small JSON files and timm's registry; it builds no model and asks no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import timm
from timm.models import PretrainedCfg, get_deprecated_models, get_pretrained_cfg

from vitviz.engine import hub, training_data
from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.families import architectures, require_plain
from vitviz.engine.formats.folder import config_beside, weights_file
from vitviz.engine.formats.weights import SUFFIXES, shapes
from vitviz.errors import CheckpointError

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_STEP = re.compile(r"step-(\d+)\.safetensors")


def checkpoints(folder: str | PathLike | None = None) -> list[Checkpoint]:
    """Everything that can be picked: shipped, dropped into `folder` (default: see `weights_folder`), then the hub's.

    >>> [c.name for c in checkpoints() if c.source == "shipped"]
    ['vitviz-tiny']
    """
    cached = hub.cached_repositories()
    return [*_local(weights_folder(folder)), *(replace(c, on_disk=c.location in cached and hub.is_cached(c)) for c in _on_hub())]


def names_on_disk(folder: str | PathLike | None = None) -> list[str]:
    """The names of the checkpoints that can be loaded without any network."""
    return [checkpoint.name for checkpoint in checkpoints(folder) if checkpoint.on_disk]


def weights_folder(folder: str | PathLike | None = None) -> Path:
    """Where checkpoints are dropped: `folder`, else $VITVIZ_WEIGHTS, else weights/ beside the package, else ./weights."""
    if folder or os.environ.get("VITVIZ_WEIGHTS"):
        return Path(folder or os.environ["VITVIZ_WEIGHTS"]).expanduser()
    beside = Path(__file__).resolve().parents[2] / "weights"
    return beside if beside.is_dir() else Path("weights")


def find(name: str, folder: str | PathLike | None = None, architecture: str | None = None, trusted: bool = True) -> Checkpoint:
    """The checkpoint that a name means.

    A name is one of `checkpoints(folder)`, a timm name with or without its tag, a step of a training film
    ("vitviz-tiny@3000"), a hub id ("timm/…", "hf-hub:…", "organisation/name@revision"), or the path of a folder or
    file. A name from a stranger is not `trusted`: it can only be one that is listed, never a path or another
    repository. `architecture` (timm's name) takes precedence over what the checkpoint says of itself. Raises
    CheckpointError for an unknown name, with those that are close; UnsupportedModel for one that is no plain ViT.

    >>> find("vit_base_patch16_224.augreg_in21k").trained_on
    'ImageNet-21k'
    """
    if architecture:
        require_plain(architecture)
    local = list(_local(weights_folder(folder)))
    found = _listed_locally(name, local) or _registered(name, trusted)
    if found is None and trusted:
        found = _elsewhere(name)
    if found is None:
        names = [checkpoint.name for checkpoint in local] + list(_on_hub_by_name()) + architectures()
        close = get_close_matches(name, names, n=4, cutoff=0.5)
        here = ", ".join([checkpoint.name for checkpoint in local] + ["timm's names such as vit_base_patch16_224"])
        instead = f"Close to it: {', '.join(close)}." if close else f"There are {here}."
        raise CheckpointError(f"There is no checkpoint {name!r}. {instead}")
    return replace(found, architecture=architecture) if architecture else found


def snapshots(checkpoint: Checkpoint) -> list[tuple[int, Path]]:
    """The steps of a checkpoint's training film with their files, first step first; empty where there is none."""
    root = Path(checkpoint.location) / "snapshots"
    if checkpoint.source == "hub" or not root.is_dir():
        return []
    return sorted((int(step[1]), path) for path in root.iterdir() if (step := _STEP.fullmatch(path.name)) and _inside(path, root))


def snapshot(checkpoint: Checkpoint, step: int) -> Checkpoint:
    """One step of a training film as a checkpoint of its own. Raises CheckpointError for a step that was not kept."""
    kept = dict(snapshots(checkpoint))
    if step not in kept:
        steps = ", ".join(map(str, kept)) or "none"
        raise CheckpointError(f"{checkpoint.name} has no snapshot of step {step}; kept are: {steps}.")
    return replace(checkpoint, name=f"{checkpoint.name}@{step}", location=str(kept[step]), note=f"After {step:,} steps of training.")


# ----- weights/


def _local(root: Path) -> Iterator[Checkpoint]:
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        # A link may point anywhere on the machine; what the page offers stays inside of the folder.
        if entry.name.startswith(".") or not _inside(entry, root):
            continue
        weights = weights_file(entry) if entry.is_dir() else entry if entry.name.endswith(SUFFIXES) else None
        if weights is not None and _inside(weights, root):
            yield _described(entry, weights, "shipped" if entry.is_dir() and entry.name.startswith("vitviz-") else "local")


def _described(path: Path, weights: Path, source: Any) -> Checkpoint:
    """A checkpoint from its config.json alone; a config that cannot be read becomes its note."""
    parameters = sum(map(prod, shapes(weights).values())) or None
    blank = Checkpoint(path.name, None, source, str(path), parameters=parameters)
    try:
        config = config_beside(weights)
        nested = config.get("pretrained_cfg") or {}
        about = {**{ours: nested.get(timms) for ours, timms in (("licence", "license"), ("note", "description"))}, **(config.get("vitviz") or {})}
        return replace(
            blank,
            architecture=config.get("architecture"),
            input_size=_input_size(config),
            trained_on=str(about.get("trained_on") or training_data.in_words(nested.get("tag") or "")),
            licence=str(about.get("licence") or about.get("license") or ""),
            paper=str(about.get("paper") or _joined(nested.get("paper_ids"))),
            note=str(about.get("note") or ""),
        )
    except CheckpointError as error:
        return replace(blank, note=str(error))
    except (TypeError, ValueError, AttributeError) as error:
        return replace(blank, note=f"Its config.json cannot be understood ({error}).")


def _input_size(config: dict[str, Any]) -> tuple[int, int, int] | None:
    """Channels, height, width as a config tells them: timm's model_args before its pretrained_cfg, or transformers' keys."""
    args, nested = config.get("model_args") or {}, config.get("pretrained_cfg") or {}
    channels, *size = nested.get("input_size") or config.get("input_size") or (3,)
    given = args.get("img_size") or config.get("image_size") or size
    if not given:
        return None
    height, width = (given, given) if isinstance(given, int) else given
    return int(args.get("in_chans") or config.get("num_channels") or channels), int(height), int(width)


def _listed_locally(name: str, local: list[Checkpoint]) -> Checkpoint | None:
    base, _, step = name.partition("@")
    by_name = {checkpoint.name: checkpoint for checkpoint in local}
    found = by_name.get(name) or by_name.get(base if step.isdecimal() else name)
    if found is None:  # a file without its ending, where that is not ambiguous
        alike = [checkpoint for checkpoint in local if any(checkpoint.name == name + suffix for suffix in SUFFIXES)]
        return alike[0] if len(alike) == 1 else None
    return snapshot(found, int(step)) if found.name != name else found


# ----- timm's registry and the hub


@lru_cache(maxsize=1)
def _on_hub() -> tuple[Checkpoint, ...]:
    """timm's pretrained plain ViTs, family by family. A few have weights elsewhere than on the hub; they are left out."""
    names = [name for one in architectures() for name in timm.list_models(one, pretrained=True)]
    records = ((name, get_pretrained_cfg(name)) for name in names)
    return tuple(_from_record(name, record) for name, record in records if record and record.hf_hub_id)


@lru_cache(maxsize=1)
def _on_hub_by_name() -> dict[str, Checkpoint]:
    return {checkpoint.name: checkpoint for checkpoint in _on_hub()}


def _from_record(name: str, record: PretrainedCfg) -> Checkpoint:
    return Checkpoint(
        name=name,
        architecture=name.partition(".")[0],
        source="hub",
        location=str(record.hf_hub_id),
        input_size=tuple(record.input_size),
        trained_on=training_data.in_words(record.tag or ""),
        licence=record.license or "",
        paper=_joined(record.paper_ids),
        note=" ".join(filter(None, (record.description, *(record.notes or ())))),
        on_disk=False,
    )


def _registered(name: str, trusted: bool) -> Checkpoint | None:
    """A timm name, with or without its tag, or the hub id of one. Raises for a name of timm's that is not to be had."""
    plain = re.sub(r"^(hf[-_]hub:)?(timm/)?", "", name)
    plain = get_deprecated_models().get(plain) or plain
    architecture, _, tag = plain.partition(".")
    if "/" in plain or not timm.is_model(architecture):
        return None
    require_plain(architecture)
    known = _on_hub_by_name()
    record = get_pretrained_cfg(architecture)
    if not tag and record is not None:
        plain = f"{architecture}.{record.tag}" if record.tag else architecture
    if plain in known:
        return replace(known[plain], on_disk=hub.is_cached(known[plain]))
    if trusted and name != plain and "/" in name:  # a repository of timm's that is newer than this timm
        return None
    tags = [one for one in known if one.partition(".")[0] == architecture]
    raise CheckpointError(f"timm has no trained weights {plain!r} on the hub. Of {architecture} there are: {', '.join(tags) or 'none'}.")


def _elsewhere(name: str) -> Checkpoint | None:
    """A path on this machine, or a repository on the hub."""
    path = Path(name.removeprefix("local-dir:")).expanduser()
    try:
        there = path.exists()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if there:
        weights = weights_file(path) if path.is_dir() else path
        if weights is None or not weights.name.endswith(SUFFIXES):
            raise CheckpointError(f"{path.name} holds no checkpoint: expected one file ending in {', '.join(SUFFIXES)}, best model.safetensors with a config.json.")
        return _described(path, weights, "local")
    if name.endswith(SUFFIXES) or name.startswith((".", "~", os.sep, "local-dir:")):
        raise CheckpointError(f"There is no file or folder {name!r}. Check the path.")
    repository = re.sub(r"^hf[-_]hub:", "", name)
    if not _HUB_ID.fullmatch(repository):
        return None
    found = Checkpoint(repository, None, "hub", repository)
    return replace(found, on_disk=hub.is_cached(found))


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


def _joined(ids: Any) -> str:
    return ids if isinstance(ids, str) else ", ".join(ids or ())
