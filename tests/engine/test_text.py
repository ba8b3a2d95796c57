"""Sentences as classes against open_clip's own towers; the account of a cosine against hooks in float64."""

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
from tests.engine.looking import inspect, noise
from tests.engine.small import perturbed
from vitviz import analyses
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.engine.studies import attribution
from vitviz.errors import UnsupportedModel, VitvizError

SENTENCES = ["a cat", "a photo of the dog", "the"]
PICTURE = vitviz.sample_image("chelsea")


@pytest.fixture(scope="module", params=["clip", "siglip"])
def given(request, tmp_path_factory):
    """An inspector of a folder with two towers, and open_clip's model of both."""
    folder = tmp_path_factory.mktemp(request.param)
    model = getattr(contrastive, request.param)(folder)
    return vitviz.load(folder, device="cpu"), model, open_clip.get_tokenizer(f"local-dir:{folder}")


def pixels_of(inspector, trace):
    return input_from_view(trace.view, inspector.preprocessing).tensor[None]


def test_cosines_and_probabilities_are_open_clips(given):
    inspector, model, tokenizer = given
    classes = vitviz.text(inspector, SENTENCES)
    trace = inspector.with_classes(classes).trace(PICTURE)
    with torch.no_grad():
        picture = model.encode_image(pixels_of(inspector, trace), normalize=True)
        sentences = model.encode_text(tokenizer(SENTENCES), normalize=True)
        logits = model.get_logits(pixels_of(inspector, trace), tokenizer(SENTENCES))[0][0]
    torch.testing.assert_close(classes.vectors, sentences, atol=1e-6, rtol=0)
    torch.testing.assert_close((trace.logits - classes.bias) / classes.scale, (picture @ sentences.T)[0],
                               atol=1e-5, rtol=0)  # fmt: skip
    expected = logits.sigmoid() if classes.score == "sigmoid" else logits.softmax(dim=0)
    assert classes.score == ("softmax" if model.logit_bias is None else "sigmoid")
    found = dict(trace.top(3))
    for sentence, share in zip(SENTENCES, expected.tolist(), strict=True):
        assert found[sentence] == pytest.approx(share, abs=1e-5)
    # CLIP's projection is not taken for a classifier of 24 classes, nor does anything of it change
    assert inspector.trace(PICTURE).logits is None and inspector.classes is None


def test_templates_are_meant_and_made_unit_again(given):
    inspector, model, tokenizer = given
    templates = ["a photo of {}", "{} the cat"]
    found = vitviz.text(inspector, ["dog", "cat"], templates).vectors
    with torch.no_grad():
        for label, vector in zip(["dog", "cat"], found, strict=True):
            both = [model.encode_text(tokenizer([one.format(label)]))[0] for one in templates]
            mean = sum(one / one.norm() for one in both) / 2
            torch.testing.assert_close(vector, mean / mean.norm(), atol=1e-6, rtol=0)


def test_the_tower_is_read_once_and_sentences_are_never_cut(given, monkeypatch):
    inspector, _, tokenizer = given
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


def test_without_a_text_tower_vectors_are_taken():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    with pytest.raises(UnsupportedModel, match="no text tower .* beside its weights. Give vectors"):
        vitviz.text(inspector, ["cat"])


def test_without_open_clip_it_says_what_to_install(given, monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(VitvizError, match="pip install open-clip-torch"):
        vitviz.text(given[0], ["cat"])


def test_bfloat16_is_refused():
    inspector = vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")
    with pytest.raises(VitvizError, match="computed in float32"):
        inspector.with_classes(vitviz.Classes(["one"], torch.ones(1, 5)))


def test_a_damaged_tower_is_a_sentence(tmp_path):
    contrastive.clip(tmp_path)
    inspector = vitviz.load(tmp_path, device="cpu")
    weights = tmp_path / "open_clip_model.safetensors"
    state = load_file(weights)
    state.pop("ln_final.weight")
    save_file(state, weights)
    with pytest.raises(VitvizError, match="The text tower of .* cannot be read"):
        vitviz.text(inspector, ["cat"])


# ----- the account of a cosine

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3}
MODELS = {
    "class token and projection": partial(
        timm.create_model, "vit_base_patch32_clip_224", **SMALL, num_classes=10
    ),
    "average": partial(timm.create_model, "vit_base_patch16_siglip_gap_224", **SMALL),
    "attention pooling": partial(timm.create_model, "vit_base_patch16_siglip_224", **SMALL),
}


