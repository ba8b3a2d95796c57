"""Dense saliency maps against loops in float64, on a small CLIP by open_clip and by transformers."""

import math

import numpy as np
import pytest
import torch

import vitviz
from tests.engine import contrastive, contrastive_hf
from tests.engine.constructions import CONSTRUCTIONS, QUICK
from tests.engine.saliency_oracle import small_saliency_inputs
from tests.tiers import sweep
from vitviz.analyses.protocol import DENSE
from vitviz.analyses.saliency import likeliest_class, saliency_map
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.views import ViewContext
from vitviz.views.routes import parse_settings
from vitviz.views.trial import ORDER, FaithfulnessView, method_group
from vitviz.views.trial import tested_methods as methods_of  # pytest collects names that begin with "test"
from vitviz.views.trial.compute import curve_panels

READ = [name for name in CONSTRUCTIONS if name != "class and mean"]


@sweep("construction", READ, quick=QUICK)
def test_last_layer_with_own_attention_output_is_unchanged(construction):
    inputs = small_saliency_inputs(construction)
    own = inputs.trace.layers[-1].output()
    torch.testing.assert_close(inputs.patches(own, False), inputs.patches(None, False), rtol=0, atol=1e-11)
    block, model = inputs.model.blocks[-1], inputs.model
    last = getattr(block, "drop_path2", None) or block.mlp_out_proj
    silent = last.register_forward_hook(lambda *_: torch.zeros_like(_[-1]))
    rope = getattr(model, "rope", None)
    kwargs = {} if rope is None else {"rope": rope.get_embed()}
    with torch.no_grad():
        added = block(inputs.trace.tokens[-2][None], **kwargs)[0] - inputs.trace.tokens[-2]
        silent.remove()
        each = model.norm(added)[:, None].expand(-1, inputs.trace.grid.prefix + 1, -1)
        expected = model.forward_head(each)
    torch.testing.assert_close(inputs.patches(own, True), expected, rtol=0, atol=1e-10)


# A small CLIP, with loops written from the formulas.


def to_numpy(tensor):
    return tensor.detach().double().numpy()


def open_clip_reference(folder):
    """Return the tower, its last layer, that layer's weights by part, the projection, and the number of
    heads.
    """
    model = contrastive.clip(folder)
    tower = model.visual.double()
    block, width = tower.transformer.resblocks[-1], 128
    parts = {
        **{f"{side}.{end}": getattr(block.attn, f"in_proj_{end}")[i * width : (i + 1) * width]
           for i, side in enumerate("qkv") for end in ("weight", "bias")},
        "out": block.attn.out_proj, "ln1": block.ln_1, "ln2": block.ln_2, "fc1": block.mlp.c_fc,
        "fc2": block.mlp.c_proj, "post": tower.ln_post,
    }  # fmt: skip
    return tower, block, parts, to_numpy(tower.proj), 2


def transformers_reference(folder):
    model = contrastive_hf.clip(folder)
    tower = model.vision_model.double()
    block = tower.encoder.layers[-1]
    own = block.self_attn
    parts = {
        **{side: getattr(own, f"{side}_proj") for side in "qkv"}, "out": own.out_proj,
        "ln1": block.layer_norm1, "ln2": block.layer_norm2, "fc1": block.mlp.fc1, "fc2": block.mlp.fc2,
        "post": tower.post_layernorm,
    }  # fmt: skip
    return tower, block, parts, to_numpy(model.visual_projection.weight).T, 2


