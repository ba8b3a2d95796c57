"""Models without logit attribution, its memory, and what a recording keeps."""

import pickle

import pytest
import timm
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import vitviz
from tests.engine.constructions import TINY, pixels_for, small_model, trace_and_readout
from tests.engine.random_inspectors import inspect, noise
from tests.engine.small_models import perturbed
from vitviz import analyses
from vitviz.engine import readout_stages
from vitviz.errors import UnsupportedModel, VitvizError


@pytest.mark.parametrize("pool", ["max", "avgmax"])
def test_pooling_that_is_no_weighted_sum_is_rejected(pool):
    inspector = inspect(small_model("class", global_pool=pool).float(), "mine")
    trace = inspector.trace(noise())
    assert trace.written is None  # the trace is complete otherwise
    with pytest.raises(
        UnsupportedModel,
        match=f"^mine: not applicable, because its classifier pools by '{pool}', which is not a weighted sum",
    ):
        vitviz.logit_attribution(inspector, trace, 0)


def test_unknown_block_type_is_rejected_by_name():
    model = small_model("class").float()

    class CustomBlock(type(model.blocks[1])):
        pass

    model.blocks[1].__class__ = CustomBlock
    inspector = inspect(model, "mine")
    with pytest.raises(UnsupportedModel, match="because its blocks are of the type CustomBlock"):
        vitviz.logit_attribution(inspector, inspector.trace(noise()), 0)


def test_nonlinear_head_is_rejected_with_relative_error():
    model = small_model("class").float()
    forward = model.forward_head
    # The features equal those of the model's parts, so the readout is verified; the head is not the linear
    # map that it appears to be.
    model.forward_head = lambda x, pre_logits=False: (
        forward(x, True) if pre_logits else forward(x) * 1.01 + 0.2
    )
    inspector = inspect(model, "mine")
    with pytest.raises(
        UnsupportedModel,
        match=r"not available for mine: .* by \d.\de-\d+ of the largest logit, and the tolerance is 1e-04",
    ):
        vitviz.logit_attribution(inspector, inspector.trace(noise()), 0)


def test_changed_weights_are_read_again():
    model = small_model("class").float()
    inspector = inspect(model)
    before = vitviz.logit_attribution(inspector, inspector.trace(noise()), 0)
    with torch.no_grad():
        model.blocks[2].attn.proj.weight.mul_(2)
    trace = inspector.trace(noise())
    after = vitviz.logit_attribution(inspector, trace, 0)
    assert abs(after.gap) < 1e-5 and not torch.allclose(after.heads[2], before.heads[2])


@pytest.mark.parametrize(
    "target, message",
    [
        (6, "6 is not a class; random has classes 0 to 5"), (-1, "-1 is not a class"),
        (True, "True is not a class"), (1.5, "1.5 is not a class"),
        ("dog", "none of its 6 classes has that name"), ("crane", "several classes have that name: 1, 2"),
        ((1, 2, 3), "expected one class, or"),
        (torch.zeros(3), "expected 24 real numbers"),
        (torch.zeros(24, dtype=torch.long), "expected 24 real numbers"),
    ],
)  # fmt: skip
def test_unknown_target_is_rejected(target, message):
    inspector = inspect(small_model("class").float())
    inspector.placed.labels = ("a", "crane", "crane", "b", "c, see", "d")
    trace = inspector.trace(noise())
    assert vitviz.logit_attribution(inspector, trace, "SEE").logit == trace.logits[4].item()
    with pytest.raises(VitvizError, match=message):
        vitviz.logit_attribution(inspector, trace, target)


