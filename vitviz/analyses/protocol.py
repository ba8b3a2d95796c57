"""What the classroom experiment asks about, and why it is refused; what maps' methods are called.

Without torch, for a page being built. Names do not show anything yet, and say nothing about worth.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vitviz.record.sentence import Sentence

DRAWS = 10  # seeds 1 to 10: `inspector.experiment(image, shuffle=3)` is the third draw of single patches
SHARES = tuple(range(0, 101, 10))  # per cent of the patches that are dropped
WAYS = {"drop": ("dropped", "black"), "shuffle": ("shuffled",)}
SCORES = ("probability", "kept")
NO_HEAD = "{checkpoint} has no classifier, so there is no answer that could be watched."
EDITED = "The experiment is on the whole model. Put back what was taken away."
ONE_PATCH = "{checkpoint} sees a single patch, so there is nothing to drop or to shuffle."


UNTRIED = "This survey tried no maps; ask for the measure 'trial'."
TITLES: Mapping[str, str] = MappingProxyType({
    "ledger": "The account", "frozen": "Frozen linear map", "gradient_rollout": "Gradient rollout",
    "chefer": "Chefer et al. 2021", "grad_cam": "Grad-CAM", "hires_cam": "HiResCAM",
    "attention_gradient": "Attention × gradient", "attention_grad_cam": "Attention Grad-CAM",
    "input_gradient": "Input × gradient", "integrated_gradients": "Integrated gradients",
    "leave_one_out": "Leave one patch out", "rollout": "Rollout", "last_attention": "Last attention",
    "own_patches": "Each patch alone", "maskclip": "MaskCLIP",
    "maskclip_kept": "MaskCLIP, its residual and MLP kept", "sclip": "SCLIP", "clearclip": "ClearCLIP",
    "naclip": "NACLIP", "random": "Random", "centre": "Blob in the centre",
})  # fmt: skip
# of each patch alone, made for sentences: in a trial where it is of given classes, or they are asked for
DENSE = ("own_patches", "maskclip", "maskclip_kept", "sclip", "clearclip", "naclip")


def listed(names: Sequence[str]) -> str:
    """Several methods' titles as one sentence, each of them translated where it is shown.

    >>> listed(["chefer", "grad_cam"])
    'Chefer et al. 2021, Grad-CAM'
    """
    first, *rest = names
    return Sentence("{first}, {rest}", first=TITLES[first], rest=listed(rest)) if rest else TITLES[first]
