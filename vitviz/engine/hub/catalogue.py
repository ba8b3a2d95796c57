"""List the available checkpoints, and resolve a name to a checkpoint.

The folder `weights/` comes first: checkpoints that vitviz ships and that the user has added. Then come timm's
pretrained plain ViTs, which the hub delivers. Listing reads folders, small JSON files and timm's registry,
and no network.
"""

import json
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

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.formats import folder as layout
from vitviz.engine.formats import lora
from vitviz.engine.formats.contrastive import CONFIG
from vitviz.engine.formats.families import architectures, require_plain
from vitviz.engine.formats.folder import SUFFIXES, refusing_permission_errors, weights_file
from vitviz.engine.formats.mapping import mapping_file
from vitviz.engine.formats.overrides import split_name
from vitviz.engine.formats.weights import read_shapes
from vitviz.engine.hub import downloads
from vitviz.engine.hub.snapshots import snapshot_checkpoint
from vitviz.errors import CheckpointError, quoted
from vitviz.traces.unicode import require_unicode

PREPROCESSORS = ("processor_config.json", "preprocessor_config.json")  # of transformers, the first preferred
BESIDE = ("config.json", *PREPROCESSORS, CONFIG, lora.CONFIG)  # files read with a weights file
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
# Parts of a tag, longest first where one contains another.
_DATA = {
    "in1k": "ImageNet-1k", "in12k": "ImageNet-12k", "in21k": "ImageNet-21k", "in22k": "ImageNet-22k",
    "laion2b": "LAION-2B", "laion400m": "LAION-400M", "openai": "OpenAI's 400 M image-text pairs",
    "webli": "WebLI", "datacompxl": "DataComp-1B",
    "dfn2b": "DFN-2B", "dfndr2b": "DFNDR-2B", "dfn5b": "DFN-5B", "metaclip_400m": "MetaCLIP-400M",
    "metaclip_2pt5b": "MetaCLIP-2.5B", "metaclip2_worldwide": "MetaCLIP 2 worldwide",
    "merged2b": "Merged-2B", "m30m": "Merged-30M", "m38m": "Merged-38M",
    "lvd142m": "LVD-142M", "lvd1689m": "LVD-1689M", "sat493m": "SAT-493M",
    "yfcc15m": "YFCC-15M", "bamboo": "Bamboo", "tiny_imagenet": "Tiny-ImageNet",
    # Facebook's self-supervised checkpoints, whose tag is the method.
    "dino": "ImageNet-1k, without labels (DINO)", "mae": "ImageNet-1k, without labels (MAE)",
}  # fmt: skip


def checkpoints(folder: str | PathLike | None = None) -> list[Checkpoint]:
    """Return all available checkpoints: shipped, added to `folder` (see `weights_folder`), then the hub's.

    >>> "vitviz-tiny" in [c.name for c in checkpoints() if c.source == "shipped"]
    True
    """
    cached = downloads.cached_repositories()
    return [
        *checkpoints_in_folder(weights_folder(folder)),
        *(replace(c, on_disk=c.location in cached and downloads.is_cached(c)) for c in _on_hub().values()),
    ]


def find_checkpoint(
    name: str, folder: str | PathLike | None = None, architecture: str | None = None, trusted: bool = True
) -> Checkpoint:
    """Return the checkpoint that a name means.

    Args:
        name: One of `checkpoints(folder)`, a timm name with or without its tag, a training step
            ("vitviz-tiny@3000"), a hub id ("timm/…", "hf-hub:…", "organisation/name@revision"), or the path
            of a folder or file. A name that ends like a file or has a separator is a path if that exists.
            After a question mark a name may set what the file omits: "vit.pth?heads=6&mean=0.5,0.5,0.5" (see
            `Overrides`).
        folder: Folder that is searched first (see `weights_folder`).
        architecture: timm's name; takes precedence over the checkpoint's own.
        trusted: False for a name that comes from a stranger: only listed names are then accepted, never a
            path or another repository.

    Raises:
        CheckpointError: The name is unknown; the message lists similar names.
        UnsupportedModel: The model is not a plain ViT.

    >>> find_checkpoint("vit_base_patch16_224.augreg_in21k").trained_on
    'ImageNet-21k'
    """
    name, overrides = split_name(name)
    if architecture:
        require_plain(architecture)
    local = list(checkpoints_in_folder(weights_folder(folder)))
    result = by_name(name, local) or (_elsewhere(name) if trusted and _is_path(name) else None)
    result = result or _registered(name, trusted) or (_elsewhere(name) if trusted else None)
    if result is None:
        names = [checkpoint.name for checkpoint in local]
        close = get_close_matches(name, [*names, *_on_hub(), *architectures()], n=4, cutoff=0.5)
        here = ", ".join([*names, "timm's names such as vit_base_patch16_224"])
        instead = f"Similar names: {', '.join(close)}." if close else f"There are {here}."
        raise CheckpointError(f"There is no checkpoint {quoted(name)}. {instead}")
    require_unicode(result.name, "the checkpoint's name")
    result = replace(result, architecture=architecture) if architecture else result
    return replace(result, name=f"{result.name}?{overrides.text()}") if overrides else result


