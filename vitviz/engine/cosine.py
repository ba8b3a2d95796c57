"""A classification head of given classes: cosines of an image's embedding with each class's vector.

The embedding is the output of the model's last projection (CLIP) or, for a model without one, the input of
its classifier (SigLIP). The embedding is divided by its length with a reciprocal square root, which analyses
can hold fixed like a norm.
"""

import torch
from torch import Tensor, nn

from vitviz.analyses.readout_stage import SHORTEST
from vitviz.engine.forward.own_model import require_known
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.classes import Classes

TWICE = "{name} embeds an image twice, so there is no single vector to compare with."
UNPOOLED = "{name} embeds every token separately, so an image has no single vector to compare with."


class CosineHead(nn.Module):
    """Compute scale <z, t_c> / |z| + bias for the output z = P y + b of the model's own head."""

    def __init__(self, own: nn.Module, classes: Classes):
        super().__init__()
        self.own = own
        self.scores = nn.Linear(classes.vectors.shape[1], len(classes.labels))
        self.scores.weight = nn.Parameter(classes.scale * classes.vectors)
        self.scores.bias = nn.Parameter(torch.full((len(classes.labels),), float(classes.bias)))
        self.scores.requires_grad_(False)

    def forward(self, y: Tensor) -> Tensor:
        """Return each class's scaled cosine with the head's output, plus the bias; y is its input."""
        z = self.own(y)
        return self.scores(z * z.square().sum(dim=-1, keepdim=True).clamp_min(SHORTEST**2).rsqrt())


def install_classes(model: nn.Module, classes: Classes, name: str, tokens: int) -> None:
    """Add the cosines with given classes as a model's head, in place; `tokens` is the sequence length.

    Raises VitvizError, with both widths, if the widths differ.
    """
    if classes.model not in (None, name):
        raise VitvizError(
            f"These classes were made with {classes.model}, not with {name}. Choose those made with it."
        )
    require_known(model, "its embedding of an image")
    if hasattr(model, "head_dist") or not hasattr(model, "head"):
        raise UnsupportedModel(TWICE.format(name=name))
    model.head = model.head.own if isinstance(model.head, CosineHead) else model.head
    weights = next(model.parameters())
    with torch.no_grad():
        embedding = model.forward_head(torch.zeros(1, tokens, model.embed_dim).to(weights))
    if embedding.ndim != 2:
        raise UnsupportedModel(UNPOOLED.format(name=name))
    if embedding.shape[1] != classes.vectors.shape[1]:
        raise VitvizError(
            f"The vectors have {classes.vectors.shape[1]} numbers, but {name} embeds an image in"
            f" {embedding.shape[1]}. Use vectors of the text tower that it was trained with."
        )
    model.head = CosineHead(model.head, classes).to(weights.device, weights.dtype)
    model.num_classes = len(classes.labels)
