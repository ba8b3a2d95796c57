"""Twins: plain ViTs that differ in nothing but the position embedding of their patches.

Three kinds, after appendix D.4 of the paper: none, learned 1-D (a row for each patch, in raster
order) and learned 2-D (a row for each column and for each line of the grid, half as wide; a patch
has the two beside each other). The class token is no place in the picture: its row is zero in all
of them. All else starts from the same random weights, and sees the same views in the same order.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

TINY = Path(__file__).resolve().parents[1] / "vitviz-tiny"
sys.path.append(str(TINY))  # what is the same there is not written again: data, lesson, film, teacher

# after the line above, which adds the folder that they lie in
import lesson  # noqa: E402
from settings import FIRST, Settings  # noqa: E402

KINDS = ("none", "1d", "2d")

# 64 px as they are stored, 8 × 8 patches of 8 px: 65 tokens, 1.2 million weights. Labels are all they
# learn from: a teacher's attention would tell the twin without positions what it cannot see.
SETTINGS: Settings = replace(
    FIRST,
    image=64,
    patch=8,
    width=128,
    depth=6,
    heads=4,
    peak_lr=1.5e-3,
    kept=((0.0, 0.25), (0.6, 0.5), (0.9, 1.0)),
    snapshots=(0, 100, 300, 1000, 3000, 6000),
)


class OneD(nn.Module):
    """A learned row for each patch."""

    def forward(self, rows: Tensor) -> Tensor:
        """The table that the model adds, (1, 1 + patch, width), from (patch, width)."""
        return torch.cat([torch.zeros_like(rows[:1]), rows])[None]

    def right_inverse(self, table: Tensor) -> Tensor:
        return table[0, 1:].clone()


class TwoD(nn.Module):
    """A learned row of half the width for each column (X) and each line (Y) of a square grid."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The table that the model adds, (1, 1 + line · column, width), from two of half the width."""
        across = x[None].expand(len(y), -1, -1)
        down = y[:, None].expand(-1, len(x), -1)
        return OneD()(torch.cat([across, down], dim=-1).flatten(0, 1))

    def right_inverse(self, table: Tensor) -> tuple[Tensor, Tensor]:
        side, half = round((table.shape[1] - 1) ** 0.5), table.shape[2] // 2
        grid = table[0, 1:].unflatten(0, (side, side))
        return grid[0, :, :half].clone(), grid[:, 0, half:].clone()


def new_twin(kind: str, seed: int, s: Settings = SETTINGS) -> nn.Module:
    """A twin with the random weights of a seed, to be trained; what ships is `plain`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = lesson.new_model(s)
    if kind == "none":  # nothing is added, and nothing learned
        model.pos_embed = nn.Parameter(torch.zeros_like(model.pos_embed), requires_grad=False)
    else:
        register_parametrization(model, "pos_embed", {"1d": OneD, "2d": TwoD}[kind]())
    return model


def plain(kind: str, weights: dict[str, Tensor], s: Settings = SETTINGS) -> dict[str, Tensor]:
    """A twin's weights as timm's VisionTransformer has them: positions as one table, or none at all."""
    twin = new_twin(kind, 0, s)
    twin.load_state_dict(weights)
    names = [name for name in weights if "pos_embed" not in name]
    table = {} if kind == "none" else {"pos_embed": twin.pos_embed.detach()}
    return {**{name: weights[name] for name in names}, **table}


def plain_model(kind: str, s: Settings = SETTINGS) -> nn.Module:
    """timm's model for `plain` weights."""
    model = lesson.new_model(s)
    if kind == "none":
        model.pos_embed = None  # as timm's own `pos_embed="none"` leaves it
    return model