@lru_cache(maxsize=1)
def _on_hub() -> dict[str, Checkpoint]:
    """Return timm's pretrained plain ViTs by name, without the few whose weights are not on the hub."""
    names = [name for family in architectures() for name in timm.list_models(family, pretrained=True)]
    records = {name: get_pretrained_cfg(name) for name in names}
    # parameters of each architecture, counted beforehand, because counting builds the model
    counted = json.loads(Path(__file__).with_name("parameters.json").read_text(encoding="utf-8"))
    on_hub = {name: record for name, record in records.items() if record and record.hf_hub_id}
    return {name: _from_record(name, record, counted) for name, record in on_hub.items()}


def _from_record(name: str, record: PretrainedCfg, counted: dict[str, int]) -> Checkpoint:
    """Return the checkpoint of a timm record on the hub; `counted` has parameters by architecture."""
    architecture = name.partition(".")[0]
    note = " ".join(filter(None, (record.description, *(record.notes or ()))))
    return Checkpoint(
        name, architecture, "hub", str(record.hf_hub_id), tuple(record.input_size), counted.get(architecture),
        data_set_names(record.tag or ""), record.license or "", join_ids(record.paper_ids), note,
        on_disk=False
    )  # fmt: skip


def _registered(name: str, trusted: bool) -> Checkpoint | None:
    """Resolve a timm name, with or without tag, or its hub id; raise for a timm name without weights."""
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
        return replace(known[plain], on_disk=downloads.is_cached(known[plain]))
    if trusted and name != plain and "/" in name:  # a timm repository newer than the installed timm
        return None
    tags = [name for name in known if name.partition(".")[0] == architecture]
    raise CheckpointError(
        f"timm has no trained weights {quoted(plain)} on the hub. For {architecture} it has:"
        f" {', '.join(tags) or 'none'}."
    )


def _is_path(name: str) -> bool:
    """Return True if a name looks like a path and the path exists; timm's names look like folders, too."""
    looks = name.endswith((*SUFFIXES, os.sep))
    try:
        return looks and Path(name).exists()
    except (OSError, ValueError):  # an invalid file name
        return False


def _elsewhere(name: str) -> Checkpoint | None:
    """Resolve a path on this machine, or a repository on the hub."""
    path = Path(name.removeprefix("local-dir:"))
    try:
        with refusing_permission_errors(path.name):
            path = path.expanduser()
            path.stat()
    except CheckpointError:  # it exists, but may not be read
        raise
    except (OSError, ValueError, RuntimeError):  # an invalid file name, or an unknown user's home
        pass
    else:
        with refusing_permission_errors(path.name):
            weights = weights_file(path) if path.is_dir() else path if path.is_file() else None
        if weights is None or not weights.name.endswith(SUFFIXES):
            raise CheckpointError(
                f"{path.name or quoted(name)} holds no checkpoint: expected one file ending in"
                f" {', '.join(SUFFIXES)}, preferably model.safetensors with a config.json."
            )
        return describe(path, weights, "local")
    if name.endswith(SUFFIXES) or name.startswith((".", "~", os.sep, "local-dir:")):
        raise CheckpointError(f"There is no file or folder {quoted(name)}. Check the path.")
    repository = re.sub(r"^hf[-_]hub:", "", name)
    if not _HUB_ID.fullmatch(repository):
        return None
    checkpoint = Checkpoint(repository, None, "hub", repository)
    return replace(checkpoint, on_disk=downloads.is_cached(checkpoint))


def data_set_names(tag: str) -> str:
    """Return the data sets of a tag in the order of training; empty if no known data set is named.

    >>> data_set_names("augreg_in21k_ft_in1k"), data_set_names("in22k_ft_in22k_in1k"), data_set_names("pt")
    ('ImageNet-21k, then ImageNet-1k', 'ImageNet-22k, then ImageNet-1k', '')
    """
    places = ((re.search(rf"(?:^|_){name}(?=_|$)", tag or ""), words) for name, words in _DATA.items())
    positions = {words: match.start() for match, words in places if match}
    return ", then ".join(sorted(positions, key=positions.__getitem__))


