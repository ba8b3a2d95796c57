"""timm's config.json: architecture, model arguments, input size and class names."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any

from timm.data import ImageNetInfo, infer_imagenet_subset
from timm.models import PretrainedCfg, get_pretrained_cfg

from vitviz.engine.formats.folder import refusing
from vitviz.errors import CheckpointError, quoted
from vitviz.traces.localized_text import LocalizedText

# Arguments that would make timm.create_model load or wrap something.
_NOT_MODEL_ARGS = {
    "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "features_only",
    "pruned",
}  # fmt: skip


def parse_config(config: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return model arguments, pretrained_cfg with the resulting input size, and sentences on assumptions.

    Raises CheckpointError for arguments that would make timm do more than build a model.
    """
    args, pretrained = dict(config.get("model_args") or {}), config.get("pretrained_cfg")
    if wrong := sorted(args.keys() & _NOT_MODEL_ARGS):
        only = "model_args in config.json may only describe the model"
        raise CheckpointError(f"{name}: {only}. Remove {', '.join(wrong)}.")
    known = {item.name for item in fields(PretrainedCfg)}
    settings = {key: value for key, value in {**config, **(pretrained or {})}.items() if key in known}
    notes = []
    if pretrained is None and "mean" not in config:
        notes.append(
            f"Its config.json does not specify its preprocessing; timm's for {config['architecture']} is"
            " used."
        )
    base = default_config(str(config["architecture"]))
    usual = tuple(base["input_size"])
    if pretrained is not None:  # as timm does; but the architecture defines the default and any fixed size
        base = asdict(PretrainedCfg()) | {name: base[name] for name in ("input_size", "fixed_input_size")}
    record = {**base, **settings}
    channels, height, width = record["input_size"]
    if settings.get("fixed_input_size") is False and "img_size" not in args and (height, width) != usual[1:]:
        raise CheckpointError(
            f"{name}: its config.json has fixed_input_size false, so timm builds it for an input of"
            f" {usual[1]} x {usual[2]} px, but input_size is {height} x {width}. Add img_size to model_args."
        )
    notes += inactive_settings_note(record)
    size = args.get("img_size", (height, width))
    height, width = (size, size) if isinstance(size, int) else size
    record["input_size"] = (args.get("in_chans", channels), height, width)
    record["num_classes"] = config.get("num_classes", record["num_classes"])
    return args, record, notes


def default_config(architecture: str) -> dict[str, Any]:
    """Return timm's default pretrained_cfg of an architecture, without labels.

    Defaults differ between families: DeiT's mean is not ViT's.

    >>> default_config("deit_tiny_patch16_224")["mean"], default_config("vit_tiny_patch16_224")["mean"]
    ((0.485, 0.456, 0.406), (0.5, 0.5, 0.5))
    """
    unknown = f"timm has no checkpoint {quoted(architecture)}. Omit the part after the dot."
    with refusing(unknown, RuntimeError):
        record = get_pretrained_cfg(architecture) or PretrainedCfg()
    return {**asdict(record), "label_names": None, "label_descriptions": None}


def inactive_settings_note(record: Mapping[str, Any]) -> list[str]:
    """Return at most one sentence, on pretrained_cfg settings that timm's transform uses only on request."""
    named = [f"{name} {record[name]}" for name in ("test_input_size", "test_crop_pct") if record.get(name)]
    if not named:
        return []
    return [
        f"Its configuration has {' and '.join(named)}, which timm uses only on request and vitviz does"
        " not use."
    ]


COUNT = "{name} has {classes} classes, but {given} names were given, one a line. Give one for each class."
EMPTY = "Line {line} of the names is empty. Give one name a line, in the order of the classes."


def labels_of(config: Mapping[str, Any], classes: int, tag: str = "") -> tuple[str, ...]:
    """Return the labels of a timm config, or ImageNet's if the class count or the tag identifies them.

    Descriptions ("goldfish") take precedence over names ("n01443537"). Empty if no labels are known or their
    count differs from `classes`: a wrong name is worse than a number.

    >>> labels_of({}, 1000)[285]
    'Egyptian cat'
    """
    nested = config.get("pretrained_cfg") or {}
    names = config.get("label_names") or nested.get("label_names") or config.get("labels") or ()
    descriptions = config.get("label_descriptions") or nested.get("label_descriptions") or {}
    if isinstance(descriptions, Mapping):
        labels = [name if descriptions.get(name) is None else descriptions[name] for name in names]
    else:
        labels = list(descriptions)
    # some files have null for an unnamed class
    labels = tuple(f"class {i}" if name is None else str(name) for i, name in enumerate(labels))
    if labels:
        return labels if len(labels) == classes else ()
    # In practice 1000 classes are ImageNet-1k's; for other counts the tag must name an ImageNet subset.
    if classes == 1000 or any(part in tag for part in ("in12k", "in21k", "in22k")):
        return _imagenet_labels(classes)
    return ()


def parse_label_lines(text: str, classes: int, name: str) -> tuple[str, ...]:
    """Parse user-written labels, one per line in the order of the logits.

    Raises CheckpointError if their number differs from `classes` or a line is empty.

    >>> parse_label_lines("cat\\ndog\\n", 2, "mine.pth")
    ('cat', 'dog')
    """
    lines = tuple(line.strip() for line in text.removeprefix("\ufeff").rstrip().splitlines())
    if len(lines) != classes:
        raise CheckpointError(LocalizedText(COUNT, name=name, classes=classes, given=len(lines)))
    if "" in lines:
        raise CheckpointError(LocalizedText(EMPTY, line=lines.index("") + 1))
    return lines


@lru_cache(maxsize=4)
def _imagenet_labels(classes: int) -> tuple[str, ...]:
    """Return the labels of the ImageNet subset with this number of classes; () if there is none."""
    subset = infer_imagenet_subset({"num_classes": classes})
    return tuple(ImageNetInfo(subset).label_descriptions()) if subset else ()


@lru_cache(maxsize=1)
def wordnet_names() -> dict[str, tuple[str, ...]]:
    """Return the label of each class of ImageNet-1k and the names in it, by WordNet id in class order.

    >>> wordnet_names()["n01440764"]
    ('tench, Tinca tinca', 'tench', 'Tinca tinca')
    """
    labels = ImageNetInfo().label_descriptions(as_dict=True)
    return {wnid: (label, *label.split(", ")) for wnid, label in labels.items()}
