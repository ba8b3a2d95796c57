"""The CUDA kernel of row sums, run by Triton's interpreter on the CPU, against a softmax in float64.

The interpreter knows no bfloat16; `tests/benchmarks/gpu.py` compares both precisions on a GPU.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch

from vitviz.analyses import attention_kernel
from vitviz.traces.trace import Attention, Bias

pytest.importorskip("triton", reason="Triton is part of PyTorch for Linux only")


# tokens, prefix tokens, numbers per head, scale, largest error allowed
CASES = [(70, 1, 24, 0.2, 1e-6), (64, 0, 16, 0.25, 1e-6), (99, 34, 16, 0.25, 1e-6), (40, 2, 16, 1e3, 1e-4)]


def sums_by_softmax(attention: Attention, distances: torch.Tensor, prefix: int) -> torch.Tensor:
    scores = attention.scale * (attention.q.double() @ attention.k.double().mT)
    weights = scores.softmax(dim=-1)
    rows = [weights[..., prefix:].sum(-1), weights[..., :prefix].sum(-1)]
    rows += [(weights * distances.double()).sum(-1), torch.special.entr(weights).sum(-1)]
    return torch.stack(rows, dim=-1)


def errors_of(tokens: int, prefix: int, dim: int, scale: float) -> list[float]:
    """Return the largest errors of the sums of two layers, by sum, and of one image without a batch."""
    torch.manual_seed(tokens)
    joint = torch.randn(2, tokens, 3, 2, dim)  # image, token, q k v, head, number
    layers = [Attention(*joint.roll(shift, 0).permute(2, 0, 3, 1, 4), scale) for shift in (0, 1)]
    distances = 100 * torch.rand(tokens, tokens)
    distances[:prefix], distances[:, :prefix] = 0, 0
    sums = attention_kernel.row_sums(layers, distances, prefix)
    wanted = torch.stack([sums_by_softmax(layer, distances, prefix) for layer in layers])
    errors = (sums.double() - wanted).abs().amax((0, 1, 2, 3)) / wanted.amax((0, 1, 2, 3)).clamp_min(1)
    one = Attention(*(getattr(layers[0], name)[0] for name in "qkv"), scale)
    alone = attention_kernel.row_sums([one], distances, prefix)[0]
    return [*errors.tolist(), (alone - sums[0, 0]).abs().max().item()]


@pytest.mark.processes
def test_kernel_equals_softmax_in_float64():
    """The interpreter has to be chosen before Triton is imported, so a process of its own runs it."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    module = [sys.executable, "-m", "tests.analyses.test_attention_kernel"]
    ended = subprocess.run(module, capture_output=True, text=True, env=environment, timeout=300)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert len(found) == len(CASES)
    for case, errors in found:
        said = f"{case}: errors on patches, on the prefix, by distance, of entropy, of one image: {errors}"
        assert max(errors) <= case[4], said


def test_kernel_applies_to_plain_attention_on_cuda_only(monkeypatch):
    attention = Attention(*torch.zeros(3, 1, 2, 4, 16), 1.0)
    assert not attention_kernel.applies([attention]), "on the CPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    assert attention_kernel.applies([attention])
    dense = Bias(dense=torch.zeros(1, 2, 4, 4))
    wide, double = torch.zeros(3, 1, 2, 4, 256), torch.zeros(3, 1, 2, 4, 16, dtype=torch.float64)
    for other in (
        Attention(*attention_parts(attention), 1.0, dense),
        Attention(*wide, 1.0),
        Attention(*double, 1.0),
    ):
        assert not attention_kernel.applies([attention, other])


def attention_parts(attention: Attention) -> tuple[torch.Tensor, ...]:
    return attention.q, attention.k, attention.v


if __name__ == "__main__":
    torch.cuda.device = lambda device: nullcontext()  # there is none
    print(json.dumps([(case, errors_of(*case[:4])) for case in CASES]))
