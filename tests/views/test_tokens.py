"""The view of tokens: its numbers are the analyses' own, for models with registers and without a classifier
too.
"""

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.small_models import small_vit
from tests.shared import shared_file
from tests.views.helpers import of_model
from vitviz.errors import UnsupportedModel, VitvizError, WrongSetting
from vitviz.views import ViewContext
from vitviz.views import tokens as view_of_tokens
from vitviz.views.base import find_item
from vitviz.views.routes import item_array, parse_settings
from vitviz.views.tokens import RepresentationsView

VIEW = RepresentationsView()
SHOWN = ("similarity", "components", "norms", "heads")


def kept() -> dict:
    """As the server keeps what several items share."""
    made = {}
    return {"once": lambda name, make: made[name] if name in made else made.setdefault(name, make())}


@pytest.fixture(scope="module")
def subject(inspector, trace):
    return ViewContext(inspector, trace, **kept())


def item(subject, name, **given):
    settings = parse_settings(VIEW, {key: str(value) for key, value in given.items()}, subject.about)
    return find_item(VIEW, name).checked(VIEW.item(subject, name, settings), subject.about)


def test_components_are_the_default_panel(subject):
    assert parse_settings(VIEW, {}, subject.about)["show"] == "components"
    assert [parse_settings(VIEW, {"show": one}, subject.about)["show"] for one in SHOWN] == list(SHOWN)


@pytest.mark.parametrize("norm, mean", [("raw", "in"), ("final", "out")])
def test_pointer_value_is_cosine_of_two_tokens(subject, norm, mean):
    trace, first = subject.trace, subject.grid.prefix
    inspector = subject.inspector if norm == "final" else None
    chosen = {"depth": 3, "norm": norm, "mean": mean, "token": first + 20, "pins": f"{first + 20}.0"}
    expected = vitviz.token_similarity(trace, 3, 20, centred=mean == "out", norm=inspector).numpy()
    np.testing.assert_allclose(item(subject, "similarity", **chosen), expected, atol=1e-6)
    np.testing.assert_allclose(
        item(subject, "cosines", **chosen)[first + 20, first:], expected.ravel(), atol=1e-3
    )
    np.testing.assert_allclose(item(subject, "line", **chosen)[first:], expected.ravel(), atol=1e-6)
    np.testing.assert_allclose(item(subject, "pinned", **chosen)[0, first:], expected.ravel(), atol=1e-6)
    np.testing.assert_allclose(item(subject, "by_depth", **chosen)[3], expected, atol=1e-3)


def test_normed_last_layer_matches_model():
    model, seen = small_vit(), []
    model.norm.register_forward_hook(lambda module, given, made: seen.append(made[0].clone()))
    inspector = of_model(model)
    trace = inspector.trace(vitviz.sample_image("coffee"))
    torch.testing.assert_close(inspector.final_norm(trace, 2), seen[0])
    assert (inspector.final_norm(trace, 1) - seen[0]).abs().max() > 0.1
    with pytest.raises(VitvizError, match="Use the inspector that made it"):
        of_model(model, "other").final_norm(trace, 2)


def test_final_norm_of_average_pooling_and_missing_norm():
    model = small_vit(global_pool="avg", class_token=False)
    inspector = of_model(model)
    trace = inspector.trace(vitviz.sample_image("coffee"))
    torch.testing.assert_close(inspector.final_norm(trace, 2), model.fc_norm(trace.tokens[2]).detach())
    model.fc_norm = torch.nn.Identity()
    with pytest.raises(UnsupportedModel, match="Use its tokens without a norm"):
        inspector.final_norm(trace, 2)


def test_long_sequence_is_read_row_by_row(subject, monkeypatch):
    monkeypatch.setattr(view_of_tokens, "WHOLE", subject.grid.tokens - 1)
    assert VIEW.summary(subject) == {"whole": False, "samples": VIEW.summary(subject)["samples"]}
    with pytest.raises(WrongSetting, match="Ask for the line of a token instead"):
        item(subject, "cosines")
    assert item(subject, "line").shape == (subject.grid.tokens,)


def test_aligned_colours_vary_less_than_components(subject):
    def jumps(tint):
        colours = item(subject, "tints", tint=tint).astype(float)
        return np.abs(np.diff(colours, axis=0)).mean(axis=(1, 2, 3))

    assert (jumps("steady") <= jumps("plain") + 1).all() and jumps("steady").sum() < 0.8 * jumps(
        "plain"
    ).sum()


