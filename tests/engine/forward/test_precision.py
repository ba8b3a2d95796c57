"""bfloat16 is used on request, reported with every result, and its deviation from float32 is measured."""

import pickle
import threading

import pytest
import torch

import vitviz
from tests.engine.forward.cases import ARCHITECTURES, QUICK
from tests.engine.random_inspectors import noise, perturbed
from tests.tiers import sweep
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.device import exact_float32
from vitviz.engine.forward import recording
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.engine.inspector import Inspector
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.samples import sample_image

HALF = torch.bfloat16


def inspect(model: torch.nn.Module, dtype: str) -> Inspector:
    preprocessing = Preprocessing(model.patch_embed.img_size, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return Inspector(Loaded(Checkpoint("random", None, "local", ""), model, preprocessing), "cpu", dtype)


@pytest.fixture(scope="module")
def shipped_traces():
    """Return the shipped checkpoint's traces of one image in float32 and bfloat16, and its bfloat16
    inspector.
    """
    inspector = vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")
    image = sample_image("chelsea")
    return vitviz.load("vitviz-tiny", device="cpu").trace(image), inspector.trace(image), inspector


def test_bfloat16_model_records_float32_tensors(shipped_traces):
    exact, bf16, inspector = shipped_traces
    dtypes = []
    with inspector.hook("blocks.1.mlp", lambda tensor: dtypes.append(tensor.dtype)):
        inspector.trace(sample_image("chelsea"))
    assert set(dtypes) == {HALF} and {parameter.dtype for parameter in inspector.model.parameters()} == {HALF}
    assert (exact.dtype, bf16.dtype) == ("float32", "bfloat16")
    layer = bf16.layers[0]
    assert {tensor.dtype for tensor in (*bf16.tokens, bf16.logits, layer.q, layer.k, layer.v)} == {
        torch.float32
    }
    sums = bf16.attention(3).sum(-1)  # the sums of a bfloat16 softmax would miss 1 by up to 2^-9
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-5, rtol=0)


def test_deviation_is_largest_difference_from_float32(shipped_traces):
    exact, bf16, _ = shipped_traces
    attention = max(
        (exact.attention(i) - bf16.attention(i)).abs().max().item() for i in range(len(exact.layers))
    )
    classes = (torch.softmax(exact.logits, -1) - torch.softmax(bf16.logits, -1)).abs().max().item()
    assert bf16.deviation.attention == pytest.approx(attention, rel=1e-4) and attention > 1e-4
    assert bf16.deviation.classes == pytest.approx(classes, rel=1e-3) and classes > 1e-5
    assert exact.deviation is None


def test_deviation_is_measured_on_first_image_only(shipped_traces):
    _, bf16, inspector = shipped_traces
    assert inspector.placed.exact is None
    assert inspector.trace(sample_image("coffee")).deviation is bf16.deviation


def test_deviation_without_classifier_covers_attention_only():
    trace = inspect(perturbed("vit_tiny_patch16_224", depth=1, num_classes=0), "bfloat16").trace(noise())
    assert trace.deviation.classes is None and 0 < trace.deviation.attention < 0.1


def test_deviation_is_measured_on_plain_model_at_any_size():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model, "bfloat16")
    with inspector.hook("blocks.0.mlp", lambda tensor: tensor * 0):
        assert inspector.trace(noise(), size=96).deviation is None
    inspector.experiment(noise(), positions=False)
    bf16, exact = inspector.trace(noise(), size=96), inspect(model, "float32").trace(noise(), size=96)
    largest = max((exact.attention(i) - bf16.attention(i)).abs().max().item() for i in range(2))
    assert bf16.deviation.attention == pytest.approx(largest, rel=1e-3)


@sweep("name", ARCHITECTURES, quick=QUICK)
def test_every_architecture_passes_attention_check_in_bfloat16(name):
    model = perturbed(name, **({} if "r_s16" in name else {"depth": 2}))
    inspector = inspect(model, "bfloat16")
    trace = inspector.trace(noise())  # the attention check would raise
    assert trace.deviation.attention < 0.01 and {parameter.dtype for parameter in model.parameters()} == {
        torch.float32
    }
    if hasattr(model, "set_input_size") and "r_s16" not in name:
        assert inspector.trace(noise(), size=[2 * side for side in trace.grid.patch]).grid.patches == 4


def scale_attention_output(model):
    """Scale the output of the second layer's attention by 1.01 before its projection."""
    attention, attend = model.blocks[1].attn, torch.nn.functional.scaled_dot_product_attention

    def scaled_forward(x, *args, **kwargs):
        q, k, v = attention.qkv(x).unflatten(-1, (3, 3, 64)).permute(2, 0, 3, 1, 4)
        return attention.proj((attend(q, k, v) * 1.01).transpose(1, 2).flatten(2))

    attention.forward = scaled_forward
    return model


def test_attention_check_detects_one_per_cent_in_both_precisions():
    assert recording.TOLERANCE["float32"] == 1e-4
    model = scale_attention_output(perturbed("vit_tiny_patch16_224", depth=2))
    for dtype, expected in (("float32", "1e-04 is expected"), ("bfloat16", "8e-03 is expected")):
        inspector = inspect(model, "float32")
        if dtype == "bfloat16":  # a converted copy would lose the changed forward
            inspector.placed.model, inspector.placed.dtype = model.bfloat16(), "bfloat16"
            inspector.placed.sizes = {inspector.preprocessing.size: model}
        with pytest.raises(UnsupportedModel, match=f"block 2 .*{expected}"):
            inspector.trace(noise())


