"""DeiT-Tiny as a teacher: soft labels over the 200 classes, its last class token, its early attention.

All 200 classes of Tiny-ImageNet are among the 1000 of ImageNet-1k, so the rows of the
teacher's own head give 200 logits. The teacher never sees more than the student:
64 px pictures, enlarged to its 224 px. It is never a starting point for weights.
"""

from pathlib import Path

import timm
import torch
from einops import rearrange
from safetensors.torch import load_file
from timm.data import ImageNetInfo
from torch import Tensor, nn

import data

SIZE, PATCH = 224, 16  # 14 × 14 patches, the student's grid


def load_teacher(path: Path, device: torch.device) -> nn.Module:
    """DeiT-Tiny with the weights of a file, frozen."""
    model = timm.create_model("deit_tiny_patch16_224", pretrained=False)
    model.load_state_dict(load_file(path))
    return model.eval().requires_grad_(False).to(device)


def class_rows(wordnet_ids: list[str]) -> list[int]:
    """Rows of an ImageNet-1k head that stand for these WordNet ids."""
    row_of = {name: row for row, name in enumerate(ImageNetInfo("imagenet-1k").label_names())}
    return [row_of[wordnet_id] for wordnet_id in wordnet_ids]


@torch.inference_mode()
def class_tokens(model: nn.Module, pictures: Tensor, batch: int = 100, report: bool = False) -> Tensor:
    """The teacher's last class token, what its head reads, for whole pictures: (image, width), float16."""
    tokens = []
    for start in range(0, len(pictures), batch):
        x = data.enlarged(pictures[start : start + batch], SIZE)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            tokens.append(model.forward_head(model.forward_features(x), pre_logits=True).half())
        if report and start % 5000 == 0:
            print(f"teacher: {start} of {len(pictures)}", flush=True)
    return torch.cat(tokens)


def class_logits(model: nn.Module, tokens: Tensor, rows: list[int]) -> Tensor:
    """Logits of the chosen classes from class tokens."""
    return nn.functional.linear(tokens.float(), model.head.weight[rows], model.head.bias[rows])


def cached_class_tokens(model: nn.Module, pictures: Tensor, cache: Path) -> Tensor:
    """Class tokens of all pictures, computed once: some minutes on a CPU, where doing it for each crop would cost more than the training."""
    if cache.exists():
        tokens = torch.load(cache)
        if len(tokens) == len(pictures):
            return tokens
    tokens = class_tokens(model, pictures, report=True)
    torch.save(tokens, cache)
    return tokens


def log_attention(block: nn.Module, tokens: Tensor) -> Tensor:
    """log of a block's attention, (image, head, query, key), in float32."""
    attention = block.attn
    qkv = attention.qkv(block.norm1(tokens))
    q, k, _ = rearrange(qkv, "image token (three head dim) -> three image head token dim", three=3, head=attention.num_heads)
    return ((q * attention.scale) @ k.transpose(-2, -1)).float().log_softmax(dim=-1)


def early_attention(model: nn.Module, tokens: Tensor, layers: tuple[int, ...]) -> list[Tensor]:
    """log-attention of some early layers, for embedded tokens (image, token, width)."""
    maps = []
    for layer in range(max(layers) + 1):
        if layer in layers:
            maps.append(log_attention(model.blocks[layer], tokens))
        if layer < max(layers):
            tokens = model.blocks[layer](tokens)
    return maps
