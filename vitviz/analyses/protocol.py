"""Kinds of perturbations and reasons for refusing them; titles of the saliency methods.

This module does not import torch, because the page needs it while it is built. Titles say nothing about the
quality of a method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from vitviz.traces.localized_text import LocalizedText

DRAWS = 10  # seeds 1 to 10: `inspector.experiment(image, shuffle=3)` is the third draw of single patches
SHARES = tuple(range(0, 101, 10))  # per cent, of dropped patches or of another change
SCORES = ("probability", "kept")
NO_HEAD = "{checkpoint} has no classifier, so there is no answer that could be watched."
EDITED = "The experiment is on the whole model. Put back what was taken away."
ONE_PATCH = "{checkpoint} sees a single patch, so there is nothing to drop or to shuffle."


@dataclass(frozen=True)
class Kind:
    """A kind of perturbation: its name, its axis, and the texts that describe steps and draws."""

    name: str
    counts: str  # name of a step in tables
    along: str  # name of the axis
    unit: str  # unit after the step's number
    # a step in words; {count} or {share} per cent; {patches}; {side}: the side of a piece in patches
    done: str
    guess: str  # question shown before the result
    over: str = "Bands: twice the standard error over {count} draws."
    ways: tuple[str, ...] = ()  # empty: one way with the kind's own name

    def texts(self) -> set[str]:
        """Return the texts to translate."""
        return {self.name, self.along, self.done, self.guess, self.over} - {""}


_SIDES = "Bands: twice the standard error over {count} directions."
_OTHERS = "Bands: twice the standard error over {count} other pictures."
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "drop": Kind(
            "patches dropped", "dropped", "patches dropped", " %",
            "{share} % of the patches dropped: {count} of {patches}",
            "How many patches can go before the answer does?", ways=("dropped", "black"),
        ),
        "shuffle": Kind(
            "patches shuffled", "pieces", "pieces that change places", "",
            "{count} pieces of {side} × {side} patches shuffled",
            "Does the answer need the patches in their places?", ways=("shuffled",),
        ),
        "shift": Kind(
            "moved", "pixels", "pixels that everything moves", " px", "everything moved by {count} pixels",
            "Does it matter if everything moves by less than a patch? And by a whole one?", _SIDES,
        ),
        "turn": Kind(
            "turned", "degrees", "degrees that everything turns", "°", "everything turned by {count}°",
            "How far can the picture be turned before the answer changes?", _SIDES,
        ),
        "grey": Kind(
            "less colour", "percent", "colour taken away", " %", "{count} % of the colour taken away",
            "Does the answer need colour?", "",
        ),
        "edges": Kind(
            "only edges", "percent", "edges in place of the picture", " %",
            "{count} % edges, the rest the picture", "Are edges enough?", "",
        ),
        "ground": Kind(
            "another ground", "patches", "patches of another picture, from the rim inwards", " %",
            "{share} % of the patches are another picture's: {count} of {patches}",
            "What decides: what is in the middle, or what is around it?", _OTHERS,
        ),
        "texture": Kind(
            "another texture", "percent", "texture of another picture", " %",
            "{count} % of the texture is another picture's", "What decides: texture or shape?", _OTHERS,
        ),
    }
)  # fmt: skip
WAYS = {name: kind.ways or (name,) for name, kind in KINDS.items()}


UNTRIED = "This survey tried no maps; ask for the measure 'trial'."
TITLES: Mapping[str, str] = MappingProxyType({
    "ledger": "Direct logit attribution", "frozen": "Frozen linear map",
    "gradient_rollout": "Gradient rollout",
    "chefer": "Chefer et al. 2021", "grad_cam": "Grad-CAM", "hires_cam": "HiResCAM",
    "attention_gradient": "Attention × gradient", "attention_grad_cam": "Attention Grad-CAM",
    "input_gradient": "Input × gradient", "integrated_gradients": "Integrated gradients",
    "leave_one_out": "Leave one patch out", "rollout": "Rollout", "last_attention": "Last attention",
    "own_patches": "Each patch alone", "maskclip": "MaskCLIP",
    "maskclip_kept": "MaskCLIP with residual and MLP", "sclip": "SCLIP", "clearclip": "ClearCLIP",
    "naclip": "NACLIP", "random": "Random", "centre": "Blob in the centre",
})  # fmt: skip
# Maps of each patch alone, made for sentences. A faithfulness test includes them for given classes or on
# request.
DENSE = ("own_patches", "maskclip", "maskclip_kept", "sclip", "clearclip", "naclip")


def listed(names: Sequence[str]) -> str:
    """Return the titles of several methods as one text; each title is translated where it is displayed.

    >>> listed(["chefer", "grad_cam"])
    'Chefer et al. 2021, Grad-CAM'
    """
    first, *rest = names
    return LocalizedText("{first}, {rest}", first=TITLES[first], rest=listed(rest)) if rest else TITLES[first]