def test_components_match_analysis_for_every_basis(subject):
    found = vitviz.token_components(subject.trace, 5)
    np.testing.assert_allclose(item(subject, "components", depth=5), found.scores[0], atol=1e-5)
    np.testing.assert_allclose(item(subject, "shares", depth=5)[5], found.shares, atol=1e-6)
    shares = item(subject, "shares", basis="all")
    assert (shares == shares[0]).all()
    patches = np.concatenate([tokens[subject.grid.prefix :].numpy() for tokens in subject.trace.tokens])
    values = np.linalg.eigvalsh(np.cov(patches.T.astype(float)))
    np.testing.assert_allclose(shares[0], values[::-1][:3] / values.sum(), rtol=1e-5)
    settings = parse_settings(VIEW, {"show": "components", "basis": "all", "depth": "2"}, subject.about)
    taken = VIEW.numbers(subject, settings)
    scores = (subject.trace.tokens[2][subject.grid.prefix :].numpy() - taken["mean"]) @ taken["basis"].T
    np.testing.assert_allclose(taken["components"].reshape(-1, 3), scores, atol=1e-3)


def test_norms_sinks_and_heads_match_trace(subject):
    trace = subject.trace
    attention = np.stack([trace.attention(block).numpy() for block in range(8)])
    arriving = attention.mean(axis=2)
    np.testing.assert_allclose(item(subject, "received", depth=4), arriving[3], rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(item(subject, "received", depth=0), arriving[0], rtol=1e-4, atol=1e-8)
    sinks = item(subject, "sinks")
    np.testing.assert_allclose(sinks[..., 0], arriving.max(axis=-1), rtol=1e-4)
    assert (sinks[..., 1] == arriving.argmax(axis=-1)).all()
    entropy = -(attention * np.log(np.maximum(attention, 1e-45))).sum(axis=-1)
    np.testing.assert_allclose(item(subject, "entropy"), entropy[:, :, 1:].mean(axis=-1), rtol=1e-4)
    np.testing.assert_allclose(item(subject, "prefix_entropy")[..., 0], entropy[:, :, 0], rtol=1e-4)
    largest, tokens = item(subject, "largest"), np.stack([one.numpy() for one in trace.tokens])
    for depth in (0, 8):
        value, token, channel = largest[depth, 0]
        assert abs(value) == np.abs(tokens[depth]).max() and tokens[depth][int(token), int(channel)] == value
        assert item(subject, "typical")[depth] == pytest.approx(np.median(np.abs(tokens[depth])))


@pytest.mark.parametrize(
    "model",
    [{"reg_tokens": 4}, {"num_classes": 0}, {"reg_tokens": 2, "class_token": False, "global_pool": "avg"}],
)
def test_models_with_registers_or_without_classifier(model):
    inspector = of_model(small_vit(**model))
    trace = inspector.trace(vitviz.sample_image("coffee"))
    subject = ViewContext(inspector, trace, **kept())
    assert VIEW.unsupported(subject) is None
    for show in SHOWN:
        for norm in ("raw", "final"):
            settings = parse_settings(VIEW, {"show": show, "norm": norm}, subject.about)
            for name, array in VIEW.numbers(subject, settings).items():
                assert array.dtype.kind == "U" or np.isfinite(array).all(), name
            for declared in VIEW.items:
                declared.checked(item_array(VIEW, subject, declared.name, settings), subject.about)
    norms = item(subject, "norms")
    np.testing.assert_allclose(norms[2], np.linalg.norm(trace.tokens[2], axis=1), rtol=1e-5)
    registers = [name for name in trace.grid.prefix_names if name.startswith("register")]
    assert len(registers) == model.get("reg_tokens", 0)


def test_few_patches_give_fewer_components(subject):
    inspector = of_model(small_vit(patch_size=32, img_size=32))
    few = ViewContext(inspector, inspector.trace(vitviz.sample_image("coffee")), **kept())
    assert item(few, "components").tolist() == [[[0, 0, 0]]]
    assert (item(few, "tints") == 128).all()


def test_norms_of_genuine_weights_match_known_numbers():
    inspector = vitviz.load(
        shared_file("weights/deit_tiny_patch16_224.safetensors"),
        architecture="deit_tiny_patch16_224",
        device="cpu",
    )
    trace = inspector.trace(shared_file("data/both.png"))
    subject = ViewContext(inspector, trace, **kept())
    median, mad = item(subject, "usual")[12]
    assert median == pytest.approx(14.4, abs=0.05) and mad == pytest.approx(1.5, abs=0.05)
    assert item(subject, "norms")[12, 1:].max() == pytest.approx(27.0, abs=0.05)
    value, _, channel = item(subject, "largest")[12, 0]
    assert abs(value) == pytest.approx(19.7, abs=0.05) and channel == 21
    assert item(subject, "typical")[12] == pytest.approx(0.61, abs=0.01)
