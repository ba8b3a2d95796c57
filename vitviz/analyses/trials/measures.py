"""What a trial measures: areas under curves of removal, and SaCo.

    area = trapezoid of a score over the share removed, 0 to 100 %
    SaCo = sum_{i<j} +-(s_i - s_j) / sum_{i<j} |s_i - s_j|,   + where D_i >= D_j

with groups from the most relevant to the least, s_i a group's summed value and D_i the drop of the score when
that group alone is removed (Wu et al., CVPR 2024, arXiv 2404.01415). SaCo lies in -1 to 1 and is 0 where the
map tells no group from another. Magnitudes enter it: scaling a map changes nothing, clamping does. Neither
shows that a map is right where a model gets its answer from several places at once.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def area(shares: Float[Tensor, " step"], scores: Float[Tensor, " step"]) -> float:
    """Under one curve; in the score's units, since the shares go from 0 to 1.

    >>> area(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([1.0, 1.0, 0.0]))
    0.75
    """
    return torch.trapezoid(scores.double(), shares.double()).item()


def saco(salience: Float[Tensor, " group"], drops: Float[Tensor, " group"]) -> float:
    """-1 to 1, from the groups' values and what their removal took off the score.

    >>> saco(torch.tensor([3.0, 2.0, 0.0]), torch.tensor([0.5, 0.1, 0.0]))
    1.0
    """
    first, second = torch.triu_indices(len(salience), len(salience), offset=1)
    differences = (salience[first] - salience[second]).double()
    agrees = torch.where(drops[first] >= drops[second], 1.0, -1.0).double()
    whole = differences.abs().sum().item()
    return (agrees * differences).sum().item() / whole if whole > 0 else 0.0