def test_scores_are_logits_not_probabilities():
    """A constant added to all logits changes only the logits themselves."""
    model = small_model("class")
    plain = analyses.logit_attribution(*trace_and_readout(model, pixels_for(model)), 2, relative=True)
    shifted = small_model("class")
    with torch.no_grad():
        shifted.head.bias.add_(7)
    account = analyses.logit_attribution(*trace_and_readout(shifted, pixels_for(shifted)), 2)
    assert account.head_bias == pytest.approx(shifted.head.bias[2].item())
    relative = analyses.logit_attribution(*trace_and_readout(shifted, pixels_for(shifted)), 2, relative=True)
    assert relative.logit == pytest.approx(plain.logit) and relative.head_bias == pytest.approx(
        plain.head_bias
    )


class LargestTensor(TorchDispatchMode):
    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for one in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(one, torch.Tensor):
                LargestTensor.numbers = max(
                    LargestTensor.numbers, one.untyped_storage().nbytes() // one.element_size()
                )
        return result


@pytest.mark.parametrize("pool", ["token", "avg", "map"])
def test_no_tensor_of_tokens_by_tokens_by_width_is_created(pool):
    model = perturbed(
        timm.create_model("vit_tiny_patch16_224", global_pool=pool, depth=2, num_classes=5, img_size=288)
    )
    inspector = inspect(model)
    trace = inspector.trace(noise())
    tokens, width = trace.tokens[0].shape
    LargestTensor.numbers = 0
    with LargestTensor():
        vitviz.logit_attribution(inspector, trace, 0)
    assert (
        0
        < LargestTensor.numbers
        <= max(4 * tokens * width, 3 * tokens * tokens)
        < tokens * tokens * width / 20
    )


def test_class_token_readout_stores_one_row_and_survives_pickling():
    inspector = inspect(small_model("class").float())
    trace = inspector.trace(noise())
    assert trace.written.weights.shape == (1, 1) and trace.written.mlps.shape == (3, 1, 24)
    restored = pickle.loads(pickle.dumps(trace))
    torch.testing.assert_close(vars(restored.written), vars(trace.written))
    assert trace.nbytes >= sum(value.nbytes for value in vars(trace.written).values() if value is not None)


def test_batched_images_have_own_attributions():
    inspector = inspect(small_model("norm, then average").float())
    from vitviz.engine.images.opening import open_image
    from vitviz.engine.images.preprocess import prepare

    prepared = [prepare(open_image(noise(seed)), inspector.preprocessing) for seed in range(3)]
    together = inspector.traces(prepared, inspector.preprocessing.size)
    for prepared_image, trace in zip(prepared, together, strict=True):
        alone = inspector.traces([prepared_image], inspector.preprocessing.size)[0]
        torch.testing.assert_close(
            vitviz.logit_attribution(inspector, trace, 1).sources,
            vitviz.logit_attribution(inspector, alone, 1).sources,
        )


def test_second_attribution_needs_no_pass_and_trace_keeps_no_weights():
    import gc
    import weakref

    inspector = inspect(small_model("class").float())
    trace = inspector.trace(noise())
    vitviz.logit_attribution(inspector, trace, 0)
    passes = []
    with inspector.hook("blocks.0.input", lambda tensor: passes.append(1)):
        vitviz.logit_attribution(inspector, trace, 1)
    assert passes == []
    kept = weakref.ref(inspector.tail())
    weights = weakref.ref(inspector.model)
    del inspector
    gc.collect()
    assert weights() is None and kept() is None and trace.written is not None


def test_attribution_balances_under_user_hook():
    """A hook on an MLP changes the residual stream. Contributions refer to the changed stream."""
    inspector = inspect(small_model("class", **{**TINY, "reg_tokens": 1}).float())
    vitviz.logit_attribution(inspector, inspector.trace(noise()), 0)
    with inspector.hook("blocks.1.mlp", lambda tensor: tensor * 0):
        trace = inspector.trace(noise())
    account = vitviz.logit_attribution(inspector, trace, 0)
    assert account.mlps[1] == 0 and account.mlps[0] != 0 and abs(account.gap) < 1e-5
    assert readout_stages.readout_stage_of(inspector.model, "x") is inspector.tail()