@pytest.fixture(scope="module", params=[open_clip_reference, transformers_reference])
def clip_case(request, tmp_path_factory):
    """Return an inspector with five text classes, its trace, and float64 inputs for the loops."""
    folder = tmp_path_factory.mktemp("clip")
    tower, block, parts, projection, heads = request.param(folder)
    inspector = vitviz.load(folder, device="cpu")
    vectors = torch.randn(5, 24, generator=torch.Generator().manual_seed(3))
    text_inspector = inspector.with_classes(vitviz.Classes(range(5), vectors, scale=40.0))
    trace, block_inputs = text_inspector.trace(vitviz.sample_image("chelsea")), []
    hook = block.register_forward_pre_hook(
        lambda _, args, kwargs: block_inputs.append((*args, *kwargs.values())[0]), with_kwargs=True
    )
    with torch.no_grad():
        tower(input_from_view(trace.view, inspector.preprocessing).tensor[None].double())
    hook.remove()
    flat = {}
    for name, part in parts.items():
        one = {"": part} if isinstance(part, torch.Tensor) else {".weight": part.weight, ".bias": part.bias}
        flat |= {name + end: to_numpy(value) for end, value in one.items()}
    tokens = to_numpy(block_inputs[0])
    tokens = tokens[0] if tokens.shape[0] == 1 else tokens[:, 0]
    return text_inspector, trace, (tokens, flat, projection, heads)


def layer_norm(x, weights, name):
    centred = x - x.mean()
    return (
        centred / math.sqrt((centred**2).mean() + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]
    )


def linear(x, weights, name):
    return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]


def gelu(x):
    return np.array([0.5 * one * (1 + math.erf(one / math.sqrt(2))) for one in x])


def softmax(scores):
    powers = [math.exp(one - max(scores)) for one in scores]
    return [one / sum(powers) for one in powers]


# method: (compared pairs, whether near patches are favoured, whether residual and MLP are kept)
RULES = {
    "own_patches": (("qk",), False, True),
    "maskclip": ((), False, False),
    "maskclip_kept": ((), False, True),
    "sclip": (("qq", "kk"), False, True),
    "clearclip": (("qq",), False, False),
    "naclip": (("kk",), True, False),
}


def embeddings_by_loops(tokens, weights, projection, heads, method, side):
    """Return every patch's unit embedding by the method's formulas."""
    pairs, near, kept = RULES[method]
    at = {one: [linear(layer_norm(x, weights, "ln1"), weights, one) for x in tokens] for one in "qkv"}
    dim = len(tokens[0]) // heads
    embeddings = []
    for i in range(1, len(tokens)):
        attended = np.zeros(len(tokens[0]))
        for head in range(heads):
            some = slice(head * dim, (head + 1) * dim)
            if not pairs:
                attended[some] = at["v"][i][some]
            for one, other in pairs:
                scores = []
                for j in range(len(tokens)):
                    score = at[one][i][some] @ at[other][j][some] / math.sqrt(dim)
                    if near and j > 0:
                        (row, col), (row2, col2) = divmod(i - 1, side), divmod(j - 1, side)
                        score += math.exp(-((row - row2) ** 2 + (col - col2) ** 2) / (2 * 5**2))
                    scores.append(score)
                for j, weight in enumerate(softmax(scores)):
                    attended[some] += weight * at["v"][j][some]
        x = linear(attended, weights, "out")
        if kept:
            x = tokens[i] + x
            x = x + linear(gelu(linear(layer_norm(x, weights, "ln2"), weights, "fc1")), weights, "fc2")
        z = layer_norm(x, weights, "post") @ projection
        embeddings.append(z / np.linalg.norm(z))
    return np.stack(embeddings)


@pytest.mark.parametrize("method", RULES)
def test_text_maps_equal_formulas(clip_case, method):
    text_inspector, trace, (tokens, weights, projection, heads) = clip_case
    each = embeddings_by_loops(tokens, weights, projection, heads, method, trace.grid.cols)
    cosines = each @ text_inspector.classes.vectors.double().numpy().T
    result = vitviz.saliency(text_inspector, trace, 2, method)
    scores_with_mean = result.map.flatten().numpy() + result.constants["mean over patches"]
    np.testing.assert_allclose(scores_with_mean / 40, cosines[:, 2], rtol=0, atol=1e-5)
    assert abs(result.map.mean()) < 1e-9 and result.explained is None is result.unexplained
    difference = vitviz.saliency(text_inspector, trace, (2, 4), method)
    scores_with_mean = difference.map.flatten().numpy() + difference.constants["mean over patches"]
    np.testing.assert_allclose(scores_with_mean / 40, cosines[:, 2] - cosines[:, 4], rtol=0, atol=2e-5)
    scores = vitviz.patch_scores(text_inspector, trace, method)
    np.testing.assert_allclose(scores.flatten(1).T / 40, cosines, rtol=0, atol=1e-5)
    least = float(np.median(cosines.max(axis=1)))
    expected = np.where(cosines.max(axis=1) >= least, cosines.argmax(axis=1), -1)
    assert (
        likeliest_class(torch.from_numpy(cosines.T).unflatten(1, (4, 4)), least).flatten().tolist()
        == expected.tolist()
    )


