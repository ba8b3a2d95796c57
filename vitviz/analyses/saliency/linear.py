"""Value times gradient: of the frozen linear map, of the model itself, and along a path from an empty image.

    map_i = <t_i, ds/dt_i>

with t_i the token at patch i after the position embedding or at the input of a layer, or its pixels. The
contributions of biases, positions and prefix tokens are value times gradient, too, and are listed with the
map by kind. In the frozen map everything adds up to the score, because the map is affine. In the model itself
nothing guarantees that, and the difference is reported. Except for the first layer, a layer's token already
mixes other tokens.

Class activation maps on tokens: a patch's vector a_i at one place, and the score's gradient g_i there. The
place follows what the classifier reads. For a class token it is the output of the norm before the last
block's attention: after that attention the patches of a class-token model have no gradient at all, and the
map would be blank. For an average it is the last block's output, for attention pooling the tokens that it
reads. Prefix tokens are removed first. Neither map includes the class token's own path past the last
attention; both cover only the last block.
"""

from einops import rearrange
from torch import Tensor

from vitviz.analyses.saliency.passes import Gradients, Passes, SaliencyMap
from vitviz.errors import UnsupportedModel, VitvizError, quoted, whole_number
from vitviz.traces.localized_text import LocalizedText, not_applicable

STEM = (
    "its patches are cut from the features of a convolutional stem, so no pixel belongs to one"
    " patch; compute the map at the tokens instead"
)
UNBALANCED = (
    "The frozen linear map is not available for {checkpoint} at {place}: with attention, norms"
    " and gates frozen, the contributions sum to {found}, but the model's output is {answer}."
    " vitviz probably does not support part of this architecture, so it shows no map."
)
UNSEEN = "no activations or gradients were recorded at {place}"
TOLERANCE = 1e-4  # of the score or the largest logit: the tolerated gap of a map that should add up
FIRST, MOST = 16, 512  # first and largest number of Gauss-Legendre nodes of integrated gradients
LONGEST = 2_048  # largest number of nodes on request: computing them takes the cube of their number
CLOSE = 0.05  # tolerated L1 difference to the map with half as many nodes, relative to the last map
Place = str | int


def frozen(passes: Passes, at: Place = "tokens") -> SaliencyMap:
    """Return value times gradient with attention, norms' deviations and gates frozen at the image's values.

    The map, prefix tokens and constants add up to the score. Other names: LibraGrad's core for a Vision
    Transformer (Mehri et al. 2024, arXiv 2411.16760), CP-LRP with the gate held too (Ali et al. 2022, arXiv
    2202.07304). It does not include the origin of the held numbers: why a head attends where it does is
    invisible. Raises UnsupportedModel if the map does not add up.
    """
    result = _read("frozen", passes, passes.frozen_gradients(), at)
    if not abs(result.unexplained) <= TOLERANCE * max(abs(result.answer), passes.trace.size):
        details = {"place": result.at, "found": f"{result.explained:.4f}", "answer": f"{result.answer:.4f}"}
        raise UnsupportedModel(LocalizedText(UNBALANCED, checkpoint=passes.trace.checkpoint, **details))
    return result


def input_gradient(passes: Passes, at: Place = "pixels") -> SaliencyMap:
    """Return input times the model's own gradient: normalised pixels, or the tokens of a place `at`.

    Shrikumar et al. 2016 (arXiv 1605.01713). A gradient shows the effect of a small change; it need not add
    up.
    """
    return _read("input_gradient", passes, passes.gradients(), at)


def integrated_gradients(passes: Passes, steps: int | None = None) -> SaliencyMap:
    """Return integrated gradients: (x - x0) sum_k w_k ds/dx at x0 + a_k (x - x0), x0 = 0 the mean colour.

    Sundararajan et al. 2017 (arXiv 1703.01365), with the nodes a_k and weights w_k of Gauss-Legendre on 0 to
    1. The number of nodes is doubled until two successive maps differ by at most `CLOSE` (L1), or `MOST` is
    reached; `steps` sets the number, and nothing is doubled. With infinitely many nodes the sum is s(x) -
    s(x0). A small gap does not show that the map is right: errors of patches cancel in the sum. The empty
    image is a choice, and pixels of the mean colour get nothing.
    """
    check_steps(steps)
    _require_pixel_map(passes, passes.gradients().pixels)
    path, change = passes.path(steps or FIRST), None
    while steps is None and path.steps < MOST and (change is None or not change <= CLOSE):
        finer = passes.path(2 * path.steps)
        difference, size = (one.abs().sum().item() for one in (finer.pixels - path.pixels, finer.pixels))
        path, change = finer, difference / size if size else difference
    return SaliencyMap(
        "integrated_gradients", path.pixels, passes.answer, "pixels", None,
        {"the empty picture": path.start}, adds_up=True, steps=path.steps, change=change,
        converged=None if change is None else change <= CLOSE,
    )  # fmt: skip


