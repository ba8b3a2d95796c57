"""Which checkpoints there are, and which one a name means.

First the folder `weights/`: what vitviz ships and what the user dropped in. Then timm's pretrained plain
ViTs, which the hub delivers. Listing reads folders, small JSON files and timm's registry, and no network.
"""

import json
import os
import re
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from os import PathLike
from pathlib import Path

import timm
from timm.models import PretrainedCfg, get_deprecated_models, get_pretrained_cfg

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.finding import hub
from vitviz.engine.finding.local import described, in_folder, in_words, joined, named, weights_folder
from vitviz.engine.reading.families import architectures, require_plain
from vitviz.engine.reading.folder import SUFFIXES, permitted, weights_file
from vitviz.engine.reading.given import split
from vitviz.errors import CheckpointError

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


def checkpoints(folder: str | PathLike | None = None) -> list[Checkpoint]:
    """Everything that can be picked: shipped, dropped into `folder` (see `weights_folder`), then the hub's.

    >>> "vitviz-tiny" in [c.name for c in checkpoints() if c.source == "shipped"]
    True
    """
    cached = hub.cached_repositories()
    return [
        *in_folder(weights_folder(folder)),
        *(replace(c, on_disk=c.location in cached and hub.is_cached(c)) for c in _on_hub().values()),
    ]


def find(
    name: str, folder: str | PathLike | None = None, architecture: str | None = None, trusted: bool = True
) -> Checkpoint:
    """The checkpoint that a name means.

    A name is one of `checkpoints(folder)`, a timm name with or without its tag, a step of a training film
    ("vitviz-tiny@3000"), a hub id ("timm/…", "hf-hub:…", "organisation/name@revision"), or the path of a
    folder or file; what ends like a file or holds a separator and is there is that path. A name from a
    stranger is not `trusted`: it can only be one that is listed, never a path or another repository.
    Behind a question mark a name says what the file does not: "vit.pth?heads=6&mean=0.5,0.5,0.5" (see
    `Given`). `architecture` (timm's name) takes precedence over what the checkpoint says of itself. Raises
    CheckpointError for an unknown name, with those that are close; UnsupportedModel for no plain ViT.

    >>> find("vit_base_patch16_224.augreg_in21k").trained_on
    'ImageNet-21k'
    """
    name, given = split(name)
    if architecture:
        require_plain(architecture)
    local = list(in_folder(weights_folder(folder)))
    found = named(name, local) or (_elsewhere(name) if trusted and _is_path(name) else None)
    found = found or _registered(name, trusted) or (_elsewhere(name) if trusted else None)
    if found is None:
        names = [checkpoint.name for checkpoint in local]
        close = get_close_matches(name, [*names, *_on_hub(), *architectures()], n=4, cutoff=0.5)
        here = ", ".join([*names, "timm's names such as vit_base_patch16_224"])
        instead = f"Close to it: {', '.join(close)}." if close else f"There are {here}."
        raise CheckpointError(f"There is no checkpoint {name!r}. {instead}")
    found = replace(found, architecture=architecture) if architecture else found
    return replace(found, name=f"{found.name}?{given.text()}") if given else found


@lru_cache(maxsize=1)
def _on_hub() -> dict[str, Checkpoint]:
    """timm's pretrained plain ViTs by name and family, but for a few whose weights are not on the hub."""
    names = [name for one in architectures() for name in timm.list_models(one, pretrained=True)]
    records = ((name, get_pretrained_cfg(name)) for name in names)
    # how many parameters each architecture has, counted beforehand: that means building it
    counted = json.loads(Path(__file__).with_name("parameters.json").read_text(encoding="utf-8"))
    return {one[0]: _from_record(*one, counted) for one in records if one[1] and one[1].hf_hub_id}


def _from_record(name: str, record: PretrainedCfg, counted: dict[str, int]) -> Checkpoint:
    architecture = name.partition(".")[0]
    note = " ".join(filter(None, (record.description, *(record.notes or ()))))
    return Checkpoint(
        name, architecture, "hub", str(record.hf_hub_id), tuple(record.input_size), counted.get(architecture),
        in_words(record.tag or ""), record.license or "", joined(record.paper_ids), note, on_disk=False,
    )  # fmt: skip


def _registered(name: str, trusted: bool) -> Checkpoint | None:
    """A timm name, with or without tag, or its hub id; raises for a name of timm's that is not to be had."""
    plain = re.sub(r"^(hf[-_]hub:)?(timm/)?", "", name)
    plain = get_deprecated_models().get(plain) or plain
    architecture, _, tag = plain.partition(".")
    if "/" in plain or not timm.is_model(architecture):
        return None
    require_plain(architecture)
    known = _on_hub()
    record = get_pretrained_cfg(architecture)
    if not tag and record is not None:
        plain = f"{architecture}.{record.tag}" if record.tag else architecture
    if plain in known:
        return replace(known[plain], on_disk=hub.is_cached(known[plain]))
    if trusted and name != plain and "/" in name:  # a repository of timm's that is newer than this timm
        return None
    tags = [one for one in known if one.partition(".")[0] == architecture]
    raise CheckpointError(
        f"timm has no trained weights {plain!r} on the hub. Of {architecture} there are:"
        f" {', '.join(tags) or 'none'}."
    )


def _is_path(name: str) -> bool:
    """Whether it looks like a path and something is there: timm's names look like folders, too."""
    looks = name.endswith((*SUFFIXES, os.sep))
    try:
        return looks and Path(name).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _elsewhere(name: str) -> Checkpoint | None:
    """A path on this machine, or a repository on the hub."""
    path = Path(name.removeprefix("local-dir:"))
    try:
        with permitted(path.name):
            path = path.expanduser()
            path.stat()
        there = True
    except CheckpointError:  # one that is there, but may not be read
        raise
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or a home that nobody has
        there = False
    if there:
        with permitted(path.name):
            weights = weights_file(path) if path.is_dir() else path if path.is_file() else None
        if weights is None or not weights.name.endswith(SUFFIXES):
            raise CheckpointError(
                f"{path.name} holds no checkpoint: expected one file ending in {', '.join(SUFFIXES)}, "
                "best model.safetensors with a config.json."
            )
        return described(path, weights, "local")
    if name.endswith(SUFFIXES) or name.startswith((".", "~", os.sep, "local-dir:")):
        raise CheckpointError(f"There is no file or folder {name!r}. Check the path.")
    repository = re.sub(r"^hf[-_]hub:", "", name)
    if not _HUB_ID.fullmatch(repository):
        return None
    found = Checkpoint(repository, None, "hub", repository)
    return replace(found, on_disk=hub.is_cached(found))
