"""Checkpoints that demand excessive resources or hold what weights do not need.

Each checkpoint is a small file written by one function of a folder.
"""

import io
import json
import pickle
import zipfile

import numpy as np
import timm
import torch
from safetensors.torch import save_file

ARGS = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 2}
CONFIG = {
    "architecture": "vit_tiny_patch16_224",
    "num_classes": 7,
    "model_args": ARGS,
    "pretrained_cfg": {
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "input_size": [3, 32, 32],
        "crop_pct": 1.0,
        "interpolation": "bicubic",
    },
}


def random_weights(seed=0):
    torch.manual_seed(seed)
    model = timm.create_model(
        CONFIG["architecture"], pretrained=False, num_classes=CONFIG["num_classes"], **ARGS
    )
    return {name: value + 0.1 * torch.randn_like(value) for name, value in model.state_dict().items()}


def save_valid_checkpoint(folder, ending="safetensors", seed=0, config=CONFIG):
    """Write a valid checkpoint into a folder and return its weights file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"model.{ending}"
    if ending == "npz":
        np.savez(path, **{name: value.numpy() for name, value in random_weights(seed).items()})
    elif ending == "safetensors":
        save_file(random_weights(seed), path)
    else:
        torch.save(random_weights(seed), path)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def with_config(*keys, **changes):
    """Return a writer of a valid checkpoint with a changed config."""

    def make(folder):
        config = json.loads(json.dumps(CONFIG))
        inner = config
        for key in keys:
            inner = inner[key]
        inner.update(changes)
        save_valid_checkpoint(folder, config=config)

    return make


def with_input_size(side):
    """Return a writer of a config that leaves the model's size to timm and demands images of another size."""

    def make(folder):
        path = save_valid_checkpoint(folder)
        state = random_weights() | {"pos_embed": torch.randn(1, 785, 64)}
        save_file(state, path)
        args = {name: value for name, value in ARGS.items() if name != "img_size"}
        record = CONFIG["pretrained_cfg"] | {"input_size": [3, side, side], "fixed_input_size": False}
        (folder / "config.json").write_text(
            json.dumps(CONFIG | {"model_args": args, "pretrained_cfg": record})
        )

    return make


def with_state(change):
    def make(folder):
        path = save_valid_checkpoint(folder, "pth")
        torch.save(change(random_weights()), path)

    return make


def with_pickle(text, zipped=True):
    """Return a writer of a .pth file whose pickle consists of these instructions."""

    def make(folder):
        path = save_valid_checkpoint(folder, "pth")
        if not zipped:
            path.write_bytes(text)
            return
        with zipfile.ZipFile(path) as old:
            parts = {entry.filename: old.read(entry) for entry in old.infolist()}
        with zipfile.ZipFile(path, "w") as new:
            for name, data in parts.items():
                new.writestr(name, text if name.endswith("data.pkl") else data)

    return make


def zip_bomb(folder):
    path = save_valid_checkpoint(folder, "npz")
    path.unlink()
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (10**8,)}
        )
        for _ in range(100):
            file.write(bytes(4 * 10**6))


