"""bfloat16 is what the user asks for, is said wherever a result is, and its distance from float32 is the true
one.
"""

import pickle
import threading

import pytest
import torch

import vitviz
from tests.engine.forward.helpers import ARCHITECTURES, QUICK
from tests.engine.looking import noise, perturbed
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
def both():
    """The shipped checkpoint's traces of a picture in both precisions, and its inspector in bfloat16."""
    inspector = vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")
    picture = sample_image("chelsea")
    return vitviz.load("vitviz-tiny", device="cpu").trace(picture), inspector.trace(picture), inspector


def test_the_model_computes_in_what_was_asked_for_and_the_record_is_float32(both):
    exact, rough, inspector = both
    kinds = []
    with inspector.hook("blocks.1.mlp", lambda tensor: kinds.append(tensor.dtype)):
        inspector.trace(sample_image("chelsea"))
    assert set(kinds) == {HALF} and {parameter.dtype for parameter in inspector.model.parameters()} == {HALF}
    assert (exact.dtype, rough.dtype) == ("float32", "bfloat16")
    layer = rough.layers[0]
    assert {tensor.dtype for tensor in (*rough.tokens, rough.logits, layer.q, layer.k, layer.v)} == {
        torch.float32
    }
    sums = rough.attention(3).sum(-1)  # a softmax in bfloat16 would miss 1 by up to 2^-9
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-5, rtol=0)


def test_the_distance_from_float32_is_the_largest_difference(both):
    exact, rough, _ = both
    attention = max(
        (exact.attention(i) - rough.attention(i)).abs().max().item() for i in range(len(exact.layers))
    )
    classes = (torch.softmax(exact.logits, -1) - torch.softmax(rough.logits, -1)).abs().max().item()
    assert rough.deviation.attention == pytest.approx(attention, rel=1e-4) and attention > 1e-4
    assert rough.deviation.classes == pytest.approx(classes, rel=1e-3) and classes > 1e-5
    assert exact.deviation is None


def test_it_is_found_out_on_the_first_picture_alone_and_the_float32_weights_are_then_let_go(both):
    _, rough, inspector = both
    assert inspector.placed.exact is None
    assert inspector.trace(sample_image("coffee")).deviation is rough.deviation


def test_a_model_without_a_classifier_has_a_distance_of_its_attention_alone():
    trace = inspect(perturbed("vit_tiny_patch16_224", depth=1, num_classes=0), "bfloat16").trace(noise())
    assert trace.deviation.classes is None and 0 < trace.deviation.attention < 0.1


def test_a_first_picture_at_another_size_or_under_a_hook_gives_the_distance_of_the_plain_model():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model, "bfloat16")
    with inspector.hook("blocks.0.mlp", lambda tensor: tensor * 0):
        assert inspector.trace(noise(), size=96).deviation is None
    inspector.experiment(noise(), positions=False)
    rough, exact = inspector.trace(noise(), size=96), inspect(model, "float32").trace(noise(), size=96)
    largest = max((exact.attention(i) - rough.attention(i)).abs().max().item() for i in range(2))
    assert rough.deviation.attention == pytest.approx(largest, rel=1e-3)


@sweep("name", ARCHITECTURES, quick=QUICK)
def test_every_kind_is_read_truthfully_in_bfloat16(name):
    model = perturbed(name, **({} if "r_s16" in name else {"depth": 2}))
    inspector = inspect(model, "bfloat16")
    trace = inspector.trace(noise())  # the truth check would refuse
    assert trace.deviation.attention < 0.01 and {parameter.dtype for parameter in model.parameters()} == {
        torch.float32
    }
    if hasattr(model, "set_input_size") and "r_s16" not in name:
        assert inspector.trace(noise(), size=[2 * side for side in trace.grid.patch]).grid.patches == 4


def one_per_cent_off(model):
    """A model that scales what its second block's attention gives by 1 % before it goes on."""
    attention, true = model.blocks[1].attn, torch.nn.functional.scaled_dot_product_attention

    def lying(x, *args, **kwargs):
        q, k, v = attention.qkv(x).unflatten(-1, (3, 3, 64)).permute(2, 0, 3, 1, 4)
        return attention.proj((true(q, k, v) * 1.01).transpose(1, 2).flatten(2))

    attention.forward = lying
    return model


def test_the_truth_check_stays_strict_in_float32_and_sees_one_per_cent_in_bfloat16():
    assert recording.TOLERANCE["float32"] == 1e-4
    model = one_per_cent_off(perturbed("vit_tiny_patch16_224", depth=2))
    for dtype, said in (("float32", "1e-04 is expected"), ("bfloat16", "8e-03 is expected")):
        inspector = inspect(model, "float32")
        if dtype == "bfloat16":  # a copy would lose the lie
            inspector.placed.model, inspector.placed.dtype = model.bfloat16(), "bfloat16"
            inspector.placed.sizes = {inspector.preprocessing.size: model}
        with pytest.raises(UnsupportedModel, match=f"block 2 .*{said}"):
            inspector.trace(noise())


def test_torchs_own_precision_is_as_good_as_its_name():
    assert vitviz.load("vitviz-tiny", device="cpu", dtype=HALF).dtype == "bfloat16"


