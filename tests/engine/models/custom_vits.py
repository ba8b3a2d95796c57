"""Custom Vision Transformers: other names, separate heads, PyTorch's attention, flattened patches."""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, dim) for _ in range(3))

    def forward(self, x):
        scores = self.query(x) @ self.key(x).mT / self.query.out_features**0.5
        return scores.softmax(-1) @ self.value(x)


class SeparateHeads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(width, width // heads) for _ in range(heads))
        self.output_projection = nn.Linear(width, width)

    def forward(self, x):
        return self.output_projection(torch.cat([head(x) for head in self.heads], -1))


class SeparateMatrices(nn.Module):
    """Attention with queries, keys and values of all heads in three matrices without bias."""

    def __init__(self, width, heads):
        super().__init__()
        self.count = heads
        self.wq, self.wk, self.wv = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.wo = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (self.count, -1)).transpose(1, 2) for layer in (self.wq, self.wk, self.wv)
        )
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.wo((weights @ v).transpose(1, 2).flatten(2))


class TorchAttention(nn.Module):
    """PyTorch's own attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0]


class Layer(nn.Module):
    def __init__(self, width, heads, attention, activation, post, epsilon):
        super().__init__()
        self.attention, self.post = attention(width, heads), post
        self.layernorm_1, self.layernorm_2 = (nn.LayerNorm(width, eps=epsilon) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), activation(), nn.Linear(2 * width, width))

    def forward(self, x):
        if self.post:
            x = self.layernorm_1(x + self.attention(x))
            return self.layernorm_2(x + self.mlp(x))
        x = x + self.attention(self.layernorm_1(x))
        return x + self.mlp(self.layernorm_2(x))


class Embedding(nn.Module):
    def __init__(self, width, size, patch, flat):
        super().__init__()
        self.patch, self.flat = patch, flat
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.position_embeddings = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.patch_embeddings = (
            nn.Linear(3 * patch * patch, width) if flat else nn.Conv2d(3, width, patch, patch)
        )

    def forward(self, x):
        if self.flat:  # channels last
            x = x.unfold(2, self.patch, self.patch).unfold(3, self.patch, self.patch)
            x = x.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
            x = self.patch_embeddings(x)
        else:
            x = self.patch_embeddings(x).flatten(2).mT
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.position_embeddings


class CustomViT(nn.Module):
    """A model that returns (logits, None) and has no norm after its last layer."""

    def __init__(
        self, attention=SeparateHeads, heads=4, width=48, size=32, patch=8, depth=2, classes=5,
        activation=nn.GELU, flat=False, post=False, epsilon=1e-5,
    ):  # fmt: skip
        super().__init__()
        self.embedding = Embedding(width, size, patch, flat)
        layers = [Layer(width, heads, attention, activation, post, epsilon) for _ in range(depth)]
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(layers)})
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.encoder["layers"]:
            x = layer(x)
        return self.classifier(x[:, 0]), None
