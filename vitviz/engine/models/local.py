"""Checkpoints on this machine: those in the folder weights/."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.models import training_data
from vitviz.engine.models.film import snapshot
from vitviz.engine.models.formats.folder import SUFFIXES, config_beside, config_file, weights_file
from vitviz.engine.models.formats.weights import shapes
from vitviz.engine.models.mapping_file import mapping_file
from vitviz.errors import CheckpointError

BESIDE = ("config.json", "preprocessor_config.json")  # what is read with a weights file


def weights_folder(folder: str | PathLike | None = None) -> Path:
    """Where checkpoints are dropped: `folder`, else $VITVIZ_WEIGHTS, else weights/ beside the package or
    (installed) in it.
    """
    if folder or os.environ.get("VITVIZ_WEIGHTS"):
        return Path(folder or os.environ["VITVIZ_WEIGHTS"]).expanduser()
    package = Path(__file__).resolve().parents[2]
    return next(
        (found for found in (package.parent / "weights", package / "weights") if found.is_dir()),
        Path("weights"),
    )


def in_folder(root: Path) -> Iterator[Checkpoint]:
    """The folders and files of a folder that hold weights, by name; without those that cannot be read, and
    links that lead out of it.
    """
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or not _is_text(entry.name):
            continue
        try:
            weights = (
                weights_file(entry)
                if entry.is_dir()
                else entry
                if entry.name.endswith(SUFFIXES) and entry.is_file()
                else None
            )
            # A link may point anywhere on the machine; what the page offers stays inside of the folder.
            if weights is not None and all(
                _inside(path, root)
                for path in (
                    weights,
                    config_file(weights),
                    mapping_file(weights),
                    *map(weights.with_name, BESIDE),
                )
            ):
                yield described(
                    entry,
                    weights,
                    "shipped" if entry.is_dir() and entry.name.startswith("vitviz-") else "local",
                )
        except (
            OSError,
            RuntimeError,
        ):  # a folder of somebody else's, a link to itself: no reason to hide the others
            continue


def _is_text(name: str) -> bool:
    """Whether a file's name can be told: its bytes may be of no character at all."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def described(path: Path, weights: Path, source: Any) -> Checkpoint:
    """A checkpoint from its config.json alone; a config that cannot be read becomes its note."""
    parameters = sum(map(prod, shapes(weights).values())) or None
    blank = Checkpoint(path.name, None, source, str(path), parameters=parameters)
    try:
        config = config_beside(weights)
        nested = config.get("pretrained_cfg") or {}
        if not isinstance(config.get("architecture") or "", str):
            raise ValueError(f"architecture is {config['architecture']!r} where a name was expected")
        about = {
            **{ours: nested.get(timms) for ours, timms in (("licence", "license"), ("note", "description"))},
            **(config.get("vitviz") or {}),
        }
        return replace(
            blank,
            architecture=config.get("architecture"),
            input_size=_input_size(config),
            trained_on=str(about.get("trained_on") or training_data.in_words(nested.get("tag") or "")),
            licence=str(about.get("licence") or about.get("license") or ""),
            paper=str(about.get("paper") or joined(nested.get("paper_ids"))),
            note=str(about.get("note") or ""),
        )
    except CheckpointError as error:
        return replace(blank, note=str(error))
    except (TypeError, ValueError, AttributeError) as error:
        return replace(blank, note=f"Its config.json cannot be understood ({error}).")


def _input_size(config: dict[str, Any]) -> tuple[int, int, int] | None:
    """Channels, height, width as a config tells them: timm's model_args before its pretrained_cfg, or
    transformers' keys.
    """
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
        alike = [
            checkpoint for checkpoint in local if any(checkpoint.name == name + suffix for suffix in SUFFIXES)
        ]
        return alike[0] if len(alike) == 1 else None
    return snapshot(found, int(step)) if found.name != name else found


def joined(ids: Any) -> str:
    """timm's paper ids, one or several, as a text."""
    return ids if isinstance(ids, str) else ", ".join(ids or ())


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())
