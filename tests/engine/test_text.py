"""Text classes against open_clip's own towers; attribution of a cosine against hooks in float64."""

import copy
import json
import pickle
import re
import sys
from functools import partial
from pathlib import Path

import open_clip
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import vitviz
from tests.engine import contrastive
from tests.engine.random_inspectors import inspect, noise
from tests.engine.small_models import perturbed
from vitviz import analyses
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.engine.studies import attribution
from vitviz.errors import UnsupportedModel, VitvizError

SENTENCES = ["a cat", "a photo of the dog", "the"]
IMAGE = vitviz.sample_image("chelsea")


@pytest.fixture(scope="module", params=["clip", "siglip"])
def two_towers(request, tmp_path_factory):
    """Return an inspector of a folder with two towers, open_clip's model of both, and its tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    model = getattr(contrastive, request.param)(folder)
    return vitviz.load(folder, device="cpu"), model, open_clip.get_tokenizer(f"local-dir:{folder}")


def pixels_of(inspector, trace):
    return input_from_view(trace.view, inspector.preprocessing).tensor[None]


def test_cosines_and_probabilities_equal_open_clip(two_towers):
    inspector, model, tokenizer = two_towers
    classes = vitviz.text(inspector, SENTENCES)
    trace = inspector.with_classes(classes).trace(IMAGE)
    with torch.no_grad():
        image_features = model.encode_image(pixels_of(inspector, trace), normalize=True)
        text_features = model.encode_text(tokenizer(SENTENCES), normalize=True)
        logits = model.get_logits(pixels_of(inspector, trace), tokenizer(SENTENCES))[0][0]
    torch.testing.assert_close(classes.vectors, text_features, atol=1e-6, rtol=0)
    torch.testing.assert_close(
        (trace.logits - classes.bias) / classes.scale,
        (image_features @ text_features.T)[0],
        atol=1e-5,
        rtol=0,
    )
    expected = logits.sigmoid() if classes.score == "sigmoid" else logits.softmax(dim=0)
    assert classes.score == ("softmax" if model.logit_bias is None else "sigmoid")
    scores = dict(trace.top(3))
    for sentence, share in zip(SENTENCES, expected.tolist(), strict=True):
        assert scores[sentence] == pytest.approx(share, abs=1e-5)
    # CLIP's projection is not taken for a classifier of 24 classes, and the inspector is unchanged
    assert inspector.trace(IMAGE).logits is None and inspector.classes is None


def test_templates_are_averaged_and_normalised(two_towers):
    inspector, model, tokenizer = two_towers
    templates = ["a photo of {}", "{} the cat"]
    class_vectors = vitviz.text(inspector, ["dog", "cat"], templates).vectors
    with torch.no_grad():
        for label, vector in zip(["dog", "cat"], class_vectors, strict=True):
            embeddings = [model.encode_text(tokenizer([item.format(label)]))[0] for item in templates]
            mean = sum(item / item.norm() for item in embeddings) / 2
            torch.testing.assert_close(vector, mean / mean.norm(), atol=1e-6, rtol=0)


def test_text_tower_is_read_once_and_long_sentences_are_rejected(two_towers, monkeypatch):
    inspector, _, tokenizer = two_towers
    vitviz.text(inspector, ["cat"])
    monkeypatch.setattr(open_clip, "create_model", None)
    longest = tokenizer.context_length - (2 if hasattr(tokenizer, "encode") else 0)
    assert vitviz.text(inspector, "cat " * longest).labels == ("cat " * longest,)
    with pytest.raises(
        VitvizError, match=f"tokens long; the text tower of .* reads {tokenizer.context_length}"
    ):
        vitviz.text(inspector, ["cat", "cat " * (longest + 1)])
    for sentences in ([], [""], ["cat", "  "], [3]):
        with pytest.raises(VitvizError, match="none of them empty"):
            vitviz.text(inspector, sentences)
    with pytest.raises(VitvizError, match="{} for a sentence"):
        vitviz.text(inspector, ["cat"], ["a photo"])
    for sentence in ("🐈", "חתול", "the"):
        assert vitviz.text(inspector, [sentence]).vectors.norm().item() == pytest.approx(1)


def test_missing_text_tower_is_rejected_with_advice():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    with pytest.raises(UnsupportedModel, match="no text tower .* beside its weights. Pass vectors"):
        vitviz.text(inspector, ["cat"])


def test_missing_open_clip_is_reported_with_install_command(two_towers, monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(VitvizError, match="pip install open-clip-torch"):
        vitviz.text(two_towers[0], ["cat"])


def test_text_classes_are_rejected_in_bfloat16():
    inspector = vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")
    with pytest.raises(VitvizError, match="computed in float32"):
        inspector.with_classes(vitviz.Classes(["one"], torch.ones(1, 5)))


def test_damaged_text_tower_is_reported(tmp_path):
    contrastive.clip(tmp_path)
    inspector = vitviz.load(tmp_path, device="cpu")
    weights = tmp_path / "open_clip_model.safetensors"
    state = load_file(weights)
    state.pop("ln_final.weight")
    save_file(state, weights)
    with pytest.raises(VitvizError, match="The text tower of .* cannot be read"):
        vitviz.text(inspector, ["cat"])


# Attribution of a cosine.

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3}
MODELS = {
    "class token and projection": partial(
        timm.create_model, "vit_base_patch32_clip_224", **SMALL, num_classes=10
    ),
    "average": partial(timm.create_model, "vit_base_patch16_siglip_gap_224", **SMALL),
    "attention pooling": partial(timm.create_model, "vit_base_patch16_siglip_224", **SMALL),
}


def small_clip(name):
    torch.manual_seed(0)
    return perturbed(MODELS[name]())


def random_classes(model, **changes):
    width = model.num_classes or model.embed_dim
    vectors = torch.randn(5, width, generator=torch.Generator().manual_seed(3))
    return vitviz.Classes([f"sentence {i}" for i in range(5)], vectors, **{"scale": 40.0, **changes})


def contributions_by_hooks(model, pixels, row):
    """Return the contributions of heads, projection biases and MLPs to the cosine, and the cosine, in
    float64.

    The norm's deviation and the length |z| keep their values. The score's bias is excluded. `row` is one
    direction or several side by side, shape (width, row); the results then have a last axis.
    """
    model, seen = copy.deepcopy(model).double(), {}
    handles = []
    for layer, block in enumerate(model.blocks):
        handles += [
            block.attn.proj.register_forward_pre_hook(
                lambda _, args, at=layer: seen.__setitem__(("z", at), args[0])
            ),
            block.mlp.register_forward_hook(lambda _, __, out, at=layer: seen.__setitem__(("mlp", at), out)),
        ]
    handles.append(model.norm.register_forward_pre_hook(lambda _, args: seen.__setitem__("x", args[0])))
    if model.attn_pool is not None:
        handles.append(
            model.attn_pool.mlp.register_forward_hook(lambda _, __, out: seen.__setitem__("pool", out))
        )
    with torch.no_grad():
        z = model(pixels.double())
    for handle in handles:
        handle.remove()
    last, norm = seen["x"], model.norm if not isinstance(model.norm, torch.nn.Identity) else model.fc_norm
    deviation = (last.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).sqrt()

    def held(x, constant):  # the linear part alone, or with all constants
        read = (x - x.mean(dim=-1, keepdim=True)) / deviation * norm.weight + constant * norm.bias
        if model.attn_pool is None:
            y = read[:, 0] if model.global_pool == "token" else read.mean(dim=1)
        else:
            pool = model.attn_pool
            keys, values = (one.unflatten(-1, (pool.num_heads, -1)) for one in pool.kv(read).chunk(2, dim=-1))
            values = values - (0 if constant else 1) * pool.kv.bias.chunk(2)[1].unflatten(
                0, (pool.num_heads, -1)
            )
            own = model.norm(last)
            keys = pool.kv(own).chunk(2, dim=-1)[0].unflatten(-1, (pool.num_heads, -1))
            query = pool.q(pool.latent).unflatten(-1, (pool.num_heads, -1))
            shares = torch.einsum("bqhd,bkhd->bhqk", query, keys).mul(pool.scale).softmax(dim=-1)
            y = torch.einsum("bhqk,bkhd->bqhd", shares, values).flatten(2) @ pool.proj.weight.T
            y = (y + constant * (pool.proj.bias + seen["pool"]))[:, 0]
        return y @ model.head.weight.T + constant * model.head.bias if model.num_classes else y

    def share(x):
        return held(x, 0)[0] @ row / z.norm()

    heads, biases, mlps = [], [], []
    for layer, block in enumerate(model.blocks):
        projection = block.attn.proj
        by_head = seen["z", layer].unflatten(-1, (3, -1))
        weights = projection.weight.unflatten(1, (3, -1))
        heads.append(torch.stack([share(by_head[:, :, h] @ weights[:, h].T) for h in range(3)]))
        biases.append(share(projection.bias.expand_as(last)))
        mlps.append(share(seen["mlp", layer]))
    torch.testing.assert_close(held(last, 1), z)  # check of the oracle itself
    lines = (torch.stack(one).float() for one in (heads, biases, mlps))
    return *lines, z[0] @ row / z.norm()


@pytest.mark.parametrize("name", MODELS)
def test_contributions_sum_to_scaled_cosine_and_equal_hooks(name):
    model = small_clip(name)
    classes = random_classes(model, score="sigmoid", bias=-2.5)
    inspector = inspect(model)
    text_inspector = inspector.with_classes(classes)
    trace = text_inspector.trace(noise())
    row = classes.scale * classes.vectors[1].double()
    heads, biases, mlps, cosine = contributions_by_hooks(model, pixels_of(inspector, trace), row)
    account = vitviz.logit_attribution(text_inspector, trace, 1)
    largest = max(
        part.abs().max().item() for part in (account.heads, account.mlps, account.projection_biases)
    )
    assert account.logit == pytest.approx(cosine.item() - 2.5, abs=1e-5 * largest)
    assert abs(account.gap) <= 1e-5 * largest
    tolerance = {"atol": 1e-5 * largest, "rtol": 1e-4, "check_dtype": False}
    torch.testing.assert_close(account.heads, heads, **tolerance)
    torch.testing.assert_close(account.projection_biases, biases, **tolerance)
    torch.testing.assert_close(account.mlps, mlps, **tolerance)
    difference = vitviz.logit_attribution(text_inspector, trace, ("sentence 1", "sentence 3"))
    assert difference.logit == pytest.approx((trace.logits[1] - trace.logits[3]).item(), abs=1e-5)
    assert abs(difference.gap) <= 1e-5 * largest


@pytest.mark.parametrize("name", MODELS)
def test_cosine_near_zero_has_attribution_and_map(name):
    model = small_clip(name)
    z = model(pixels_of(inspect(model), inspect(model).trace(noise())))[0]
    orthogonal = torch.randn(len(z), generator=torch.Generator().manual_seed(1))
    orthogonal -= (orthogonal @ z) / (z @ z) * z
    text_inspector = inspect(model).with_classes(vitviz.Classes(["across"], orthogonal[None]))
    trace = text_inspector.trace(noise())
    account = vitviz.logit_attribution(text_inspector, trace, 0)
    assert abs(account.logit) < 1e-3 and abs(account.gap) <= 1e-5 * account.mlps.abs().max()
    assert abs(vitviz.saliency(text_inspector, trace, 0).unexplained) < 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_text_classes_apply_to_lens_effects_and_earlier_traces(name, monkeypatch):
    model = small_clip(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    inspector, classes = inspect(model), random_classes(model, score="sigmoid", bias=-2.5)
    plain = inspector.trace(noise())
    text_inspector = inspector.with_classes(classes)
    text_trace_of_pass = text_inspector.trace(noise())
    shared = {id(parameter) for parameter in inspector.model.parameters()}
    # the text rows and their bias
    assert sum(id(parameter) not in shared for parameter in text_inspector.model.parameters()) == 2
    frozen = vitviz.saliency(text_inspector, plain, 2)
    assert abs(frozen.unexplained) <= 1e-5 * classes.scale
    effects = text_inspector.effects(noise(), 2)
    without = text_inspector.trace(noise(), ablation=vitviz.Ablation(heads=[(1, 2)]))
    assert effects.heads[1, 2].item() == pytest.approx(
        (text_trace_of_pass.logits - without.logits)[2].item(), abs=1e-4
    )
    with monkeypatch.context() as patched:  # from here on only the earlier trace can be used
        patched.setattr(type(text_inspector.model), "forward", None)
        text_trace = text_inspector.answered(plain)
        torch.testing.assert_close(text_trace.logits, text_trace_of_pass.logits, atol=1e-5, rtol=0)
        assert text_trace is text_inspector.answered(plain) and text_trace.top(1)[0][0].startswith("sentence")
        assert text_trace.tokens is plain.tokens
        account = vitviz.logit_attribution(text_inspector, plain, 2)
        assert torch.equal(
            account.heads, vitviz.logit_attribution(text_inspector, text_trace_of_pass, 2).heads
        )
        now, share = (
            vitviz.logit_lens(text_inspector, plain),
            vitviz.logit_lens(text_inspector, plain, form="share"),
        )
        torch.testing.assert_close(share[-1], text_trace_of_pass.logits, atol=1e-4, rtol=0)
        steps = account.heads.sum(dim=1) + account.projection_biases + account.mlps
        torch.testing.assert_close(share.diff(dim=0)[:, 2], steps.float(), atol=1e-4, rtol=0)
        with torch.no_grad():
            z = model.forward_head(model.norm(plain.tokens[1][None]))[0]
        expected = 40 * torch.nn.functional.normalize(z, dim=0) @ classes.vectors.T - 2.5
        torch.testing.assert_close(now[1], expected, atol=1e-4, rtol=0)
        assert inspector.answered(text_trace).classes is None
    for key, value in model.state_dict().items():
        assert torch.equal(before[key], value), key
    assert model.head is inspector.model.head and inspector.trace(noise()).classes is None


@pytest.mark.parametrize("name", ["class token and projection", "average"])
def test_patch_scores_use_length_of_patch_embedding(name):
    model = small_clip(name)
    text_inspector = inspect(model).with_classes(random_classes(model, score="sigmoid", bias=-2.5))
    trace = text_inspector.trace(noise())
    ledger = attribution.checked_logit_terms(text_inspector, trace)
    with torch.no_grad():
        patches = trace.tokens[2][trace.grid.prefix :]
        read = model.fc_norm(model.norm(patches))
        z = model.head(read)
    logits = 40 * torch.nn.functional.normalize(z, dim=-1) @ text_inspector.classes.vectors.T - 2.5
    tolerance = {"atol": 1e-4, "rtol": 0, "check_dtype": False}
    torch.testing.assert_close(
        analyses.lens_probabilities(ledger, 2).flatten(1), logits.sigmoid().T, **tolerance
    )
    scores = vitviz.logit_lens(text_inspector, trace, patches=True, target=3)[2].flatten()
    torch.testing.assert_close(scores, logits[:, 3], **tolerance)
    scores = vitviz.logit_lens(text_inspector, trace, patches=True, target=(3, 0))[2].flatten()
    torch.testing.assert_close(scores, logits[:, 3] - logits[:, 0], **tolerance)


def test_faithfulness_and_perturbation_use_text_class_probabilities():
    model = small_clip("average")
    text_inspector = inspect(model).with_classes(random_classes(model, score="sigmoid", bias=-2.5))
    trace = text_inspector.trace(noise())
    probabilities = trace.logits.sigmoid().double()
    result = vitviz.faithfulness(text_inspector, trace, 1, methods=["ledger"], draws=2, patches_as="mean")
    assert result.curves["ledger"].most["probability"][0].item() == pytest.approx(
        probabilities[1].item(), abs=1e-6
    )
    experiment = vitviz.perturbation(text_inspector, trace, draws=2)
    assert experiment.probability["black"][0, 0].item() == pytest.approx(probabilities.max().item(), abs=1e-6)
    assert experiment.label == trace.top(1)[0][0]
    assert (
        trace.top(5)[0][1] == pytest.approx(probabilities.max().item())
        and sum(p for _, p in trace.top(5)) != 1
    )


def test_text_classes_of_other_width_or_model_are_rejected():
    model = small_clip("class token and projection")
    inspector = inspect(model, "mine")
    with pytest.raises(VitvizError, match="vectors have 7 numbers, but mine embeds an image in 10"):
        inspector.with_classes(vitviz.Classes(["one"], torch.ones(1, 7)))
    with pytest.raises(VitvizError, match="made with yours, not with mine"):
        inspector.with_classes(vitviz.Classes(["one"], torch.ones(1, 10), model="yours"))
    distilled = inspect(perturbed(timm.create_model("deit_tiny_distilled_patch16_224", depth=1)))
    with pytest.raises(UnsupportedModel, match="embeds an image twice"):
        distilled.with_classes(vitviz.Classes(["one"], torch.ones(1, 1000)))


def test_text_inspector_can_be_pickled_moved_and_resized():
    model = small_clip("attention pooling")
    text_inspector = inspect(model).with_classes(random_classes(model))
    other = random_classes(model, scale=7.0)
    logits = text_inspector.trace(noise()).logits
    assert torch.equal(pickle.loads(pickle.dumps(text_inspector)).trace(noise()).logits, logits)
    torch.testing.assert_close(text_inspector.on("cpu").trace(noise()).logits, logits)
    torch.testing.assert_close(text_inspector.with_classes(other).trace(noise()).logits * 40 / 7, logits)
    torch.testing.assert_close(text_inspector.with_classes(other, scale=40).trace(noise()).logits, logits)
    assert (
        text_inspector.trace(noise(), size=64).logits.shape == (5,)
        and text_inspector.labels[0] == "sentence 0"
    )


# Last layers that are projections.


def test_projection_is_distinguished_from_classifier_by_files(tmp_path):
    args = {"depth": 1, "embed_dim": 64, "num_heads": 1, "num_classes": 512}
    model = perturbed(timm.create_model("vit_base_patch32_clip_224", **args))
    config = {"architecture": "vit_base_patch32_clip_224", "num_classes": 512, "model_args": args}
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    open_clip_state = {
        f"visual.trunk.{name}": value for name, value in state.items() if not name.startswith("head")
    }
    open_clip_state |= {"visual.head.proj.weight": state["head.weight"], "logit_scale": torch.ones(())}

    def logits(changes, beside=None, labels=None, state=state):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        pretrained_cfg = {**contrastive.TIMM, "input_size": [3, 224, 224], **changes}
        (folder / "config.json").write_text(json.dumps({**config, "pretrained_cfg": pretrained_cfg}))
        save_file(state, folder / "model.safetensors")
        if beside:
            (folder / "open_clip_config.json").write_text(json.dumps(beside))
        return vitviz.load(folder, device="cpu", labels=labels).trace(IMAGE).logits

    assert logits({}).shape == (512,)  # no file states the type
    assert logits({"tag": "openai"}) is None
    assert logits({"tag": "laion2b_ft_in1k"}).shape == logits({"tag": "mine"}).shape == (512,)
    assert logits({"tag": "openai"}, labels=[f"class {i}" for i in range(512)]).shape == (512,)
    assert logits({}, {"model_cfg": {"embed_dim": 512}}) is None
    assert logits({}, {"model_cfg": {"embed_dim": 768}}).shape == (512,)
    assert logits({}, state=open_clip_state) is None


def test_documented_example_runs(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "text.md").read_text(encoding="utf-8")
    (tmp_path / "my-clip").mkdir()
    contrastive.clip(tmp_path / "my-clip")
    (tmp_path / "photos").mkdir()
    for name in ("chelsea", "coffee"):
        vitviz.sample_image(name).save(tmp_path / "photos" / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(compile(block, "text.md", "exec"), names)
    account, classes, trace = names["account"], names["classes"], names["trace"]
    assert abs(account.gap) < 1e-3 and names["asked"].classes == classes
    assert {label for label, _ in names["earlier"].top(2)} == {"cat", "dog"}
    assert names["cosines"].abs().max() <= 1 and trace.classes == classes


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_open_clip_files_need_architecture_in_config(kind, tmp_path):
    getattr(contrastive, kind)(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    with pytest.raises(VitvizError, match="both towers as open_clip saves them.* Add a config.json"):
        vitviz.load(tmp_path, device="cpu")
    required = {name: config[name] for name in ("architecture", "num_classes", "model_args")}
    (tmp_path / "config.json").write_text(json.dumps(required))
    inspector = vitviz.load(tmp_path, device="cpu")
    assert len(inspector.with_classes(vitviz.text(inspector, ["cat", "dog"])).trace(IMAGE).logits) == 2
