"""Sentences as classes, by the text tower that a picture's tower was trained with.

The tower is open_clip's, read from the checkpoint's own folder or hub repository: `open_clip_config.json`
with both towers' weights beside it. It stands on the inspector's device and is loaded once. Sentences are
English as a rule, because the pictures' captions were.
"""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitviz.engine import memory
from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import memory_guard
from vitviz.engine.forks import lock_of
from vitviz.engine.formats.contrastive import CONFIG, TOWERS, projecting
from vitviz.engine.formats.folder import read_json, understood
from vitviz.engine.formats.weights import bytes_held, shapes
from vitviz.engine.hub import downloads
from vitviz.engine.hub.files import if_there
from vitviz.engine.inspector import Inspector
from vitviz.errors import CheckpointError, HubError, UnsupportedModel, VitvizError, first_line, quoted
from vitviz.traces import cancellation
from vitviz.traces.classes import Classes
from vitviz.traces.text_classes import plain, with_text
from vitviz.traces.unicode import require_unicode

AT_ONCE = 64  # sentences
TOKENIZERS = ("tokenizer_config.json", "tokenizer.json", "special_tokens_map.json")
NO_TOWER = (
    "{name} has no text tower that vitviz knows: expected {files} {where}. Give vectors instead:"
    " inspector.with_classes(vitviz.Classes(labels, vectors))."
)
NOT_INSTALLED = "Sentences are read by open_clip, which is not installed here: pip install open-clip-torch."
_kept: dict[tuple, tuple[Any, Callable]] = {}  # the last tower, with its tokenizer
_lock = lock_of(sys.modules[__name__])


