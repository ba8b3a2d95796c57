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
NO_HEAD = "{checkpoint} has no classifier, so there is no prediction to measure."
NOT_RGB = "it does not read red, green and blue"
EDITED = "This experiment needs the full model. Restore removed parts first."
ONE_PATCH = "{checkpoint} has a single patch, so nothing can be dropped or shuffled."


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
    over: str = "Bands: ± 2 standard errors over {count} samples."
    ways: tuple[str, ...] = ()  # empty: one way with the kind's own name

    def texts(self) -> set[str]:
        """Return the texts to translate."""
        return {self.name, self.along, self.done, self.guess, self.over} - {""}


_SIDES = "Bands: ± 2 standard errors over {count} directions."
_OTHERS = "Bands: ± 2 standard errors over {count} other images."
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "drop": Kind(
            "patches dropped", "dropped", "patches dropped", " %",
            "{share} % of the patches dropped: {count} of {patches}",
            "How many patches can be removed before the prediction changes?", ways=("dropped", "black"),
        ),
        "shuffle": Kind(
            "patches shuffled", "pieces", "shuffled pieces", "",
            "{count} pieces of {side} × {side} patches shuffled",
            "Does the prediction need the patches in order?", ways=("shuffled",),
        ),
        "shift": Kind(
            "shifted", "pixels", "shift in pixels", " px",
            "image shifted by {count} pixels",
            "Does the prediction change when the image moves by less than a patch? By a whole patch?", _SIDES,
        ),
        "turn": Kind(
            "rotated", "degrees", "rotation in degrees", "°", "image rotated by {count}°",
            "How far can the image be rotated before the prediction changes?", _SIDES,
        ),
        "grey": Kind(
            "less colour", "percent", "colour removed", " %", "{count} % of the colour removed",
            "Does the prediction need colour?", "",
        ),
        "edges": Kind(
            "only edges", "percent", "share of edges in the image", " %",
            "image mixed with {count} % edges", "Are edges enough?", "",
        ),
        "ground": Kind(
            "new background", "patches", "patches from another image, from the border inwards", " %",
            "{share} % of the patches from another image: {count} of {patches}",
            "Which matters more: the centre or the background?", _OTHERS,
        ),
        "texture": Kind(
            "new texture", "percent", "texture from another image", " %",
            "{count} % of the texture from another image", "Which matters more: texture or shape?", _OTHERS,
        ),
    }
)  # fmt: skip
WAYS = {name: kind.ways or (name,) for name, kind in KINDS.items()}


UNTRIED = "This survey has no faithfulness test. Request the measure 'trial'."
TITLES: Mapping[str, str] = MappingProxyType({
    "ledger": "Logit attribution", "frozen": "Frozen linear map",
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


def join_titles(names: Sequence[str]) -> str:
    """Return the titles of several methods as one text; each title is translated where it is displayed.

    >>> join_titles(["chefer", "grad_cam"])
    'Chefer et al. 2021, Grad-CAM'
    """
    first, *rest = names
    if not rest:
        return TITLES[first]
    return LocalizedText("{first}, {rest}", first=TITLES[first], rest=join_titles(rest))
