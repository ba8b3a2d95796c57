"""Row sums of a layer's attention in one CUDA kernel, which writes no N x N numbers.

For each query i the kernel reads all keys in blocks, with a running maximum m_i of the scores (as in flash
attention) and z_i = sum_j exp(s_ij - m_i), and returns

    sum_j A_ij over patches,  over prefix tokens,  sum_j A_ij d_ij,  and the entropy
    H_i = ln z_i - sum_j A_ij (s_ij - m_i).

Products are computed in float32: of float32 factors by three TF32 products each, of bfloat16 factors exactly.
`streaming.row_sums` computes the same by PyTorch where the kernel does not apply. The sums do not show
anything by themselves: `distance` and `redundancy` interpret them.
"""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.streaming import LOG2_E
from vitviz.traces.trace import Attention

ROWS, KEYS = 64, 32  # queries and keys of a block: the fastest of eight sizes on an H200
LARGEST = 128  # numbers per head that fit into registers
# precision of products, as Triton calls it, and warps per block
CONFIGURATIONS = {torch.float32: ("tf32x3", 2), torch.bfloat16: ("ieee", 4)}


def applies(layers: Sequence[Attention]) -> bool:
    """Return whether the kernel can compute these layers: on CUDA from Ampere on, without a bias."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        return False
    return find_spec("triton") is not None and all(
        one.q.is_cuda and one.q.dtype in CONFIGURATIONS and one.bias is None
        and one.q.shape[-1] <= LARGEST and one.q.stride(-1) == one.k.stride(-1) == 1
        for one in layers
    )  # fmt: skip


def row_sums(
    layers: Sequence[Attention], distances: Float[Tensor, "query key"], prefix: int
) -> Float[Tensor, "layer *image head query 4"]:
    """Return each row's attention on patches, on the prefix, weighted by distance, and its entropy.

    Args:
        layers: calls of equal shape for which `applies` is true.
        distances: pixels between all tokens, 0 for prefix tokens.
        prefix: number of prefix tokens.

    Returns:
        float32, on the layers' device.

    Source: the module. Raises nothing.
    """
    import triton

    shape, kernel = layers[0].q.shape, _kernel()
    *_, heads, tokens, dim = shape
    result = torch.empty(len(layers), *shape[:-1], 4, device=layers[0].q.device)
    blocks = (triton.cdiv(tokens, ROWS), shape[:-2].numel())
    below, right = blocks[0] * ROWS - tokens, -tokens % KEYS  # whole blocks need no mask
    apart = F.pad(distances.to(result), (0, right, 0, below))
    with torch.cuda.device(result.device):
        for layer, sums in zip(layers, result, strict=True):
            q, k = (one if one.ndim == 4 else one.unsqueeze(0) for one in (layer.q, layer.k))
            precision, warps = CONFIGURATIONS[q.dtype]
            kernel[blocks](
                q, k, apart, sums, tokens, apart.shape[1], prefix, layer.scale * LOG2_E, heads, dim,
                *q.stride()[:3], *k.stride()[:3], DIM=max(16, triton.next_power_of_2(dim)), ROWS=ROWS,
                KEYS=KEYS, PRECISION=precision, num_warps=warps,
            )  # fmt: skip
    return result


@cache
def _kernel():
    """Return the compiled kernel; Triton is imported only where there is a GPU."""
    import inspect

    import triton
    import triton.language as tl

    def rows_of(
        queries, keys, distances, sums, tokens, width, prefix, factor, heads, dim, q_image, q_head, q_token,
        k_image, k_head, k_token, DIM: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
        PRECISION: tl.constexpr,
    ):  # fmt: skip
        image, head = tl.program_id(1) // heads, tl.program_id(1) % heads
        rows, dims = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, DIM)
        queries += image.to(tl.int64) * q_image + head * q_head
        keys += image.to(tl.int64) * k_image + head * k_head
        inside = rows < tokens
        q_mask = inside[:, None] & (dims < dim)[None, :]
        q = tl.load(queries + rows[:, None] * q_token + dims[None, :], mask=q_mask, other=0.0)
        distances += rows[:, None] * width + tl.arange(0, KEYS)[None, :]
        largest = tl.full([ROWS], -1e30, tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        on_prefix = tl.zeros([ROWS], tl.float32)
        weighed = tl.zeros([ROWS], tl.float32)
        scored = tl.zeros([ROWS], tl.float32)
        for first in range(0, tokens, KEYS):
            columns = first + tl.arange(0, KEYS)
            k_mask = (columns < tokens)[None, :] & (dims < dim)[:, None]
            k = tl.load(keys + columns[None, :] * k_token + dims[:, None], mask=k_mask, other=0.0)
            scores = tl.dot(q, k, input_precision=PRECISION) * factor
            scores = tl.where((columns < tokens)[None, :], scores, -1e30)
            peak = tl.maximum(largest, tl.max(scores, 1))
            less, before = scores - peak[:, None], largest - peak
            powers, shrink = tl.exp2(less), tl.exp2(before)  # the earlier sums shrink as the peak rises
            scored = shrink * (scored + before * total) + tl.sum(powers * less, 1)
            total = shrink * total + tl.sum(powers, 1)
            weighed = shrink * weighed + tl.sum(powers * tl.load(distances + first), 1)
            on_prefix = shrink * on_prefix
            if first < prefix:
                on_prefix += tl.sum(tl.where((columns < prefix)[None, :], powers, 0.0), 1)
            largest = peak
        sums += (tl.program_id(1).to(tl.int64) * tokens + rows) * 4
        tl.store(sums, 1 - on_prefix / total, mask=inside)
        tl.store(sums + 1, on_prefix / total, mask=inside)
        tl.store(sums + 2, weighed / total, mask=inside)
        tl.store(sums + 3, (tl.log2(total) - scored / total) * 0.6931471805599453, mask=inside)  # ln 2

    return triton.jit(inspect.unwrap(rows_of))  # without a wrapper that checks types
