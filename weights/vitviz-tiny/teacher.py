"""DeiT-Tiny as a teacher: soft labels over the 200 classes, its last class token, its early attention.

The teacher never sees more than the student: 64 px pictures, enlarged to its 224 px.
It is never a starting point for weights.
"""

from concurrent.futures import Executor
from pathlib import Path

import data
import timm
import torch
from einops import rearrange
from safetensors.torch import load_file
from torch import Tensor, nn

SIZE, PATCH = 224, 16  # 14 × 14 patches, the student's grid


def load_teacher(path: Path, device: torch.device) -> nn.Module:
    """DeiT-Tiny with the weights of a file, frozen."""
    model = timm.create_model("deit_tiny_patch16_224", pretrained=False)
    model.load_state_dict(load_file(path))
    open_attention(model, device)
    return model.eval().requires_grad_(False).to(device)


def open_attention(model: nn.Module, device: torch.device) -> None:
    """Compute attention in the open on a CPU: its fused kernel was 1.5 × slower forward and 2 × in a whole
    training step.
    """
    for block in model.blocks:
        block.attn.fused_attn = device.type != "cpu"


def class_tokens(model: nn.Module, pictures: Tensor, workers: Executor, batch: int = 100) -> Tensor:
    """The teacher's last class token, what its head reads, for whole pictures: (image, width), float16."""

    @torch.inference_mode()
    def tokens(start: int) -> Tensor:
        x = data.enlarged(pictures[start : start + batch], SIZE)
        if start % 10000 == 0:
            print(f"teacher: {start} of {len(pictures)}", flush=True)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return model.forward_head(model.forward_features(x), pre_logits=True).half()

    return torch.cat(list(workers.map(tokens, range(0, len(pictures), batch)))).clone()


def fitted_head(tokens: Tensor, labels: Tensor, classes: int, epochs: int = 12) -> nn.Linear:
    """A linear head for our classes on the teacher's class tokens.

    The teacher's own head, its rows of the 200 classes, was made for sharp pictures and
    scores 53.4 % on enlarged 64 px ones; a head fitted to them (seconds) knows better.
    """
    head = nn.Linear(tokens.shape[1], classes).to(tokens.device)
    batch = max(1, min(500, len(labels) // 4))
    steps = epochs * (len(labels) // batch)
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(len(labels), (batch,), device=tokens.device)
        nn.functional.cross_entropy(head(tokens[chosen].float()), labels[chosen]).backward()
        optimizer.step(), optimizer.zero_grad(), schedule.step()
    return head.requires_grad_(False)


def cached_class_tokens(model: nn.Module, pictures: Tensor, workers: Executor, cache: Path) -> Tensor:
    """Class tokens of all whole pictures, computed once.

    Eleven minutes on two cores; asking about every crop would cost more than the training.
    """
    if cache.exists():
        tokens = torch.load(cache)
        if len(tokens) == len(pictures):
            return tokens.to(pictures.device)
    tokens = class_tokens(model, pictures, workers)
    torch.save(tokens.cpu(), cache)
    return tokens


def log_attention(block: nn.Module, tokens: Tensor) -> Tensor:
    """log of a block's attention, (image, head, query, key), in float32."""
    attention = block.attn
    qkv = attention.qkv(block.norm1(tokens))
    q, k, _ = rearrange(
        qkv, "image token (three head dim) -> three image head token dim", three=3, head=attention.num_heads
    )
    return ((q * attention.scale) @ k.transpose(-2, -1)).float().log_softmax(dim=-1)


def log_attentions(model: nn.Module, tokens: Tensor, layers: set[int]) -> dict[int, Tensor]:
    """log-attention of some layers, for embedded tokens (image, token, width)."""
    maps = {}
    for layer in range(max(layers) + 1):
        if layer in layers:
            maps[layer] = log_attention(model.blocks[layer], tokens)
        if layer < max(layers):
            tokens = model.blocks[layer](tokens)
    return maps