def oversized_npy_header(folder):
    """Write an archive of a few bytes whose array header declares 16 GB."""
    path, array = save_valid_checkpoint(folder, "npz"), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        array, {"descr": "<f4", "fortran_order": False, "shape": (4 * 10**9,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", array.getvalue() + bytes(64))


def deflated_pth(folder):
    """Write a .pth archive with a compressed tensor of 400 MB of zeros."""
    path = save_valid_checkpoint(folder, "pth")
    with zipfile.ZipFile(path) as old:
        parts = {entry.filename: old.read(entry) for entry in old.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for name, data in parts.items():
            new.writestr(name, data)
        with new.open("archive/data/999", "w", force_zip64=True) as file:
            for _ in range(100):
                file.write(bytes(4 * 10**6))


def with_header(text):
    def make(folder):
        save_valid_checkpoint(folder).write_bytes(len(text).to_bytes(8, "little") + text)

    return make


def recursive_state(state):
    state = {"model": state}
    state["model"] = state
    return state


def sparse_state(state):
    return state | {"head.weight": state["head.weight"].to_sparse()}


def quantised_state(state):
    return state | {"head.weight": torch.quantize_per_tensor(state["head.weight"], 0.1, 0, torch.qint8)}


_MANY = (
    b'{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
    + b" " * 20_000_000
    + b'"y":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
)
_LEGACY = b"".join(
    pickle.dumps(part, protocol=2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
)
_BYTES = b"\x80\x02}X\x01\x00\x00\x00ac__builtin__\nbytearray\n\x8a\x05\x00\xbc\xa0\x65\x01\x85Rs."

# name -> (writer, pattern of the error message)
HOSTILE = {
    "depth 20,000": (with_config("model_args", depth=20_000), "a depth of 20,000"),
    "depth 1,000,000": (with_config("model_args", depth=10**6), "a depth of 1,000,000"),
    "width 10^7": (with_config("model_args", embed_dim=10**7), "needs 2,400,002,460,000,007 parameters"),
    "mlp_ratio 4000": (with_config("model_args", mlp_ratio=4000), "needs 66,096,007 parameters"),
    "img_size 30000": (with_config("model_args", img_size=30_000), "needs 900,113,031 parameters"),
    "img_size 4000": (with_config("model_args", img_size=4_000), "pos_embed"),
    "input of 30000": (with_input_size(30_000), "fixed_input_size false.* 30000 x 30000"),
    "input of 64": (with_input_size(64), "fixed_input_size false.* 64 x 64"),
    "classes 10^9": (with_config(num_classes=10**9), "needs 65,000,113,600 parameters"),
    "registers 10^8": (with_config("model_args", reg_tokens=10**8), "needs 12,800,114,055 parameters"),
    "depth as a text": (with_config("model_args", depth="many"), "cannot be built"),
    "depth below zero": (with_config("model_args", depth=-1, num_heads=0), "config.json"),
    "nested config": (lambda folder: save_valid_checkpoint(folder, config="[" * 100_000), "not valid JSON"),
    "long config": (
        lambda folder: save_valid_checkpoint(folder, config="[" + "0," * 4_500_000 + "0]"),
        "more than 8,000,000 bytes",
    ),
    "bytearray": (with_pickle(_BYTES), "bytearray"),
    "bytearray in the old form": (with_pickle(_LEGACY + _BYTES, zipped=False), "bytearray"),
    "a tensor by its size": (
        with_pickle(_BYTES.replace(b"__builtin__\nbytearray", b"torch\nFloatTensor")),
        "run code",
    ),
    "a pickle of millions in the old form": (
        with_pickle(_LEGACY + b"\x80\x02]" + b"K\x01a" * 1_200_000 + b".", zipped=False),
        "instructions",
    ),
    "a pickle of millions": (with_pickle(b"\x80\x02]" + b"K\x01a" * 1_200_000 + b"."), "instructions"),
    "contains itself": (with_state(recursive_state), "contains itself"),
    "expanded": (with_state(lambda state: {"a.weight": torch.zeros(1).expand(10**6, 10**6)}), "expanded"),
    "shared": (
        with_state(lambda state: {f"{i}": state["pos_embed"] for i in range(4_000)}),
        "share storage",
    ),
    "many": (with_state(lambda state: {f"{i}": torch.zeros(1) for i in range(6_000)}), "6,000 tensors"),
    "integer keys": (with_state(lambda state: dict(enumerate(state.values()))), "key of type int"),
    "tuples as keys": (
        with_state(lambda state: {(name, 0): value for name, value in state.items()}),
        "key of type tuple",
    ),
    "half a character as a key": (
        with_state(lambda state: state | {"\ud83d": torch.zeros(1)}),
        r"has a key '\\ud83d'; expected names of tensors",
    ),
    "half a character in a label": (with_config(label_names=["\ud83d"] * 7), "not valid JSON"),
    "sparse": (with_state(sparse_state), "sparse"),
    "quantised": (with_state(quantised_state), "quantised"),
    "meta": (with_state(lambda state: {name: value.to("meta") for name, value in state.items()}), "meta"),
    "an .npz that inflates": (zip_bomb, "would expand to 0.4 GB"),
    "an .npz that boasts": (oversized_npy_header, "announces 16,000,000,000 bytes and holds 64"),
    "a .pth that inflates": (deflated_pth, "would expand to 0.4 GB"),
    "header of 20 MB": (with_header(_MANY), "header of 20,000,"),
    "header that announces more": (
        with_header(b'{"x":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'),
        "announces",
    ),
    "header without end": (with_header(b"[" * 100_000), "damaged"),
}


def make(name, folder):
    HOSTILE[name][0](folder)
