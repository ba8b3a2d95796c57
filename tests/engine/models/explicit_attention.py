"""Vision Transformers written unlike timm's, with softmax as a module."""

import torch
from einops.layers.torch import Rearrange
from torch import nn


class SwiGLU(nn.Module):
    """DINOv2's SwiGLU, with one matrix for gate and value."""

    def __init__(self, width):
        super().__init__()
        self.w12, self.w3 = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(nn.functional.silu(gate) * value)


class Attention(nn.Module):
    """Attention with its own norm and an explicit softmax, as in many repositories. `way` selects how the
    product is written.
    """

    def __init__(self, width, heads, way="matmul"):
        super().__init__()
        self.heads, self.way, self.scale = heads, way, (width // heads) ** -0.5
        self.norm, self.attend = nn.LayerNorm(width), nn.Softmax(dim=-1)
        self.to_qkv, self.to_out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mix = nn.Parameter(torch.randn(heads, heads))
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 0.3))
        self.bias = nn.Parameter(torch.randn(heads, 17, 17))

    def forward(self, x):
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for one in self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        )
        if self.way in ("einsum", "mixed before", "mixed after"):
            scores = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
        elif self.way == "in place":
            scores = q @ k.mT
            scores *= self.scale
            scores += self.bias
        elif self.way == "baddbmm":
            scores = torch.baddbmm(self.bias, q[0], k[0].mT, alpha=self.scale)[None]
        elif self.way == "temperature":
            scores = nn.functional.normalize(q, dim=-1) @ nn.functional.normalize(k, dim=-1).mT
            scores = scores * self.temperature.exp()
        elif self.way == "keys first":
            scores = (k @ q.mT).mT / self.scale**-1 - 1.5
        else:
            scores = (q * self.scale) @ k.mT
        if self.way == "mixed before":
            scores = torch.einsum("bhij,hg->bgij", scores, self.mix)
        if self.way == "by hand":
            weights = (scores - scores.amax(-1, keepdim=True)).exp()
            weights = weights / weights.sum(-1, keepdim=True)
        elif self.way == "scores by head":
            outputs = [self.attend(one) @ v for one, v in zip(scores[0], v[0], strict=True)]
            return self.to_out(torch.stack(outputs)[None].transpose(1, 2).flatten(2))
        elif self.way == "by head":
            outputs = [self.attend(q @ k.mT) @ v for q, k, v in zip(q[0], k[0], v[0], strict=True)]
            return self.to_out(torch.stack(outputs)[None].transpose(1, 2).flatten(2))
        else:
            weights = self.attend(scores)
        if self.way == "mixed after":
            weights = torch.einsum("bhij,hg->bgij", weights, self.mix)
        if self.way == "changed after":
            weights = weights * 0.9
        outputs = torch.einsum("bhij,bhjd->bhid", weights, v) if self.way == "einsum" else weights @ v
        return self.to_out(outputs.transpose(1, 2).flatten(2))


class ListViT(nn.Module):
    """A model whose layers are lists of attention and MLP. The model itself adds their outputs."""

    def __init__(self, width=32, heads=4, depth=3, way="matmul", mlp=None, after=0):
        super().__init__()
        self.patch, self.after = nn.Linear(3 * 8 * 8, width), after
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.registers = nn.Parameter(torch.randn(1, after, width))
        self.pos_embedding = nn.Parameter(torch.randn(1, 16, width))
        mlp = mlp or (
            lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        )
        self.layers = nn.ModuleList(
            nn.ModuleList([Attention(width, heads, way), mlp()]) for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, image):
        patches = image.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
        x = self.patch(patches) + self.pos_embedding
        many = (len(x), -1, -1)
        x = torch.cat(
            [self.cls_token.expand(many), x] if not self.after else [x, self.registers.expand(many)], 1
        )
        for attention, mlp in self.layers:
            x = attention(x) + x
            x = mlp(x) + x
        return self.head(self.norm(x).mean(dim=1))


class TupleBlock(nn.Module):
    """A block with PyTorch's attention, which returns its weights. The block returns a tuple."""

    def __init__(self, width, heads, weights):
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(width, heads, batch_first=True), weights
        self.norm, self.mlp = nn.LayerNorm(width), SwiGLU(width)

    def forward(self, x):
        y = self.norm(x)
        x += self.attention(y, y, y, need_weights=self.weights, average_attn_weights=False)[0]
        return x + self.mlp(x), None


class TupleViT(nn.Module):
    """A model that returns a dict with two outputs."""

    def __init__(self, width=32, heads=4, depth=2, weights=True):
        super().__init__()
        self.embed, self.first = nn.Conv2d(3, width, 8, 8), nn.Parameter(torch.randn(1, 2, width))
        self.blocks = nn.ModuleList(TupleBlock(width, heads, weights) for _ in range(depth))
        self.head, self.other = nn.Linear(width, 5), nn.Linear(width, 2)

    def forward(self, image):
        x = self.embed(image).flatten(2).mT
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        for block in self.blocks:
            x, _ = block(x)
        return {"scores": self.head(x[:, 0]), "side": self.other(x[:, 1])}


class SimpleViT(nn.Module):
    """SimpleViT: norms around the patch embedding, fixed sines as positions, no class token, average
    pooling.
    """

    def __init__(self, channels=3, width=32, heads=4, depth=2, patch=8, side=32):
        super().__init__()
        size = channels * patch**2
        self.to_patch_embedding = nn.Sequential(
            Rearrange("b c (h p1) (w p2) -> b h w (p1 p2 c)", p1=patch, p2=patch),
            nn.LayerNorm(size), nn.Linear(size, width), nn.LayerNorm(width),
        )  # fmt: skip
        row, col = torch.meshgrid(*[torch.arange(side // patch)] * 2, indexing="ij")
        omega = 10_000.0 ** -(torch.arange(width // 4) / (width // 4 - 1))
        angles = [one.flatten()[:, None] * omega for one in (col, row)]
        self.positions = torch.cat([wave(one) for one in angles for wave in (torch.sin, torch.cos)], dim=1)
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    Attention(width, heads),
                    nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)),
                ]
            )
            for _ in range(depth)
        )
        self.transformer.norm, self.linear_head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, image):
        x = self.to_patch_embedding(image).flatten(1, 2) + self.positions.to(image)
        for attention, mlp in self.transformer.layers:
            x = attention(x) + x
            x = mlp(x) + x
        return self.linear_head(self.transformer.norm(x).mean(dim=1))