def test_torch_dtype_is_accepted_as_precision():
    assert vitviz.load("vitviz-tiny", device="cpu", dtype=HALF).dtype == "bfloat16"


def test_unknown_precision_or_device_is_rejected_before_loading(monkeypatch):
    monkeypatch.setattr("vitviz.engine.load_weights", lambda *args, **kwargs: pytest.fail("was loaded"))
    with pytest.raises(VitvizError, match="'float16' is not a precision; expected float32, tf32, bfloat16"):
        vitviz.load("vitviz-tiny", dtype="float16", device="cpu")
    with pytest.raises(VitvizError, match="device 'cuda:99' is not available"):
        vitviz.load("vitviz-tiny", device="cuda:99")


def test_readout_and_experiments_work_in_bfloat16(shipped_traces):
    _, bf16, inspector = shipped_traces
    y = inspector.readout(bf16)
    head = inspector.parts().classifier
    assert y.dtype == torch.float32
    torch.testing.assert_close(head.weight @ y + head.bias, bf16.logits, atol=0.05, rtol=0.02)
    assert inspector.experiment(sample_image("chelsea"), shuffle=1, positions=False).dtype == "bfloat16"
    assert vitviz.position_similarity(inspector).dtype == torch.float32


def test_survey_works_in_bfloat16(shipped_traces):
    _, bf16, inspector = shipped_traces
    distances = vitviz.survey([sample_image("chelsea")], inspector).distances.distance
    torch.testing.assert_close(distances, vitviz.attention_distance(bf16), atol=1e-3, rtol=1e-4)


def test_pickled_inspector_keeps_precision(shipped_traces):
    _, bf16, inspector = shipped_traces
    restored = pickle.loads(pickle.dumps(inspector))
    fresh = pickle.loads(pickle.dumps(vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")))
    assert fresh.placed.exact is None, "the float32 weights are not pickled, because passes do not need them"
    assert restored.dtype == "bfloat16" and torch.equal(
        restored.trace(sample_image("chelsea")).logits, bf16.logits
    )


def tf32_flags() -> tuple[bool, bool]:
    """Return whether convolutions and matrix products on CUDA may use TF32."""
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


@pytest.fixture
def cuda_precision_on_cpu(monkeypatch):
    """Make passes on the CPU apply the precision settings of a GPU."""
    monkeypatch.setattr(
        "vitviz.engine.device.exact_float32",
        lambda device, precision="float32": exact_float32(torch.device("cuda"), precision),
    )


@pytest.fixture
def tf32_in_notebook():
    """Allow TF32 globally, as a notebook may, by torch's newer setting where it exists."""
    settings = [torch.backends.cudnn.conv, torch.backends.cuda.matmul]
    before = (
        [setting.fp32_precision for setting in settings] if hasattr(settings[1], "fp32_precision") else None
    )
    if before is None:
        torch.set_float32_matmul_precision("high")
    for setting in settings if before else []:
        setting.fp32_precision = "tf32"
    yield
    torch.set_float32_matmul_precision("highest")
    for setting, precision in zip(settings, before or [], strict=False):
        setting.fp32_precision = precision


@pytest.mark.usefixtures("cuda_precision_on_cpu")
def test_float32_is_exact_during_pass_and_restored_afterwards():
    inspector, flags, before = vitviz.load("vitviz-tiny", device="cpu"), [], tf32_flags()
    with inspector.hook("blocks.0.input", lambda tensor: flags.append(tf32_flags())):
        inspector.trace(sample_image("coffee"))
    assert set(flags) == {(False, False)} and tf32_flags() == before == (True, False)
    with exact_float32(torch.device("cpu")):
        assert tf32_flags() == before


@pytest.mark.usefixtures("cuda_precision_on_cpu", "tf32_in_notebook")
def test_float32_is_exact_although_notebook_allowed_tf32():
    inspector, flags = vitviz.load("vitviz-tiny", device="cpu"), []
    with inspector.hook("blocks.0.input", lambda tensor: flags.append(tf32_flags())):
        inspector.trace(sample_image("coffee"))
    assert set(flags) == {(False, False)}
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32", "the notebook's setting is not restored"
    else:
        assert torch.get_float32_matmul_precision() == "high"


def test_tf32_pass_waits_for_float32_pass():
    cuda, order = torch.device("cuda"), []

    def in_tf32():
        with exact_float32(cuda, "tf32"):
            order.append(("tf32", tf32_flags()))

    thread = threading.Thread(target=in_tf32)
    with exact_float32(cuda):
        thread.start()
        thread.join(0.2)
        order.append(("float32", tf32_flags()))
    thread.join(10)
    assert order == [("float32", (False, False)), ("tf32", (True, True))] and tf32_flags() == (True, False)


def test_tf32_is_rejected_on_cpu():
    with pytest.raises(VitvizError, match="CPU does not compute in TF32; NVIDIA GPUs do, from Ampere on"):
        vitviz.load("vitviz-tiny", device="cpu", dtype="tf32")


def test_first_image_may_have_another_size_with_same_grid():
    """If the patch size does not divide the input, two sizes share a grid, and only one is native."""
    model = perturbed("vit_tiny_patch16_224", depth=1, img_size=28, patch_size=8)
    preprocessing = Preprocessing((28, 28), (0.5,) * 3, (0.5,) * 3)
    inspector = Inspector(
        Loaded(Checkpoint("random", None, "local", ""), model, preprocessing), "cpu", "bfloat16"
    )
    assert inspector.trace(noise(), size=24).deviation.attention > 0