def small(name):
    torch.manual_seed(0)
    return perturbed(MODELS[name]())


def some_classes(model, **changes):
    width = model.num_classes or model.embed_dim
    vectors = torch.randn(5, width, generator=torch.Generator().manual_seed(3))
    return vitviz.Classes([f"sentence {i}" for i in range(5)], vectors, **{"scale": 40.0, **changes})


def lines_by_hooks(model, pixels, row):
    """In float64: what each head, projection bias and MLP wrote, through norm, pooling, projection with the
    norm's deviation and |z| as they were. The logit without the score's bias, too. `row`: one, or several
    side by side, (width, row), the last axis then.
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

    def held(x, constant):  # the linear part alone, or with every constant
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
    torch.testing.assert_close(held(last, 1), z)  # the oracle itself
    lines = (torch.stack(one).float() for one in (heads, biases, mlps))
    return *lines, z[0] @ row / z.norm()


@pytest.mark.parametrize("name", MODELS)
def test_shares_add_up_to_scale_times_cosine_and_are_those_of_hooks(name):
    model = small(name)
    classes = some_classes(model, score="sigmoid", bias=-2.5)
    inspector = inspect(model)
    asked = inspector.with_classes(classes)
    trace = asked.trace(noise())
    row = classes.scale * classes.vectors[1].double()
    heads, biases, mlps, cosine = lines_by_hooks(model, pixels_of(inspector, trace), row)
    found = vitviz.logit_attribution(asked, trace, 1)
    largest = max(part.abs().max().item() for part in (found.heads, found.mlps, found.projection_biases))
    assert found.logit == pytest.approx(cosine.item() - 2.5, abs=1e-5 * largest)
    assert abs(found.gap) <= 1e-5 * largest
    near = {"atol": 1e-5 * largest, "rtol": 1e-4, "check_dtype": False}
    torch.testing.assert_close(found.heads, heads, **near)
    torch.testing.assert_close(found.projection_biases, biases, **near)
    torch.testing.assert_close(found.mlps, mlps, **near)
    both = vitviz.logit_attribution(asked, trace, ("sentence 1", "sentence 3"))
    assert both.logit == pytest.approx((trace.logits[1] - trace.logits[3]).item(), abs=1e-5)
    assert abs(both.gap) <= 1e-5 * largest


@pytest.mark.parametrize("name", MODELS)
def test_a_cosine_near_zero_has_its_account_and_its_map(name):
    model = small(name)
    z = model(pixels_of(inspect(model), inspect(model).trace(noise())))[0]
    across = torch.randn(len(z), generator=torch.Generator().manual_seed(1))
    across -= (across @ z) / (z @ z) * z
    asked = inspect(model).with_classes(vitviz.Classes(["across"], across[None]))
    trace = asked.trace(noise())
    found = vitviz.logit_attribution(asked, trace, 0)
    assert abs(found.logit) < 1e-3 and abs(found.gap) <= 1e-5 * found.mlps.abs().max()
    assert abs(vitviz.saliency(asked, trace, 0).unexplained) < 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_lens_map_effects_and_a_trace_made_before_follow(name, monkeypatch):
    model = small(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    inspector, classes = inspect(model), some_classes(model, score="sigmoid", bias=-2.5)
    plain = inspector.trace(noise())
    asked = inspector.with_classes(classes)
    whole = asked.trace(noise())
    shared = {id(one) for one in inspector.model.parameters()}
    assert sum(id(one) not in shared for one in asked.model.parameters()) == 2  # the rows and their bias
    frozen = vitviz.saliency(asked, plain, 2)
    assert abs(frozen.unexplained) <= 1e-5 * classes.scale
    effects = asked.effects(noise(), 2)
    without = asked.trace(noise(), ablation=vitviz.Ablation(heads=[(1, 2)]))
    assert effects.heads[1, 2].item() == pytest.approx((whole.logits - without.logits)[2].item(), abs=1e-4)
    with monkeypatch.context() as patched:  # from here on a trace made before is all that there is
        patched.setattr(type(asked.model), "forward", None)
        answered = asked.answered(plain)
        torch.testing.assert_close(answered.logits, whole.logits, atol=1e-5, rtol=0)
        assert answered is asked.answered(plain) and answered.top(1)[0][0].startswith("sentence")
        assert answered.tokens is plain.tokens
        account = vitviz.logit_attribution(asked, plain, 2)
        assert torch.equal(account.heads, vitviz.logit_attribution(asked, whole, 2).heads)
        now, share = vitviz.logit_lens(asked, plain), vitviz.logit_lens(asked, plain, form="share")
        torch.testing.assert_close(share[-1], whole.logits, atol=1e-4, rtol=0)
        steps = account.heads.sum(dim=1) + account.projection_biases + account.mlps
        torch.testing.assert_close(share.diff(dim=0)[:, 2], steps.float(), atol=1e-4, rtol=0)
        with torch.no_grad():
            z = model.forward_head(model.norm(plain.tokens[1][None]))[0]
        expected = 40 * torch.nn.functional.normalize(z, dim=0) @ classes.vectors.T - 2.5
        torch.testing.assert_close(now[1], expected, atol=1e-4, rtol=0)
        assert inspector.answered(answered).classes is None
    for key, value in model.state_dict().items():
        assert torch.equal(before[key], value), key
    assert model.head is inspector.model.head and inspector.trace(noise()).classes is None


@pytest.mark.parametrize("name", ["class token and projection", "average"])
def test_a_patchs_own_answer_has_its_own_length(name):
    model = small(name)
    asked = inspect(model).with_classes(some_classes(model, score="sigmoid", bias=-2.5))
    trace = asked.trace(noise())
    ledger = attribution.checked_logit_terms(asked, trace)
    with torch.no_grad():
        patches = trace.tokens[2][trace.grid.prefix :]
        read = model.fc_norm(model.norm(patches))
        z = model.head(read)
    logits = 40 * torch.nn.functional.normalize(z, dim=-1) @ asked.classes.vectors.T - 2.5
    near = {"atol": 1e-4, "rtol": 0, "check_dtype": False}
    torch.testing.assert_close(analyses.lens_probabilities(ledger, 2).flatten(1), logits.sigmoid().T, **near)
    found = vitviz.logit_lens(asked, trace, patches=True, target=3)[2].flatten()
    torch.testing.assert_close(found, logits[:, 3], **near)
    found = vitviz.logit_lens(asked, trace, patches=True, target=(3, 0))[2].flatten()
    torch.testing.assert_close(found, logits[:, 3] - logits[:, 0], **near)


def test_trial_and_experiment_ask_the_classes_for_their_probabilities():
    model = small("average")
    asked = inspect(model).with_classes(some_classes(model, score="sigmoid", bias=-2.5))
    trace = asked.trace(noise())
    own = trace.logits.sigmoid().double()
    trial = vitviz.faithfulness(asked, trace, 1, methods=["ledger"], draws=2, patches_as="mean")
    assert trial.curves["ledger"].most["probability"][0].item() == pytest.approx(own[1].item(), abs=1e-6)
    experiment = vitviz.perturbation(asked, trace, draws=2)
    assert experiment.probability["black"][0, 0].item() == pytest.approx(own.max().item(), abs=1e-6)
    assert experiment.label == trace.top(1)[0][0]
    assert trace.top(5)[0][1] == pytest.approx(own.max().item()) and sum(p for _, p in trace.top(5)) != 1


def test_classes_of_another_width_or_model_are_refused_with_both_figures():
    model = small("class token and projection")
    inspector = inspect(model, "mine")
    with pytest.raises(VitvizError, match="vectors of 7 numbers; mine embeds a picture in 10"):
        inspector.with_classes(vitviz.Classes(["one"], torch.ones(1, 7)))
    with pytest.raises(VitvizError, match="classes of yours for mine"):
        inspector.with_classes(vitviz.Classes(["one"], torch.ones(1, 10), model="yours"))
    distilled = inspect(perturbed(timm.create_model("deit_tiny_distilled_patch16_224", depth=1)))
    with pytest.raises(UnsupportedModel, match="embeds a picture twice"):
        distilled.with_classes(vitviz.Classes(["one"], torch.ones(1, 1000)))


def test_it_is_an_inspector_like_any_other():
    model = small("attention pooling")
    asked = inspect(model).with_classes(some_classes(model))
    other = some_classes(model, scale=7.0)
    logits = asked.trace(noise()).logits
    assert torch.equal(pickle.loads(pickle.dumps(asked)).trace(noise()).logits, logits)
    torch.testing.assert_close(asked.on("cpu").trace(noise()).logits, logits)
    torch.testing.assert_close(asked.with_classes(other).trace(noise()).logits * 40 / 7, logits)
    torch.testing.assert_close(asked.with_classes(other, scale=40).trace(noise()).logits, logits)
    assert asked.trace(noise(), size=64).logits.shape == (5,) and asked.labels[0] == "sentence 0"


# ----- which last layers are projections


def test_a_local_projection_is_told_from_a_classifier_where_the_files_say_it(tmp_path):
    args = {"depth": 1, "embed_dim": 64, "num_heads": 1, "num_classes": 512}
    model = perturbed(timm.create_model("vit_base_patch32_clip_224", **args))
    config = {"architecture": "vit_base_patch32_clip_224", "num_classes": 512, "model_args": args}
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    both = {f"visual.trunk.{name}": value for name, value in state.items() if not name.startswith("head")}
    both |= {"visual.head.proj.weight": state["head.weight"], "logit_scale": torch.ones(())}

    def logits(changes, beside=None, labels=None, state=state):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        said = {**contrastive.TIMM, "input_size": [3, 224, 224], **changes}
        (folder / "config.json").write_text(json.dumps({**config, "pretrained_cfg": said}))
        save_file(state, folder / "model.safetensors")
        if beside:
            (folder / "open_clip_config.json").write_text(json.dumps(beside))
        return vitviz.load(folder, device="cpu", labels=labels).trace(PICTURE).logits

    assert logits({}).shape == (512,)  # nothing says it
    assert logits({"tag": "openai"}) is None
    assert logits({"tag": "laion2b_ft_in1k"}).shape == logits({"tag": "mine"}).shape == (512,)
    assert logits({"tag": "openai"}, labels=[f"class {i}" for i in range(512)]).shape == (512,)
    assert logits({}, {"model_cfg": {"embed_dim": 512}}) is None
    assert logits({}, {"model_cfg": {"embed_dim": 768}}).shape == (512,)
    assert logits({}, state=both) is None


def test_the_documented_example_runs(tmp_path, monkeypatch):
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
def test_open_clips_files_alone_are_read_once_their_architecture_is_named(kind, tmp_path):
    getattr(contrastive, kind)(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    with pytest.raises(VitvizError, match="both towers as open_clip saves them.* Put a config.json"):
        vitviz.load(tmp_path, device="cpu")
    named = {name: said[name] for name in ("architecture", "num_classes", "model_args")}
    (tmp_path / "config.json").write_text(json.dumps(named))
    inspector = vitviz.load(tmp_path, device="cpu")
    assert len(inspector.with_classes(vitviz.text(inspector, ["cat", "dog"])).trace(PICTURE).logits) == 2