def check_steps(steps: int | None) -> None:
    """Raise VitvizError unless `steps` is None or a possible number of nodes of integrated gradients."""
    if steps is not None and whole_number(steps, 1, LONGEST + 1) is None:
        expected = f"expected a whole number from 1 to {LONGEST}, or None"
        raise VitvizError(f"steps={quoted(steps)} is not valid; {expected}.")


def grad_cam(passes: Passes) -> SaliencyMap:
    """Return Grad-CAM on tokens, max(0, <mean_j g_j, a_i>), before scaling to 0..1 and enlargement.

    Selvaraju et al. 2017, as in pytorch-grad-cam. The mean over patches is meaningful only if the gradient
    varies little over them, which a Transformer does not guarantee. The sum has no unit.
    """
    activations, slopes, place = _at_cam(passes)
    result = (activations @ slopes.mean(dim=0)).clamp(min=0)
    return SaliencyMap.from_patches("grad_cam", passes, result, place, signed=False)


def hires_cam(passes: Passes) -> SaliencyMap:
    """Return HiResCAM on tokens, <g_i, a_i>, signed: every patch weighted by its own gradient.

    Draelos and Carin 2020 (arXiv 2011.08891). If everything after it is linear, it sums to the score, less
    constants.
    """
    activations, slopes, place = _at_cam(passes)
    return SaliencyMap.from_patches("hires_cam", passes, (activations * slopes).sum(dim=-1), place)


def _read(method: str, passes: Passes, gradients: Gradients, at: Place) -> SaliencyMap:
    """Return the map of value times gradient at "pixels", "tokens" or the input of a numbered layer.

    It has the prefix tokens' sum and the constants. Raise VitvizError for an unknown place.
    """
    grid, depths, answer = passes.trace.grid, len(gradients.tokens), gradients.answer
    if at == "pixels":
        _require_pixel_map(passes, gradients.pixels)
        constants = gradients.constants_after(-1)
        return SaliencyMap(method, gradients.pixels, answer, at, None, constants, adds_up=True)
    depth = 0 if at == "tokens" else whole_number(at, below=depths)
    if depth is None:
        raise VitvizError(
            f"at={quoted(at)} is not valid; expected 'tokens' (after the position embedding), 'pixels', or a"
            f" layer's input, from 0 to {depths - 1} (the last layer's output)."
        )
    tokens, place = gradients.tokens[depth], "tokens" if depth == 0 else f"layer {depth}"
    cells = rearrange(tokens[grid.prefix :], "(row col) -> row col", row=grid.rows)
    prefix = tokens[: grid.prefix].sum().item()
    return SaliencyMap(method, cells, answer, place, prefix, gradients.constants_after(depth), adds_up=True)


def _require_pixel_map(passes: Passes, pixels) -> None:
    """Raise UnsupportedModel if `pixels` is None: with a convolutional stem no pixel belongs to one patch."""
    if pixels is None:
        raise UnsupportedModel(not_applicable(passes.trace.checkpoint, LocalizedText(STEM)))


def _at_cam(passes: Passes) -> tuple[Tensor, Tensor, str]:
    """Return the activations and gradients (patch, width) that Grad-CAM reads, and the place's name.

    Raise UnsupportedModel if nothing was recorded there.
    """
    place, result = passes.cam_place(), passes.gradients()
    if result.activations is None or result.slopes is None:
        raise UnsupportedModel(not_applicable(passes.trace.checkpoint, LocalizedText(UNSEEN, place=place)))
    return result.activations.double(), result.slopes.double(), place
