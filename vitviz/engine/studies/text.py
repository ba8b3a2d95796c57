"""Text classes: sentences embedded by the text tower that was trained with a model's image tower.

The tower is open_clip's, read from the checkpoint's folder or hub repository, which holds
`open_clip_config.json` with both towers' weights. It is loaded once, on the inspector's device. Sentences
should usually be English, because the captions in training were.
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
from vitviz.engine.formats.contrastive import CONFIG, TOWERS, is_contrastive_name
from vitviz.engine.formats.folder import read_json, refusing_malformed_config
from vitviz.engine.formats.weights import bytes_held, read_shapes
from vitviz.engine.hub import downloads
from vitviz.engine.hub.files import fetch_if_present
from vitviz.engine.inspector import Inspector
from vitviz.errors import CheckpointError, HubError, UnsupportedModel, VitvizError, first_line, quoted
from vitviz.traces import cancellation
from vitviz.traces.classes import Classes
from vitviz.traces.text_classes import plain_name, with_text
from vitviz.traces.unicode import require_unicode

AT_ONCE = 64  # sentences
TOKENIZERS = ("tokenizer_config.json", "tokenizer.json", "special_tokens_map.json")
NO_TOWER = (
    "{name} has no text tower that vitviz knows: expected {files} {where}. Pass vectors instead:"
    " inspector.with_classes(vitviz.Classes(labels, vectors))."
)
NOT_INSTALLED = "Sentences are read by open_clip, which is not installed: pip install open-clip-torch."
_kept: dict[tuple, tuple[Any, Callable]] = {}  # cache of one tower with its tokenizer
_lock = lock_of(sys.modules[__name__])


def text(
    inspector: Inspector, sentences: Sequence[str] | None = None, templates: Sequence[str] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Classes:  # fmt: skip
    """Embed sentences as classes for `inspector.with_classes`: a unit vector each.

    The result has the scale, the bias and the kind of score that the towers were trained with. Source:
    Radford et al. 2021, section 3.1.

    Args:
        inspector: A model that was trained with a text tower.
        sentences: The sentences; None for the 200 plain words of words.json.
        templates: Texts with {} for the sentence ("a photo of a {}."). A class is then the mean of their unit
            vectors, scaled to length 1.
        progress: Called as `progress(done, total)` with the bytes of a download.

    Returns:
        Labels with vectors (class, feature).

    Raises:
        VitvizError: A sentence is empty or longer than the tower reads, or open_clip is not installed
            (`pip install open-clip-torch`).
        UnsupportedModel: The checkpoint has no text tower.
        HubError, CheckpointError, OutOfMemory: As for `vitviz.load`.
        Stopped: The request was cancelled.

    >>> inspector = vitviz.load("vit_base_patch16_clip_224.openai")  # doctest: +SKIP
    >>> classes = text(inspector, ["cat", "dog"], templates=["a photo of a {}."])  # doctest: +SKIP
    >>> asked = inspector.with_classes(classes)  # doctest: +SKIP
    >>> asked.trace("cat.jpg").top(2)  # doctest: +SKIP
    """
    if sentences is None:
        sentences = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
    labels = [sentences] if isinstance(sentences, str) else list(sentences)
    templates = [templates] if isinstance(templates, str) else list(templates or ["{}"])
    if not labels or not all(isinstance(label, str) and label.strip() for label in labels):
        raise VitvizError(f"sentences={quoted(sentences)} is not valid; expected texts, none of them empty.")
    if not all(isinstance(template, str) and "{}" in template for template in templates):
        raise VitvizError(
            f"templates={quoted(templates)} is not valid; expected texts with {{}} for a sentence."
        )
    for entry in (*labels, *templates):
        require_unicode(entry, "the sentence")
    name = plain_name(inspector.checkpoint.name)
    with memory_guard(inspector.device, f"The text tower of {name}"):
        tower, tokenizer = text_tower(inspector, progress)
        written = [template.replace("{}", label) for label in labels for template in templates]
        for entry in written:
            _require_short(tokenizer, entry, name)
        parts = (written[first : first + AT_ONCE] for first in range(0, len(written), AT_ONCE))
        vectors = torch.cat([_embedded(tower, tokenizer, part) for part in parts])
    means = vectors.unflatten(0, (len(labels), len(templates))).mean(dim=1)
    bias, scale = getattr(tower, "logit_bias", None), tower.logit_scale.exp().item()
    scored = ("softmax", scale, 0.0) if bias is None else ("sigmoid", scale, bias.item())
    return Classes(tuple(labels), means, *scored, name)


def with_sentences(
    inspector: Inspector, sentences: Sequence[str], templates: Sequence[str] = (),
    progress: Callable[[int, int], Any] | None = None,
) -> Inspector:  # fmt: skip
    """Return the inspector with sentences as its classes and a name that carries them; raises as `text`."""
    name = with_text(inspector.checkpoint.name, sentences, templates)
    answering = inspector.with_classes(text(inspector, sentences, templates, progress))
    answering.placed.checkpoint = replace(answering.checkpoint, name=name)
    return answering


def reads_text(checkpoint: Checkpoint) -> bool:
    """Return True if a checkpoint may have a text tower; the hub is not asked.

    True if open_clip's files lie beside its own, or timm's name belongs to a model that was trained with one.
    """
    if checkpoint.source == "hub":
        return is_contrastive_name(checkpoint.name) or "_siglip_" in checkpoint.name
    return None not in _config_beside(checkpoint)


@in_float32()
def _embedded(tower: Any, tokenizer: Callable, sentences: list[str]) -> Tensor:
    """Return the text tower's unit vectors (sentence, width), in float64 on the CPU."""
    cancellation.check()
    with torch.no_grad(), torch.autocast(tower.logit_scale.device.type, enabled=False):
        tokens = tokenizer(sentences).to(tower.logit_scale.device)
        return tower.encode_text(tokens, normalize=True).double().cpu()