def test_what_does_not_exist_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("vitviz.engine.load_weights", lambda *args, **kwargs: pytest.fail("was loaded"))
    with pytest.raises(VitvizError, match="no precision 'float16' here; expected float32, tf32, bfloat16"):
        vitviz.load("vitviz-tiny", dtype="float16", device="cpu")
    with pytest.raises(VitvizError, match="device 'cuda:99' is not to be had"):
        vitviz.load("vitviz-tiny", device="cuda:99")


def test_the_read_out_and_the_experiments_work_in_bfloat16(both):
    _, rough, inspector = both
    y = inspector.readout(rough)
    head = inspector.parts().classifier
    assert y.dtype == torch.float32
    torch.testing.assert_close(head.weight @ y + head.bias, rough.logits, atol=0.05, rtol=0.02)
    assert inspector.experiment(sample_image("chelsea"), shuffle=1, positions=False).dtype == "bfloat16"
    assert vitviz.position_similarity(inspector).dtype == torch.float32


def test_a_survey_computes_in_it_too(both):
    _, rough, inspector = both
    distances = vitviz.survey([sample_image("chelsea")], inspector).distances.distance
    torch.testing.assert_close(distances, vitviz.attention_distance(rough), atol=1e-3, rtol=1e-4)


def test_an_inspector_travels_with_its_precision(both):
    _, rough, inspector = both
    travelled = pickle.loads(pickle.dumps(inspector))
    fresh = pickle.loads(pickle.dumps(vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16")))
    assert fresh.placed.exact is None, (
        "the float32 weights stay behind: they are not needed where the passes are made"
    )
    assert travelled.dtype == "bfloat16" and torch.equal(
        travelled.trace(sample_image("chelsea")).logits, rough.logits
    )


def allowed() -> tuple[bool, bool]:
    """Whether convolutions and matrix products on CUDA may be in TF32."""
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


@pytest.fixture
def believes_in_cuda(monkeypatch):
    """Passes on the CPU set what they would set on a GPU."""
    monkeypatch.setattr(
        "vitviz.engine.device.exact_float32",
        lambda device, precision="float32": exact_float32(torch.device("cuda"), precision),
    )


@pytest.fixture
def tf32_in_notebook():
    """A notebook that has allowed TF32 for everything, by torch's newer setting where there is one."""
    newer = [torch.backends.cudnn.conv, torch.backends.cuda.matmul]
    before = [one.fp32_precision for one in newer] if hasattr(newer[1], "fp32_precision") else None
    if before is None:
        torch.set_float32_matmul_precision("high")
    for one in newer if before else []:
        one.fp32_precision = "tf32"
    yield
    torch.set_float32_matmul_precision("highest")
    for one, precision in zip(newer, before or [], strict=False):
        one.fp32_precision = precision


@pytest.mark.usefixtures("believes_in_cuda")
def test_float32_on_cuda_is_exact_during_a_pass_and_only_then():
    inspector, seen, before = vitviz.load("vitviz-tiny", device="cpu"), [], allowed()
    with inspector.hook("blocks.0.input", lambda tensor: seen.append(allowed())):
        inspector.trace(sample_image("coffee"))
    assert set(seen) == {(False, False)} and allowed() == before == (True, False)
    with exact_float32(torch.device("cpu")):
        assert allowed() == before


@pytest.mark.usefixtures("believes_in_cuda", "tf32_in_notebook")
def test_float32_is_exact_where_a_notebook_allowed_tf32():
    inspector, seen = vitviz.load("vitviz-tiny", device="cpu"), []
    with inspector.hook("blocks.0.input", lambda tensor: seen.append(allowed())):
        inspector.trace(sample_image("coffee"))
    assert set(seen) == {(False, False)}
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32", "the notebook's setting is back"
    else:
        assert torch.get_float32_matmul_precision() == "high"


def test_tf32_allows_it_and_waits_for_a_pass_in_float32():
    cuda, order = torch.device("cuda"), []

    def in_tf32():
        with exact_float32(cuda, "tf32"):
            order.append(("tf32", allowed()))

    thread = threading.Thread(target=in_tf32)
    with exact_float32(cuda):
        thread.start()
        thread.join(0.2)
        order.append(("float32", allowed()))
    thread.join(10)
    assert order == [("float32", (False, False)), ("tf32", (True, True))] and allowed() == (True, False)


def test_tf32_is_refused_where_no_gpu_computes_in_it():
    with pytest.raises(VitvizError, match="CPU does not compute in TF32; NVIDIA GPUs do, from Ampere on"):
        vitviz.load("vitviz-tiny", device="cpu", dtype="tf32")


def test_the_first_picture_may_have_another_size_with_the_same_grid():
    """Where the patch does not divide the input, two sizes share a grid; only one is the model's own."""
    model = perturbed("vit_tiny_patch16_224", depth=1, img_size=28, patch_size=8)
    preprocessing = Preprocessing((28, 28), (0.5,) * 3, (0.5,) * 3)
    inspector = Inspector(
        Loaded(Checkpoint("random", None, "local", ""), model, preprocessing), "cpu", "bfloat16"
    )
    assert inspector.trace(noise(), size=24).deviation.attention > 0
