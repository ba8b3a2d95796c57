"""What the methods are called: in tables, on the page and in sentences. Names say nothing about worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vitviz.sentence import Sentence

UNTRIED = "This survey tried no maps; ask for the measure 'trial'."
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "ledger": "The account",
        "frozen": "Frozen linear map",
        "gradient_rollout": "Gradient rollout",
        "chefer": "Chefer et al. 2021",
        "grad_cam": "Grad-CAM",
        "hires_cam": "HiResCAM",
        "attention_gradient": "Attention × gradient",
        "attention_grad_cam": "Attention Grad-CAM",
        "input_gradient": "Input × gradient",
        "integrated_gradients": "Integrated gradients",
        "leave_one_out": "Leave one patch out",
        "rollout": "Rollout",
        "last_attention": "Last attention",
        "random": "Random",
        "centre": "Blob in the centre",
    }
)


def listed(names: Sequence[str]) -> str:
    """Several methods' titles as one sentence, each of them translated where it is shown.

    >>> listed(["chefer", "grad_cam"])
    'Chefer et al. 2021, Grad-CAM'
    """
    first, *rest = names
    return Sentence("{first}, {rest}", first=TITLES[first], rest=listed(rest)) if rest else TITLES[first]