def _require_short(tokenizer: Any, sentence: str, name: str) -> None:
    """Raise VitvizError for a sentence that the tokenizer would truncate silently."""
    if hasattr(tokenizer, "encode"):
        count = len(tokenizer.encode(sentence)) + 2  # start and end tokens
    else:
        count = len(tokenizer.tokenizer(tokenizer.clean_fn(sentence)).input_ids)
    if count > tokenizer.context_length:
        detail = f"the text tower of {name} reads {tokenizer.context_length}. Shorten it."
        raise VitvizError(f"{quoted(sentence)} is {count} tokens long; {detail}")


def text_tower(inspector: Inspector, progress: Callable | None = None) -> tuple[Any, Callable]:
    """Return the text tower and its tokenizer; the last one is cached.

    Raises as `text`, except for invalid sentences.
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
            count = sum(map(prod, read_shapes(weights).values())) or bytes_held(weights) // 4
            memory.require_to_load(f"The text tower of {name}", count, device)
            _kept[key] = _loaded(open_clip, config.parent, name, device)
        return _kept[key]


@in_float32()
def _loaded(open_clip: Any, folder: Path, name: str, device: torch.device) -> tuple[Any, Callable]:
    """Load open_clip's text tower, without the image tower, and its tokenizer from a folder.

    Raises CheckpointError if they cannot be read.
    """
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
    """Return open_clip's config and weights of a checkpoint; raise UnsupportedModel if it has none."""
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
    """Return the paths of open_clip's config and weights in a checkpoint's folder; None if missing."""
    place = Path(checkpoint.location)
    folder = place if place.is_dir() else place.parent
    # a model in memory has no location
    there = [folder / name for name in (CONFIG, *TOWERS) if checkpoint.location]
    config, *weights = [one if one.is_file() else None for one in there] or [None]
    return config, next(filter(None, weights), None)


def _from_hub(location: str, progress: Callable | None) -> tuple[Path | None, Path | None]:
    """Return open_clip's config and weights of a repository; its tokenizer is fetched beside them."""
    config = fetch_if_present(location, CONFIG)
    if config is None:
        return None, None
    with refusing_malformed_config(location):
        hosted = "hf_tokenizer_name" in read_json(config)["model_cfg"]["text_cfg"]
    for number, name in enumerate(TOKENIZERS if hosted else ()):
        # only the first file reports an unreachable hub
        with suppress(HubError if number else downloads.NoSuchFile):
            downloads.fetch(location, name)
    paths = (fetch_if_present(location, name, progress) for name in TOWERS)
    return config, next(filter(None, paths), None)
