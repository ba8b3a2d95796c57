"""Perturbations view: known endpoints, and every draw against another computation."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import vitviz
from vitviz.analyses import patches_kept, shuffled_pieces
from vitviz.analyses.protocol import DRAWS, SHARES, WAYS
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.engine.studies import perturbation
from vitviz.engine.studies.perturbation import PerturbedLogits
from vitviz.errors import Stopped, UnsupportedModel, WrongSetting
from vitviz.server.services.cache import Cache
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.runs import Ablation
from vitviz.traces.samples import samples
from vitviz.views import ViewContext
from vitviz.views import experiment as made
from vitviz.views.availability import refusal
from vitviz.views.base import find_item
from vitviz.views.experiment import PerturbationsView
from vitviz.views.routes import parse_settings

VIEW = PerturbationsView()


def looked(checkpoint="vitviz-tiny", sample="coffee"):
    inspector = vitviz.load(checkpoint, device="cpu")
    kept: Cache = Cache(500, lambda entry: 1)
    return ViewContext(inspector, inspector.trace(vitviz.sample_image(sample)), once=kept.get)


@pytest.fixture(scope="module")
def subject():
    return looked()


def asked(subject, name, **given):
    settings = parse_settings(VIEW, {key: str(value) for key, value in given.items()}, subject.about)
    return find_item(VIEW, name).checked(VIEW.item(subject, name, settings), subject.about)


def point(subject, kind, step):
    return json.loads(asked(subject, "point", kind=kind, step=step).tobytes())


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("way", ["dropped", "black", "shuffled"])
def test_step_zero_is_bit_equal_to_plain_prediction(subject, way):
    trace, inspector = subject.trace, subject.inspector
    for logits in made._logits_or_reason(subject, way, 0):
        assert torch.equal(logits, trace.logits)
    picture = prepare(open_image(vitviz.sample_image("coffee")), inspector.preprocessing)
    seen = input_from_view(trace.view, inspector.preprocessing)
    assert torch.equal(seen.tensor, picture.tensor), "what the draws begin with is the model's own input"


@pytest.mark.parametrize("way, painted", [("dropped", "dropped"), ("black", "black")])
@pytest.mark.parametrize("step", [1, 5, 9])
def test_draw_equals_trace_without_its_patches(subject, way, painted, step):
    found = made._logits_or_reason(subject, way, step)
    for draw in (1, 7):
        kept = set(patches_kept(subject.grid, SHARES[step], draw).tolist())
        gone = [patch for patch in range(subject.grid.patches) if patch not in kept]
        without = Ablation(patches=gone, patches_as=painted)
        other = subject.inspector.trace(vitviz.sample_image("coffee"), ablation=without)
        close(found[draw - 1], other.logits)
    assert (found[0] - found[6]).abs().max() > 1e-2, "draws differ"


@pytest.mark.parametrize("way", ["dropped", "black"])
def test_dropping_all_patches_gives_one_prediction_for_any_image(subject, way):
    found = made._logits_or_reason(subject, way, len(SHARES) - 1)
    other = looked(sample="rocket")
    assert (subject.trace.logits - other.trace.logits).abs().max() > 0.5
    assert torch.equal(found, made._logits_or_reason(other, way, len(SHARES) - 1))
    assert found.shape[0] == DRAWS and (found == found[0]).all()


def test_empty_images_match_their_names(subject):
    inspector, last = subject.inspector, len(SHARES) - 1
    black = inspector.trace(Image.new("RGB", (300, 300)))
    close(made._logits_or_reason(subject, "black", last)[0], black.logits)
    model = inspector.model
    with torch.no_grad():  # the class token alone, by hand
        tokens = model.cls_token + model.pos_embed[:, :1]
        for block in model.blocks:
            tokens = block(tokens)
        alone = model.head(model.norm(tokens)[:, 0])[0]
    close(made._logits_or_reason(subject, "dropped", last)[0], alone)


def test_dropped_patches_shorten_the_sequence(subject):
    lengths = []
    watched = subject.inspector.model.blocks[1].register_forward_pre_hook(
        lambda block, given: lengths.append(given[0].shape[1])
    )
    try:
        fresh = ViewContext(subject.inspector, subject.trace)
        for step in (1, 9):
            made._logits_or_reason(fresh, "dropped", step)
    finally:
        watched.remove()
    assert set(lengths) == {1 + 196 - 19, 1 + 196 - 176}


def test_only_models_with_positions_depend_on_patch_order(subject):
    blind = looked("vitviz-positions-none-0")
    for step, _ in enumerate(asked(blind, "steps", kind="shuffle")):
        found, plain = made._logits_or_reason(blind, "shuffled", step), blind.trace.logits
        tolerance = 1e-4 * plain.abs().max().item()
        torch.testing.assert_close(found, plain.expand_as(found), atol=tolerance, rtol=0)
    assert asked(blind, "kept", kind="shuffle").min() == 1
    seeing = made._logits_or_reason(subject, "shuffled", 3)
    assert (seeing - subject.trace.logits).abs().max(dim=1).values.min() > 0.1


def test_shuffled_single_patches_follow_the_seed(subject):
    found = made._logits_or_reason(subject, "shuffled", 3)
    for draw in (1, 4):
        close(found[draw - 1], subject.inspector.experiment(subject.trace.view, shuffle=draw).logits)


def test_shuffled_pieces_equal_rearranged_image(subject):
    found, picture = made._logits_or_reason(subject, "shuffled", 1), subject.trace.view.picture
    order = shuffled_pieces(subject.grid, 7, 2)
    anew, (tall, wide) = picture.copy(), subject.grid.patch
    for place, patch in enumerate(order):
        (row, col), (row2, col2) = divmod(place, 14), divmod(int(patch), 14)
        rows, cols = slice(tall * row2, tall * (row2 + 1)), slice(wide * col2, wide * (col2 + 1))
        anew[tall * row : tall * (row + 1), wide * col : wide * (col + 1)] = picture[rows, cols]
    preprocessing = subject.inspector.preprocessing
    pixels = (anew / 255 - np.array(preprocessing.mean)) / np.array(preprocessing.std)
    with torch.no_grad():
        logits = subject.inspector.model(torch.from_numpy(pixels).permute(2, 0, 1)[None].float())
    close(found[1], logits[0])


@pytest.mark.long
def test_numbers_and_points_are_scores_of_draws(subject):
    answer = int(subject.trace.logits.argmax())
    for kind in ("drop", "shuffle", "ground"):
        ways, draws = WAYS[kind], len(made.draw_names(subject, kind))
        numbers = VIEW.numbers(subject, parse_settings(VIEW, {"kind": kind}, subject.about))
        steps = len(numbers["steps"])
        assert numbers["probability"].shape == numbers["kept"].shape == (len(ways), steps, draws)
        for i, way in enumerate(ways):
            for step in (0, 2, steps - 1):
                logits = made._logits_or_reason(subject, way, step).double().numpy()
                powers = np.exp(logits - logits.max(axis=1, keepdims=True))
                shares = powers / powers.sum(axis=1, keepdims=True)
                np.testing.assert_allclose(numbers["probability"][i, step], shares[:, answer], rtol=1e-5)
                assert numbers["kept"][i, step].tolist() == (logits.argmax(axis=1) == answer).tolist()
                told = point(subject, kind, step)[i]
                mean, error = told["means"]["probability"]
                assert mean == pytest.approx(shares[:, answer].mean())
                assert error == pytest.approx(shares[:, answer].std(ddof=1) / draws**0.5, abs=1e-12)
                best = logits[-1].argsort()[::-1][:3]
                labels = [subject.trace.labels[one] for one in best]
                assert [name for name, _ in told["tops"][-1]] == labels
                assert [share for _, share in told["tops"][-1]] == pytest.approx(shares[-1][best])
    dropped = [0, 19, 39, 58, 78, 98, 117, 137, 156, 176, 196]
    assert asked(subject, "steps", kind="drop").tolist() == dropped
    assert asked(subject, "steps", kind="shuffle").tolist() == [1, 4, 49, 196]


def test_orders_match_sampled_draws(subject):
    dropped, shuffled = asked(subject, "orders", kind="drop"), asked(subject, "orders", kind="shuffle")
    assert dropped.shape == (1, DRAWS, 196) and shuffled.shape == (4, DRAWS, 196)
    for draw in (1, 10):
        kept = patches_kept(subject.grid, 30, draw)
        assert sorted(dropped[0, draw - 1, 58:].tolist()) == kept.tolist()
        assert shuffled[2, draw - 1].tolist() == shuffled_pieces(subject.grid, 2, draw).tolist()
    assert (shuffled[0] == np.arange(196)).all()


def test_stopped_computation_resumes(subject):
    from vitviz.traces import cancellation

    fresh = looked()
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        point(fresh, "drop", 4)
    with cancellation.when(lambda: True), pytest.raises(Stopped):
        point(fresh, "shuffle", 1)
    known = point(fresh, "drop", 4)
    with cancellation.when(lambda: True):
        assert point(fresh, "drop", 4) == known, "what is known costs no pass"


@pytest.mark.long
def test_unsupported_protocol_leaves_the_other(monkeypatch):
    fresh, reason = looked(), LocalizedText("it pools with positions of its own")
    answers = PerturbedLogits.kept

    def refusing(draws, kept, patches_as):
        if patches_as == "dropped":
            raise UnsupportedModel(reason)
        return answers(draws, kept, patches_as)

    monkeypatch.setattr(PerturbedLogits, "kept", refusing)
    left, black = point(fresh, "drop", 2)
    assert left["refused"]["text"] == reason and len(black["tops"]) == DRAWS
    numbers = asked(fresh, "probability", kind="drop")
    assert np.isnan(numbers[0, 1:]).all() and np.isfinite(numbers[1]).all()


def test_unknown_step_and_ablated_traces_are_rejected(subject):
    with pytest.raises(WrongSetting, match="step=4 is not valid; expected one of 0 to 3"):
        point(subject, "shuffle", 4)
    trace = subject.inspector.trace(vitviz.sample_image("coffee"), ablation=Ablation(heads=[(4, 1)]))
    assert "full model" in refusal(VIEW, ViewContext(subject.inspector, trace))
    left_out = subject.inspector.trace(vitviz.sample_image("coffee"), ablation=Ablation(patches=[3]))
    assert "full model" in refusal(VIEW, ViewContext(subject.inspector, left_out))


@pytest.mark.long
def test_shift_equals_trace_of_shifted_image(subject):
    """By hand: by a patch, the embeddings before positions are the same ones a column further on."""
    inspector, picture, (_, wide) = subject.inspector, subject.trace.view.picture / 255, subject.grid.patch
    steps = asked(subject, "steps", kind="shift").tolist()
    assert steps[0] == 0 and wide in steps and steps[-1] == 2 * wide
    moved = np.broadcast_to(picture.mean((0, 1)), picture.shape).copy()
    moved[:, wide:] = picture[:, :-wide]
    preprocessing = inspector.preprocessing
    pixels = [(one - np.array(preprocessing.mean)) / preprocessing.std for one in (picture, moved)]
    pixels = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        plain, after = inspector.model.patch_embed(pixels).view(2, 14, 14, -1)
        close(made._logits_or_reason(subject, "shift", steps.index(wide))[0], inspector.model(pixels)[1])
    torch.testing.assert_close(after[:, 1:], plain[:, :-1], atol=1e-5, rtol=0)
    (shown,) = asked(subject, "shown", kind="shift", step=steps.index(wide), draw=1)
    assert np.array_equal(shown[:, wide:, :3], subject.trace.view.picture[:, :-wide])
    assert [one.value for one in VIEW.chart(subject, parse_settings(VIEW, {"kind": "shift"})).levels] == [
        wide,
        2 * wide,
    ]


def test_other_images_exclude_own_and_end_at_their_prediction(subject):
    names = made.draw_names(subject, "ground")
    assert names == tuple(one.title for one in samples() if one.name != "coffee")
    close(made._logits_or_reason(subject, "ground", 10)[-1], looked(sample="rocket").trace.logits)
    alone = perturbation.other_images(subject.inspector, subject.trace, {0: vitviz.sample_image("coffee")})
    with pytest.raises(UnsupportedModel, match="no second image"):
        perturbation.perturbed_logits(
            subject.inspector, subject.trace, "texture", 3, others=[*alone.values()]
        )
