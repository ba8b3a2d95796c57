"""Valid checkpoints with random damage to a header, config, pickle or archive, reproducible by seed."""

import json
import random
import zipfile

from tests.engine.models.hostile import CONFIG, save_valid_checkpoint

_VALUES = [
    None, True, -1, 0, 1, 2, 3, 7, 65, 1000, 10**5, 10**9, 10**30, 0.5, -0.001, 1e-9, 1e9, 1e300,
    float("nan"), float("inf"), "", "32", "gelu",
    "vit_base_patch16_224", "beit_base_patch16_224", "../x", [], [32], [32, 48], [0, 0], [3, 32, 32],
    [1] * 50, {}, {"a": 1},
]  # fmt: skip
_KEYS = [
    "img_size", "patch_size", "in_chans", "embed_dim", "depth", "num_heads", "mlp_ratio", "num_classes",
    "global_pool", "class_token", "reg_tokens",
    "no_embed_class", "pos_embed", "init_values", "qkv_bias", "qk_norm", "pre_norm", "norm_layer",
    "act_layer", "mlp_layer", "block_fn", "dynamic_img_size",
    "drop_path_rate", "fc_norm", "input_size", "mean", "std", "crop_pct", "crop_mode", "interpolation",
    "fixed_input_size", "tag", "label_names", "architecture",
    "pretrained_cfg", "model_args", "model_type", "image_size", "vitviz",
]  # fmt: skip


def make(name, folder):
    """Write the checkpoint of a seed."""
    rng = random.Random(name)
    kind = rng.choice(["config", "config", "header", "safetensors", "pth", "pickle", "npz", "archive"])
    ending = {"pth": "pth", "pickle": "pth", "archive": rng.choice(["pth", "npz"]), "npz": "npz"}.get(
        kind, "safetensors"
    )
    path = save_valid_checkpoint(folder, ending, config=_damaged_config(rng) if kind == "config" else CONFIG)
    if kind == "header":
        _damage_header(path, rng)
    elif kind in ("pickle", "archive"):
        _damage_archive(path, rng, ".pkl" if kind == "pickle" else "")
    elif kind != "config":
        path.write_bytes(_damaged_bytes(path.read_bytes(), rng))


def _damaged_config(rng):
    config = json.loads(json.dumps(CONFIG))
    for _ in range(rng.randint(1, 3)):
        inner = rng.choice(
            [
                one
                for one in (config, config.get("model_args"), config.get("pretrained_cfg"))
                if isinstance(one, dict)
            ]
        )
        key = rng.choice([*inner, *_KEYS]) if rng.random() < 0.9 else rng.choice("abc")
        if rng.random() < 0.1:
            inner.pop(key, None)
        else:
            inner[key] = rng.choice(_VALUES)
    text = json.dumps(config)
    return _damaged_bytes(text.encode(), rng).decode("latin-1") if rng.random() < 0.1 else text


def _damage_header(path, rng):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for _ in range(rng.randint(1, 3)):
        entry = header[rng.choice([name for name in header if name != "__metadata__"])]
        key = rng.choice(["dtype", "shape", "data_offsets"])
        types = ["F16", "BF16", "F64", "I8", "I64", "BOOL", "F8_E4M3", "C64", "U16", "x"]
        numbers = [0, 1, -1, 64, 10**6, 10**18, 2**63, 2**64, 1.5, None]
        entry[key] = (
            rng.choice(types) if key == "dtype" else [rng.choice(numbers) for _ in range(rng.randint(0, 3))]
        )
    text = json.dumps(header).encode()
    path.write_bytes(
        (len(text) if rng.random() < 0.9 else rng.getrandbits(64)).to_bytes(8, "little")
        + text
        + data[8 + length :]
    )


def _damage_archive(path, rng, ending):
    """Change, remove or rename one entry of an archive."""
    with zipfile.ZipFile(path) as old:
        parts = {entry.filename: old.read(entry) for entry in old.infolist()}
    chosen = rng.choice([name for name in parts if name.endswith(ending)])
    change = rng.choice(["bytes", "bytes", "bytes", "gone", "name"])
    with zipfile.ZipFile(path, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as new:
        for name, data in parts.items():
            if name != chosen:
                new.writestr(name, data)
            elif change != "gone":
                new.writestr(
                    name if change == "bytes" else "x/" + name,
                    _damaged_bytes(data, rng) if change == "bytes" else data,
                )


def _damaged_bytes(data, rng):
    """Change, delete or duplicate some bytes, or truncate. Most damage is at the start, where sizes and
    names are.
    """
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        reach = len(data) if rng.random() < 0.3 else min(len(data), 400)
        at = rng.randrange(max(reach, 1))
        how = rng.random()
        if how < 0.6 and data:
            data[at] = rng.randrange(256)
        elif how < 0.75:
            del data[at : at + rng.randint(1, 50)]
        elif how < 0.9:
            data[at:at] = data[at : at + rng.randint(1, 50)]
        else:
            del data[at:]
    return bytes(data)