def text(
    inspector: Inspector, sentences: Sequence[str] | None = None, templates: Sequence[str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Classes:  # fmt: skip
    """Sentences as classes, for `inspector.with_classes`: a unit vector each, with the scale, the bias and
    the kind of score that the towers were trained with. Without any, the 200 plain words of words.json.

    `templates`, each with {} where a sentence goes ("a photo of a {}."): a class is then the mean of their
    unit vectors, made unit again. `progress(done, total)` is told the bytes of a download. Raises VitvizError
    for what is no sentence, is longer than the tower reads, or without open_clip (`pip install
    open-clip-torch`); UnsupportedModel for a checkpoint without a text tower; HubError, CheckpointError and
    OutOfMemory as `vitviz.load`; Stopped where nobody waits. Source: Radford et al. 2021, section 3.1.

    >>> inspector = vitviz.load("vit_base_patch16_clip_224.openai")  # doctest: +SKIP
    >>> classes = text(inspector, ["cat", "dog"], templates=["a photo of a {}."])  # doctest: +SKIP
    >>> asked = inspector.with_classes(classes)  # doctest: +SKIP
    >>> asked.trace("cat.jpg").top(2)  # doctest: +SKIP
    """
    if sentences is None:
        sentences = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
    labels = [sentences] if isinstance(sentences, str) else list(sentences)
    templates = [templates] if isinstance(templates, str) else list(templates or ["{}"])
    if not labels or not all(isinstance(one, str) and one.strip() for one in labels):
        raise VitvizError(f"Given sentences={quoted(sentences)}; expected texts, none of them empty.")
    if not all(isinstance(one, str) and "{}" in one for one in templates):
        raise VitvizError(f"Given templates={quoted(templates)}; expected texts with {{}} for a sentence.")
    for one in (*labels, *templates):
        require_unicode(one, "the sentence")
    name = plain(inspector.checkpoint.name)
    with memory_guard(inspector.device, f"The text tower of {name}"):
        tower, tokenizer = tower_of(inspector, progress)
        written = [one.replace("{}", label) for label in labels for one in templates]
        for one in written:
            _require_short(tokenizer, one, name)
        parts = (written[first : first + AT_ONCE] for first in range(0, len(written), AT_ONCE))
        vectors = torch.cat([_embedded(tower, tokenizer, part) for part in parts])
    means = vectors.unflatten(0, (len(labels), len(templates))).mean(dim=1)
    bias, scale = getattr(tower, "logit_bias", None), tower.logit_scale.exp().item()
    scored = ("softmax", scale, 0.0) if bias is None else ("sigmoid", scale, bias.item())
    return Classes(tuple(labels), means, *scored, name)


def asked_about(
    inspector: Inspector, sentences: Sequence[str], templates: Sequence[str] = (),
    progress: Callable[[int, int], Any] | None = None,
) -> Inspector:  # fmt: skip
    """The inspector with sentences as its classes, by a name that carries them; errors as of `text`."""
    name = with_text(inspector.checkpoint.name, sentences, templates)
    asked = inspector.with_classes(text(inspector, sentences, templates, progress))
    asked.placed.checkpoint = replace(asked.checkpoint, name=name)
    return asked


def reads_text(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint may have a text tower: open_clip's files lie beside its own, or timm calls it by
    the name of a model that was trained with one. Nothing is asked of the hub.
    """
    if checkpoint.source == "hub":
        return projecting(checkpoint.name) or "_siglip_" in checkpoint.name
    return None not in _config_beside(checkpoint)


@in_float32()
def _embedded(tower: Any, tokenizer: Callable, sentences: list[str]) -> Tensor:
    cancellation.check()
    with torch.no_grad(), torch.autocast(tower.logit_scale.device.type, enabled=False):
        tokens = tokenizer(sentences).to(tower.logit_scale.device)
        return tower.encode_text(tokens, normalize=True).double().cpu()


def _require_short(tokenizer: Any, sentence: str, name: str) -> None:
    """VitvizError for a sentence that the tokenizer would cut in silence."""
    if hasattr(tokenizer, "encode"):
        count = len(tokenizer.encode(sentence)) + 2  # where it begins and ends
    else:
        count = len(tokenizer.tokenizer(tokenizer.clean_fn(sentence)).input_ids)
    if count > tokenizer.context_length:
        raise VitvizError(
            f"{quoted(sentence)} is {count} tokens long; the text tower of {name} reads"
            f" {tokenizer.context_length}. Shorten it."
        )


def tower_of(inspector: Inspector, progress: Callable | None = None) -> tuple[Any, Callable]:
    """Both towers' model without the picture's, and its tokenizer; the last one is kept. Errors as of `text`,
    but for what is wrong with sentences.
    """
    try:
        import open_clip
    except ImportError as error:
        raise VitvizError(NOT_INSTALLED) from error
    name, device = inspector.checkpoint.name, inspector.device
    config, weights = _files(inspector, progress)
    stamps = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in (config, weights)]
    key = (*stamps, str(device))
    with _lock:
        if key not in _kept:
            _kept.clear()
            count = sum(map(prod, shapes(weights).values())) or bytes_held(weights) // 4
            memory.require_to_load(f"The text tower of {name}", count, device)
            _kept[key] = _loaded(open_clip, config.parent, name, device)
        return _kept[key]


@in_float32()
def _loaded(open_clip: Any, folder: Path, name: str, device: torch.device) -> tuple[Any, Callable]:
    place = f"local-dir:{folder}"
    try:
        tower = open_clip.create_model(place, require_pretrained=True).eval().requires_grad_(False)
        del tower.visual
        return tower.to(device), open_clip.get_tokenizer(place)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError, ImportError) as error:
        if memory.is_shortage(error):
            raise
        raise CheckpointError(f"The text tower of {name} cannot be read: {first_line(error)}.") from error


def _files(inspector: Inspector, progress: Callable | None) -> tuple[Path, Path]:
    """open_clip's config and weights of a checkpoint; UnsupportedModel where it has none."""
    checkpoint = inspector.checkpoint
    hosted = checkpoint.source == "hub"
    config, weights = _from_hub(checkpoint.location, progress) if hosted else _config_beside(checkpoint)
    if config is None or weights is None:
        where = f"in {checkpoint.location}" if hosted else "beside its weights"
        raise UnsupportedModel(
            NO_TOWER.format(name=checkpoint.name, where=where, files=f"{CONFIG} and {' or '.join(TOWERS)}")
        )
    return config, weights


def _config_beside(checkpoint: Checkpoint) -> tuple[Path | None, Path | None]:
    place = Path(checkpoint.location)
    folder = place if place.is_dir() else place.parent
    there = [folder / name for name in (CONFIG, *TOWERS) if checkpoint.location]  # or in memory alone
    config, *weights = [one if one.is_file() else None for one in there] or [None]
    return config, next(filter(None, weights), None)


def _from_hub(location: str, progress: Callable | None) -> tuple[Path | None, Path | None]:
    """The same of a repository, with its tokenizer's files, which lie in one folder of the cache."""
    config = if_there(location, CONFIG)
    if config is None:
        return None, None
    with understood(location):
        hosted = "hf_tokenizer_name" in read_json(config)["model_cfg"]["text_cfg"]
    for number, name in enumerate(TOKENIZERS if hosted else ()):
        # the first says whether the hub can be reached
        with suppress(HubError if number else downloads.NoSuchFile):
            downloads.fetch(location, name)
    found = (if_there(location, name, progress) for name in TOWERS)
    return config, next(filter(None, found), None)