def test_attention_pooling_pools_each_patch_alone(tmp_path):
    model = contrastive_hf.siglip(tmp_path)
    inspector = vitviz.load(tmp_path, device="cpu")
    text_inspector = inspector.with_classes(vitviz.text(inspector, ["a cat", "the dog"]))
    trace, norm_outputs = text_inspector.trace(vitviz.sample_image("chelsea")), []
    norm = model.vision_model.post_layernorm
    hook = norm.register_forward_hook(lambda *clip_case: norm_outputs.append(clip_case[-1]))
    with torch.no_grad():
        model.vision_model(input_from_view(trace.view, inspector.preprocessing).tensor[None])
        hook.remove()
        each = model.vision_model.head(norm_outputs[0][0][:, None])  # one image per patch
    cosines = torch.nn.functional.normalize(each, dim=-1) @ text_inspector.classes.vectors.T
    cosines_of_patches = (
        vitviz.patch_scores(text_inspector, trace, "own_patches") - text_inspector.classes.bias
    ) / text_inspector.classes.scale
    torch.testing.assert_close(cosines_of_patches.flatten(1).T, cosines, atol=1e-5, rtol=0, check_dtype=False)


def test_patches_that_cannot_be_read_alone_are_rejected():
    with pytest.raises(UnsupportedModel, match="side by side"):
        saliency_map(small_saliency_inputs("class and mean"), "naclip")
    with pytest.raises(VitvizError, match="The method 'frozen' does not exist; expected one of own_patches"):
        vitviz.patch_scores(None, None, "frozen")


def test_dense_maps_accept_directions_and_mark_removed_patches(clip_case):
    text_inspector, trace, _ = clip_case
    inputs = small_saliency_inputs("registers", torch.ones(24, dtype=torch.float64))
    each = inputs.model.norm(inputs.trace.tokens[-1][3:]).sum(dim=-1)
    found = saliency_map(inputs, "own_patches").map.flatten()
    torch.testing.assert_close(found, each.detach() - each.mean().item(), check_dtype=False)
    ablated = text_inspector.trace(vitviz.sample_image("chelsea"), ablation=vitviz.Ablation(patches=[3, 5]))
    for method in DENSE:
        missing = (
            vitviz.patch_scores(text_inspector, ablated, method)[0].flatten().isnan().nonzero().flatten()
        )
        assert missing.tolist() == [3, 5], method


def test_dense_methods_take_part_in_faithfulness_of_text_only(clip_case):
    text_inspector, trace, _ = clip_case
    result = vitviz.faithfulness(text_inspector, trace, 2, draws=2)
    assert set(DENSE) <= set(result.curves) and set(result.maps) | set(result.refused) == set(vitviz.METHODS)
    assert sorted(result.curves) == sorted(ORDER)
    subject = ViewContext(text_inspector, trace)
    settings = parse_settings(FaithfulnessView(), {}, subject.about)
    drawn = curve_panels(result, ORDER, subject, settings)[0].series
    assert len({(one.colour, one.dash) for one in drawn}) == len(ORDER) == len(drawn)
    assert methods_of(subject) == ORDER
    tiny = vitviz.load("vitviz-tiny", device="cpu")
    plain_context = ViewContext(tiny, tiny.trace(vitviz.sample_image("chelsea")))
    assert [name for name in ORDER if name not in DENSE] == list(methods_of(plain_context))
    assert all(set(method_group(one)) <= set(DENSE) for one in DENSE)
