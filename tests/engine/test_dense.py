"""Maps of each patch alone against loops in float64, on a small CLIP by open_clip and by transformers."""

import math

import numpy as np
import pytest
import torch

import vitviz
from tests.engine import contrastive, contrastive_hf
from tests.engine.accounts import CONSTRUCTIONS, QUICK
from tests.engine.saliency_oracle import small_saliency_inputs
from tests.tiers import sweep
from vitviz.analyses.protocol import DENSE
from vitviz.analyses.saliency import likeliest_class, saliency_map
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.views import ViewContext
from vitviz.views.trial import ORDER, FaithfulnessView, method_group
from vitviz.views.trial.compute import curve_panels

READ = [name for name in CONSTRUCTIONS if name != "class and mean"]


@sweep("construction", READ, quick=QUICK)
def test_the_last_block_with_its_own_heads_is_itself_and_alone_what_its_attention_adds(construction):
    one = small_saliency_inputs(construction)
    own = one.trace.layers[-1].output()
    torch.testing.assert_close(one.patches(own, False), one.patches(None, False), rtol=0, atol=1e-11)
    block, model = one.model.blocks[-1], one.model
    last = getattr(block, "drop_path2", None) or block.mlp_out_proj
    silent = last.register_forward_hook(lambda *_: torch.zeros_like(_[-1]))
    rope = getattr(model, "rope", None)
    named = {} if rope is None else {"rope": rope.get_embed()}
    with torch.no_grad():
        added = block(one.trace.tokens[-2][None], **named)[0] - one.trace.tokens[-2]
        silent.remove()
        each = model.norm(added)[:, None].expand(-1, one.trace.grid.prefix + 1, -1)
        expected = model.forward_head(each)
    torch.testing.assert_close(one.patches(own, True), expected, rtol=0, atol=1e-10)


# ----- a small CLIP, in loops written from the formulas


def numbers(tensor):
    return tensor.detach().double().numpy()


def of_open_clip(folder):
    """The last block's weights by their part, the readout's, and the tokens that enter that block."""
    model = contrastive.clip(folder)
    tower = model.visual.double()
    block, width = tower.transformer.resblocks[-1], 128
    parts = {
        **{f"{side}.{end}": getattr(block.attn, f"in_proj_{end}")[i * width : (i + 1) * width]
           for i, side in enumerate("qkv") for end in ("weight", "bias")},
        "out": block.attn.out_proj, "ln1": block.ln_1, "ln2": block.ln_2, "fc1": block.mlp.c_fc,
        "fc2": block.mlp.c_proj, "post": tower.ln_post,
    }  # fmt: skip
    return tower, block, parts, numbers(tower.proj), 2


def of_transformers(folder):
    model = contrastive_hf.clip(folder)
    tower = model.vision_model.double()
    block = tower.encoder.layers[-1]
    own = block.self_attn
    parts = {
        **{side: getattr(own, f"{side}_proj") for side in "qkv"}, "out": own.out_proj,
        "ln1": block.layer_norm1, "ln2": block.layer_norm2, "fc1": block.mlp.fc1, "fc2": block.mlp.fc2,
        "post": tower.post_layernorm,
    }  # fmt: skip
    return tower, block, parts, numbers(model.visual_projection.weight).T, 2


@pytest.fixture(scope="module", params=[of_open_clip, of_transformers])
def given(request, tmp_path_factory):
    """An inspector that was asked about five directions, its trace, and the same in float64 for loops."""
    folder = tmp_path_factory.mktemp("clip")
    tower, block, parts, projection, heads = request.param(folder)
    inspector = vitviz.load(folder, device="cpu")
    vectors = torch.randn(5, 24, generator=torch.Generator().manual_seed(3))
    asked = inspector.with_classes(vitviz.Classes(range(5), vectors, scale=40.0))
    trace, seen = asked.trace(vitviz.sample_image("chelsea")), []
    hook = block.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((*args, *kwargs.values())[0]), with_kwargs=True
    )
    with torch.no_grad():
        tower(input_from_view(trace.view, inspector.preprocessing).tensor[None].double())
    hook.remove()
    flat = {}
    for name, part in parts.items():
        one = {"": part} if isinstance(part, torch.Tensor) else {".weight": part.weight, ".bias": part.bias}
        flat |= {name + end: numbers(value) for end, value in one.items()}
    tokens = numbers(seen[0])
    tokens = tokens[0] if tokens.shape[0] == 1 else tokens[:, 0]
    return asked, trace, (tokens, flat, projection, heads)


def normed(x, weights, name):
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


RULES = {  # which pairs are compared, whether near ones are favoured, whether residual and MLP stay
    "own_patches": (("qk",), False, True),
    "maskclip": ((), False, False),
    "maskclip_kept": ((), False, True),
    "sclip": (("qq", "kk"), False, True),
    "clearclip": (("qq",), False, False),
    "naclip": (("kk",), True, False),
}


