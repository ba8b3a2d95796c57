"""Checkpoints on this machine: those in the folder weights/, and what each was trained on, in words."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.finding.film import snapshot
from vitviz.engine.reading.contrastive import CONFIG
from vitviz.engine.reading.folder import SUFFIXES, config_beside, config_file, weights_file
from vitviz.engine.reading.mapping import mapping_file
from vitviz.engine.reading.weights import shapes
from vitviz.errors import CheckpointError

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


def in_words(tag: str) -> str:
    """The data sets of a tag in the order of training; empty where it names none that is known.

    >>> in_words("augreg_in21k_ft_in1k"), in_words("in22k_ft_in22k_in1k"), in_words("pt")
    ('ImageNet-21k, then ImageNet-1k', 'ImageNet-22k, then ImageNet-1k', '')
    """
    places = ((re.search(rf"(?:^|_){name}(?=_|$)", tag or ""), words) for name, words in _DATA.items())
    found = {words: match.start() for match, words in places if match}
    return ", then ".join(sorted(found, key=found.__getitem__))


BESIDE = ("config.json", "preprocessor_config.json", CONFIG)  # what is read with a weights file


def weights_folder(folder: str | PathLike | None = None) -> Path:
    """Where checkpoints are dropped: `folder`, else $VITVIZ_WEIGHTS, else weights/ by or in the package."""
    if folder or os.environ.get("VITVIZ_WEIGHTS"):
        return Path(folder or os.environ["VITVIZ_WEIGHTS"]).expanduser()
    package = Path(__file__).resolve().parents[2]
    return next(
        (found for found in (package.parent / "weights", package / "weights") if found.is_dir()),
        Path("weights"),
    )


def in_folder(root: Path) -> Iterator[Checkpoint]:
    """What in a folder holds weights, by name; without what cannot be read, and links that lead out of it."""
    try:
        entries, within = sorted(root.iterdir()), root.resolve()
    except (OSError, RuntimeError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            entry.name.encode()  # its bytes may be of no character at all, and could not be told
            file = entry if entry.name.endswith(SUFFIXES) and entry.is_file() else None
            weights = weights_file(entry) if entry.is_dir() else file
            if weights is None:
                continue
            beside = (config_file(weights), mapping_file(weights), *map(weights.with_name, BESIDE))
            # A link may point anywhere on the machine; what the page offers stays inside of the folder.
            if all(path.resolve().is_relative_to(within) for path in (weights, *beside)):
                shipped = entry.is_dir() and entry.name.startswith("vitviz-")
                yield described(entry, weights, "shipped" if shipped else "local")
        # a folder of somebody else's, a link to itself: no reason to hide the others
        except (OSError, RuntimeError, UnicodeEncodeError):
            continue


def described(path: Path, weights: Path, source: Any) -> Checkpoint:
    """A checkpoint from its config.json alone; a config that cannot be read becomes its note."""
    parameters = sum(map(prod, shapes(weights).values())) or None
    blank = Checkpoint(path.name, None, source, str(path), parameters=parameters)
    try:
        config = config_beside(weights)
        nested = config.get("pretrained_cfg") or {}
        if not isinstance(config.get("architecture") or "", str):
            raise ValueError(f"architecture is {config['architecture']!r} where a name was expected")
        about = {"licence": nested.get("license"), "note": nested.get("description")}
        about |= config.get("vitviz") or {}
        return replace(
            blank, architecture=config.get("architecture"), input_size=_input_size(config),
            trained_on=str(about.get("trained_on") or in_words(nested.get("tag") or "")),
            licence=str(about.get("licence") or about.get("license") or ""),
            paper=str(about.get("paper") or joined(nested.get("paper_ids"))),
            note=str(about.get("note") or ""),
        )  # fmt: skip
    except CheckpointError as error:
        return replace(blank, note=str(error))
    except (TypeError, ValueError, AttributeError) as error:
        return replace(blank, note=f"Its config.json cannot be understood ({error}).")


def _input_size(config: dict[str, Any]) -> tuple[int, int, int] | None:
    """Channels, height, width by a config: timm's model_args, its pretrained_cfg, transformers' keys."""
    args, nested = config.get("model_args") or {}, config.get("pretrained_cfg") or {}
    channels, *size = nested.get("input_size") or config.get("input_size") or (3,)
    given = args.get("img_size") or config.get("image_size") or size
    if not given:
        return None
    height, width = (given, given) if isinstance(given, int) else given
    return int(args.get("in_chans") or config.get("num_channels") or channels), int(height), int(width)


def named(name: str, local: list[Checkpoint]) -> Checkpoint | None:
    """The one of them with this name, with or without its ending, or the step that "name@step" means."""
    base, _, step = name.partition("@")
    by_name = {checkpoint.name: checkpoint for checkpoint in local}
    found = by_name.get(name) or (by_name.get(base) if step.isdecimal() and len(step) <= 12 else None)
    if found is None:  # a file without its ending, where that is not ambiguous
        alike = [by_name[name + suffix] for suffix in SUFFIXES if name + suffix in by_name]
        return alike[0] if len(alike) == 1 else None
    return snapshot(found, int(step)) if found.name != name else found


def joined(ids: Any) -> str:
    """timm's paper ids, one or several, as a text."""
    return ids if isinstance(ids, str) else ", ".join(ids or ())
