"""Class activation maps on tokens: a patch's vector a_i at one place, and the answer's gradient g_i there.

The place follows what the classifier reads. For a class token it is the output of the norm before the last
block's attention: behind that attention the patches of a class-token model have no gradient at all, and the
map would be blank. For an average it is the last block's output, for attention pooling the tokens that it
reads. Prefix tokens are cut off first. Neither sees the class token's own way past the last attention, and
only the last block's part of the network is in them.
"""

from torch import Tensor

from vitviz.analyses.relevance.passes import Passes, Relevance
from vitviz.errors import UnsupportedModel
from vitviz.record.sentence import Sentence, not_applicable

UNSEEN = "nothing was seen at {place}"


def grad_cam(passes: Passes) -> Relevance:
    """max(0, <mean_j g_j, a_i>): pytorch-grad-cam's, before its scaling to 0..1 and enlargement.

    Selvaraju et al. 2017. The mean over patches means something only where the gradient varies little over
    them, which a Transformer does not promise; its sum is in no unit.
    """
    activations, slopes, place = _read(passes)
    found = (activations @ slopes.mean(dim=0)).clamp(min=0)
    return Relevance.of("grad_cam", passes, found, place, signed=False)


def hires_cam(passes: Passes) -> Relevance:
    """<g_i, a_i>, signed: every patch by its own gradient.

    Draelos and Carin 2020 (arXiv 2011.08891). If all behind is linear it sums to the answer, less constants.
    """
    activations, slopes, place = _read(passes)
    return Relevance.of("hires_cam", passes, (activations * slopes).sum(dim=-1), place)


def _read(passes: Passes) -> tuple[Tensor, Tensor, str]:
    place, found = passes.cam_place(), passes.gradients()
    if found.activations is None or found.slopes is None:
        raise UnsupportedModel(not_applicable(passes.trace.checkpoint, Sentence(UNSEEN, place=place)))
    return found.activations.double(), found.slopes.double(), place