def weights_folder(folder: str | PathLike | None = None) -> Path:
    """Return the checkpoints' folder: `folder`, $VITVIZ_WEIGHTS, or weights/ by or in the package."""
    if folder or os.environ.get("VITVIZ_WEIGHTS"):
        return Path(folder or os.environ["VITVIZ_WEIGHTS"]).expanduser()
    package = Path(__file__).resolve().parents[2]
    near = (package.parent / "weights", package / "weights")
    return next(filter(Path.is_dir, near), Path("weights"))


def checkpoints_in_folder(root: Path) -> Iterator[Checkpoint]:
    """Yield a folder's checkpoints by name, without unreadable ones and links that lead out of the folder."""
    try:
        entries, within = sorted(root.iterdir()), root.resolve()
    except (OSError, RuntimeError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            entry.name.encode()  # its bytes may not be valid text, which no message could show
            file = entry if entry.name.endswith(SUFFIXES) and entry.is_file() else None
            weights = weights_file(entry) if entry.is_dir() else file
            if weights is None:
                continue
            beside = (layout.config_file(weights), mapping_file(weights), *map(weights.with_name, BESIDE))
            # A link may point anywhere on the machine; the page offers only files inside the folder.
            if all(path.resolve().is_relative_to(within) for path in (weights, *beside)):
                shipped = entry.is_dir() and entry.name.startswith("vitviz-")
                yield describe(entry, weights, "shipped" if shipped else "local")
        # e.g. another user's folder or a link to itself: skip it and list the others
        except (OSError, RuntimeError, UnicodeEncodeError):
            continue


def describe(path: Path, weights: Path, source: Any) -> Checkpoint:
    """Return a checkpoint from its config.json alone; an error in reading the config becomes its note."""
    parameters = sum(map(prod, read_shapes(weights).values())) or None
    blank = Checkpoint(path.name, None, source, str(path), parameters=parameters)
    try:
        config = layout.config_beside(weights)
        nested = config.get("pretrained_cfg") or {}
        if not isinstance(config.get("architecture") or "", str):
            raise ValueError(f"architecture is {quoted(config['architecture'])}; expected a name")
        about = {"licence": nested.get("license"), "note": nested.get("description")}
        about |= config.get("vitviz") or {}
        return replace(
            blank, architecture=config.get("architecture"), input_size=_input_size(config),
            trained_on=str(about.get("trained_on") or data_set_names(nested.get("tag") or "")),
            licence=str(about.get("licence") or about.get("license") or ""),
            paper=str(about.get("paper") or join_ids(nested.get("paper_ids"))),
            note=str(about.get("note") or ""),
        )  # fmt: skip
    except CheckpointError as error:
        return replace(blank, note=str(error))
    except (TypeError, ValueError, AttributeError) as error:
        return replace(blank, note=f"Its config.json cannot be read ({error}).")


def _input_size(config: dict[str, Any]) -> tuple[int, int, int] | None:
    """Return channels, height, width from model_args, pretrained_cfg or transformers' keys of a config."""
    args, nested = config.get("model_args") or {}, config.get("pretrained_cfg") or {}
    channels, *size = nested.get("input_size") or config.get("input_size") or (3,)
    side = args.get("img_size") or config.get("image_size") or size
    if not side:
        return None
    height, width = (side, side) if isinstance(side, int) else side
    return int(args.get("in_chans") or config.get("num_channels") or channels), int(height), int(width)


def by_name(name: str, local: list[Checkpoint]) -> Checkpoint | None:
    """Return the local checkpoint of this name, with or without its ending, or the step of "name@step"."""
    base, _, step = name.partition("@")
    by_name = {checkpoint.name: checkpoint for checkpoint in local}
    result = by_name.get(name) or (by_name.get(base) if step.isdecimal() and len(step) <= 12 else None)
    if result is None:  # a file without its ending, if unambiguous
        alike = [by_name[name + suffix] for suffix in SUFFIXES if name + suffix in by_name]
        return alike[0] if len(alike) == 1 else None
    return snapshot_checkpoint(result, int(step)) if result.name != name else result


def join_ids(ids: Any) -> str:
    """Return timm's paper ids, one or several, as text."""
    return ids if isinstance(ids, str) else ", ".join(ids or ())