def by_loops(tokens, weights, projection, heads, method, side):
    """Every patch's embedding, made unit, by the method's formulas."""
    pairs, near, kept = RULES[method]
    at = {one: [linear(normed(x, weights, "ln1"), weights, one) for x in tokens] for one in "qkv"}
    dim = len(tokens[0]) // heads
    found = []
    for i in range(1, len(tokens)):
        handed = np.zeros(len(tokens[0]))
        for head in range(heads):
            some = slice(head * dim, (head + 1) * dim)
            if not pairs:
                handed[some] = at["v"][i][some]
            for one, other in pairs:
                scores = []
                for j in range(len(tokens)):
                    score = at[one][i][some] @ at[other][j][some] / math.sqrt(dim)
                    if near and j > 0:
                        (row, col), (row2, col2) = divmod(i - 1, side), divmod(j - 1, side)
                        score += math.exp(-((row - row2) ** 2 + (col - col2) ** 2) / (2 * 5**2))
                    scores.append(score)
                for j, share in enumerate(softmax(scores)):
                    handed[some] += share * at["v"][j][some]
        x = linear(handed, weights, "out")
        if kept:
            x = tokens[i] + x
            x = x + linear(gelu(linear(normed(x, weights, "ln2"), weights, "fc1")), weights, "fc2")
        z = normed(x, weights, "post") @ projection
        found.append(z / np.linalg.norm(z))
    return np.stack(found)


@pytest.mark.parametrize("method", RULES)
def test_maps_of_sentences_are_those_of_the_formulas(given, method):
    asked, trace, (tokens, weights, projection, heads) = given
    each = by_loops(tokens, weights, projection, heads, method, trace.grid.cols)
    cosines = each @ asked.classes.vectors.double().numpy().T
    found = vitviz.saliency(asked, trace, 2, method)
    own = found.map.flatten().numpy() + found.constants["mean over patches"]
    np.testing.assert_allclose(own / 40, cosines[:, 2], rtol=0, atol=1e-5)
    assert abs(found.map.mean()) < 1e-9 and found.explained is None is found.unexplained
    both = vitviz.saliency(asked, trace, (2, 4), method)
    own = both.map.flatten().numpy() + both.constants["mean over patches"]
    np.testing.assert_allclose(own / 40, cosines[:, 2] - cosines[:, 4], rtol=0, atol=2e-5)
    scores = vitviz.patch_scores(asked, trace, method)
    np.testing.assert_allclose(scores.flatten(1).T / 40, cosines, rtol=0, atol=1e-5)
    least = float(np.median(cosines.max(axis=1)))
    expected = np.where(cosines.max(axis=1) >= least, cosines.argmax(axis=1), -1)
    assert (
        likeliest_class(torch.from_numpy(cosines.T).unflatten(1, (4, 4)), least).flatten().tolist()
        == expected.tolist()
    )


def test_with_attention_pooling_each_patch_is_pooled_alone(tmp_path):
    model = contrastive_hf.siglip(tmp_path)
    inspector = vitviz.load(tmp_path, device="cpu")
    asked = inspector.with_classes(vitviz.text(inspector, ["a cat", "the dog"]))
    trace, seen = asked.trace(vitviz.sample_image("chelsea")), []
    norm = model.vision_model.post_layernorm
    hook = norm.register_forward_hook(lambda *given: seen.append(given[-1]))
    with torch.no_grad():
        model.vision_model(input_from_view(trace.view, inspector.preprocessing).tensor[None])
        hook.remove()
        each = model.vision_model.head(seen[0][0][:, None])  # as many pictures of one patch
    cosines = torch.nn.functional.normalize(each, dim=-1) @ asked.classes.vectors.T
    found = (vitviz.patch_scores(asked, trace, "own_patches") - asked.classes.bias) / asked.classes.scale
    torch.testing.assert_close(found.flatten(1).T, cosines, atol=1e-5, rtol=0, check_dtype=False)


def test_where_a_patch_cannot_be_read_alone_it_is_said():
    with pytest.raises(UnsupportedModel, match="side by side"):
        saliency_map(small_saliency_inputs("class and mean"), "naclip")
    with pytest.raises(VitvizError, match="Given the method 'frozen'; expected one of own_patches"):
        vitviz.patch_scores(None, None, "frozen")


def test_a_direction_is_asked_about_too_and_missing_patches_are_none(given):
    asked, trace, _ = given
    one = small_saliency_inputs("registers", torch.ones(24, dtype=torch.float64))
    each = one.model.norm(one.trace.tokens[-1][3:]).sum(dim=-1)
    found = saliency_map(one, "own_patches").map.flatten()
    torch.testing.assert_close(found, each.detach() - each.mean().item(), check_dtype=False)
    less = asked.trace(vitviz.sample_image("chelsea"), ablation=vitviz.Ablation(patches=[3, 5]))
    for method in DENSE:
        missing = vitviz.patch_scores(asked, less, method)[0].flatten().isnan().nonzero().flatten()
        assert missing.tolist() == [3, 5], method


def test_they_stand_in_the_trial_of_sentences_alone(given):
    asked, trace, _ = given
    found = vitviz.faithfulness(asked, trace, 2, draws=2)
    assert set(DENSE) <= set(found.curves) and set(found.maps) | set(found.refused) == set(vitviz.METHODS)
    assert sorted(found.curves) == sorted(ORDER)
    subject = ViewContext(asked, trace)
    settings = FaithfulnessView().settings({}, subject.about)
    drawn = curve_panels(found, ORDER, subject, settings)[0].series
    assert len({(one.colour, one.dash) for one in drawn}) == len(ORDER) == len(drawn)
    assert FaithfulnessView().order(subject) == ORDER
    tiny = vitviz.load("vitviz-tiny", device="cpu")
    own = ViewContext(tiny, tiny.trace(vitviz.sample_image("chelsea")))
    assert [name for name in ORDER if name not in DENSE] == list(FaithfulnessView().order(own))
    assert all(set(method_group(one)) <= set(DENSE) for one in DENSE)
