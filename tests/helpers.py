"""Helpers that several test files share."""

from __future__ import annotations

import io
import json

import numpy as np
import torch
from safetensors.torch import save

SURROGATE = "\ud83d"


def npz_bytes(labels, **more) -> bytes:
    file = io.BytesIO()
    np.savez(file, labels=np.array(labels), vectors=np.eye(len(labels), 192), **more)
    return file.getvalue()


def safetensors_bytes(labels, **more) -> bytes:
    """Return a safetensors file whose JSON header contains an escaped lone surrogate."""
    data = save({"vectors": torch.eye(len(labels), 192)}, {"labels": "LABELS", **more})
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].decode().replace('"LABELS"', json.dumps(json.dumps(labels)))
    header += " " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header.encode() + data[8 + length :]
