"""Head types of classifiers, against transformers' own pipeline, and assumptions where no file states the
type.
"""

import json

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import vitviz
from tests.engine.small_models import SMALL, perturbed, save_model, small_vit
from vitviz.engine import choices
from vitviz.engine.adapters import sidecar_config
from vitviz.errors import AssumedWarning, CheckpointError, VitvizError

hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")

SIDE = 28
MULTI, ONE_OF, VALUES = "multi_label_classification", "single_label_classification", "regression"
CASES = [  # problem_type, outputs, config.function_to_apply, head_type
    (None, 5, None, "softmax"),
    (ONE_OF, 5, "none", "softmax"),  # the pipeline ignores function_to_apply here
    (MULTI, 5, None, "sigmoid"),
    (MULTI, 1, None, "sigmoid"),
    (None, 1, None, "sigmoid"),
    (VALUES, 1, None, "value"),
    (VALUES, 4, "softmax", "value"),
]
IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))


def transformers_model(problem, outputs, function=None, kind="ViT"):
    labels = {number: f"thing {number}" for number in range(outputs)}
    config = getattr(hf, f"{kind}Config")(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=SIDE, patch_size=7,
        problem_type=problem, id2label=labels, label2id={name: i for i, name in labels.items()},
    )  # fmt: skip
    if function:
        config.function_to_apply = function
    return perturbed(getattr(hf, f"{kind}ForImageClassification")(config))


@pytest.mark.parametrize("kind", ["ViT", "Dinov2"])
@pytest.mark.parametrize(("problem", "outputs", "function", "head_type"), CASES)
def test_folder_scores_equal_transformers_pipeline(problem, outputs, function, head_type, kind, tmp_path):
    transformers_model(problem, outputs, function, kind).save_pretrained(tmp_path)
    hf.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(tmp_path)
    pipeline_scores = hf.pipeline("image-classification", model=str(tmp_path), device="cpu")(
        IMAGE, top_k=outputs
    )
    inspector = vitviz.load(tmp_path, device="cpu")
    trace = inspector.trace(IMAGE)
    assert inspector.head_type == trace.head_type == head_type and not inspector.checkpoint.assumed
    assert [name for name, _ in trace.top(outputs)] == [prediction["label"] for prediction in pipeline_scores]
    expected = [prediction["score"] for prediction in pipeline_scores]
    assert [score for _, score in trace.top(outputs)] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("problem", "outputs", "function", "head_type"), CASES)
def test_transformers_module_head_type_follows_config(problem, outputs, function, head_type):
    model = transformers_model(problem, outputs, function)
    options = {"mean": 0.5, "std": 0.5, "device": "cpu"}
    assert vitviz.Inspector.of(model, **options).head_type == head_type
    assert vitviz.Inspector.of(model, **options, head_type="value").trace(IMAGE).head_type == "value"


def test_unknown_problem_type_is_rejected(tmp_path):
    transformers_model(None, 5).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "problem_type": "ranking"}))
    with pytest.raises(CheckpointError, match="problem_type is 'ranking'"):
        vitviz.load(tmp_path, device="cpu")


@pytest.fixture(scope="module")
def single_output_model():
    return small_vit(num_classes=1)


def test_single_output_of_bare_file_is_assumed_sigmoid(single_output_model, tmp_path):
    file = save_model(single_output_model, tmp_path / "mine.safetensors")
    with pytest.warns(AssumedWarning, match=r"the meaning of its single output \(head_type=sigmoid\)"):
        inspector = vitviz.load(file, device="cpu")
    (asked,) = (one for one in inspector.checkpoint.assumed if one.name == "head_type")
    assert asked.choices == ("head_type=sigmoid", "head_type=value")
    ((_, probability),) = inspector.trace(IMAGE).top()
    logit = inspector.trace(IMAGE).logits.double()
    assert probability == pytest.approx(torch.sigmoid(logit).item()) and 0 < probability < 1
    outcomes = choices.predictions_by_choice(inspector, IMAGE, (asked,), inspector.preprocessing.size)
    answers = {choice: answer[1] for _, choice, answer in outcomes}
    assert answers["head_type=sigmoid"] == pytest.approx(probability, abs=1e-6)
    assert answers["head_type=value"] == pytest.approx(logit.item(), abs=1e-6)


@pytest.mark.filterwarnings("ignore::vitviz.AssumedWarning")
def test_stated_head_type_is_used_and_written_to_config(single_output_model, tmp_path):
    file = save_model(single_output_model, tmp_path / "mine.safetensors")
    for inspector in (
        vitviz.load(file, device="cpu", head_type="value"),
        vitviz.load(f"{file}?head_type=value", device="cpu"),
    ):
        assert inspector.head_type == "value"
        assert "head_type" not in [one.name for one in inspector.checkpoint.assumed]
        assert inspector.checkpoint.name.endswith("head_type=value")
    placed = inspector.placed
    sidecar_config.write_config(placed.checkpoint, placed.model, placed.preprocessing, (), placed.head_type)
    again = vitviz.load(file, device="cpu")
    assert again.head_type == "value" and not again.checkpoint.assumed


def test_single_output_of_timm_folder_is_assumed_sigmoid(single_output_model, tmp_path):
    save_model(single_output_model, tmp_path / "model.safetensors")
    args = {name: value for name, value in SMALL.items() if name != "num_classes"}
    about = {"architecture": "vit_tiny_patch16_224", "num_classes": 1, "model_args": args}
    about["pretrained_cfg"] = {"mean": [0.5] * 3, "std": [0.5] * 3, "num_classes": 1}
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.warns(AssumedWarning, match="head_type=sigmoid"):
        inspector = vitviz.load(tmp_path, device="cpu")
    assert [one.name for one in inspector.checkpoint.assumed] == ["head_type"]
    assert 0 < inspector.trace(IMAGE).top(1)[0][1] < 1


def test_softmax_of_single_output_is_rejected(single_output_model, tmp_path):
    file = save_model(single_output_model, tmp_path / "mine.safetensors")
    with pytest.raises(VitvizError, match="its softmax is 100 % for every image"):
        vitviz.load(file, device="cpu", head_type="softmax")
    for model in (
        single_output_model,
        timm.create_model("vit_tiny_patch16_224", **{**SMALL, "num_classes": 1}),
    ):
        with pytest.raises(VitvizError, match="has one output of unknown meaning"):
            vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    with pytest.raises(VitvizError, match="expected one of softmax, sigmoid, value"):
        vitviz.load(file, device="cpu", head_type="logits")


def inspect_head(outputs, head_type):
    model = small_vit(num_classes=outputs)
    return vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu", head_type=head_type)


def test_bare_module_defaults_to_softmax_and_accepts_sigmoid():
    model = small_vit()
    usual = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    assert usual.head_type == "softmax"
    assert sum(score for _, score in usual.trace(IMAGE).top(7)) == pytest.approx(1)
    trace = inspect_head(7, "sigmoid").trace(IMAGE)
    expected = 1 / (1 + np.exp(-trace.logits.double().numpy()))
    np.testing.assert_allclose(trace.scores(), expected, atol=1e-12)


def test_text_classes_use_softmax_and_restore_head_type():
    inspector = inspect_head(7, "value")
    image_trace = inspector.trace(IMAGE)
    classes = vitviz.Classes(["one", "another"], torch.eye(7)[:2])
    text_inspector = inspector.with_classes(classes)
    text_trace = text_inspector.answered(image_trace)
    assert (text_inspector.head_type, text_trace.head_type) == ("softmax", "softmax")
    assert sum(score for _, score in text_trace.top()) == pytest.approx(1)
    assert inspector.answered(text_trace).head_type == inspector.head_type == "value"


@pytest.mark.parametrize("sign", [1, -1])
def test_single_text_class_is_prediction_for_any_logit(sign):
    inspector = inspect_head(7, "value")
    vector = torch.nn.functional.normalize(inspector.trace(IMAGE).logits, dim=0)
    answered = inspector.with_classes(vitviz.Classes(["a"], sign * vector[None])).trace(IMAGE)
    assert answered.logits.sign().item() == sign and answered.prediction == 0
    assert answered.top() == [("a", pytest.approx(1))]


def test_value_head_has_no_probability_or_prediction():
    inspector = inspect_head(2, "value")
    trace = inspector.trace(IMAGE)
    assert trace.prediction is None and trace.quantity == "value"
    assert [score for _, score in trace.top()] == sorted(trace.logits.double().tolist(), reverse=True)
    for needs_classes in (
        trace.probabilities,
        lambda: vitviz.sufficient_edges(inspector, trace),
        lambda: vitviz.logit_attribution(inspector, trace, 0, relative=True),
        lambda: vitviz.perturbation(inspector, trace, draws=1).curve("dropped", "kept"),
        lambda: vitviz.faithfulness(inspector, trace, 0, ["rollout"], draws=2).ranking("probability"),
        lambda: vitviz.survey([IMAGE], inspector, ["lens"]),
        lambda: vitviz.survey([(IMAGE, 0)], inspector, ["accuracy"]),
        lambda: vitviz.survey([IMAGE], inspector, ["ledger"]),
    ):
        with pytest.raises(VitvizError, match=r"values|none of which|whose outputs are independent"):
            needs_classes()


def test_perturbation_of_value_head_uses_largest_value():
    inspector = inspect_head(2, "value")
    trace = inspector.trace(IMAGE)
    result = vitviz.perturbation(inspector, trace, "grey")
    assert result.scores == ("logit",) and not result.probability and not result.kept
    assert result.curve("grey")[0] == (pytest.approx(trace.logits.max().item()), 0)
    assert {*result.rows()[0]} == {"way", "percent", "draw", "logit"}


@pytest.mark.parametrize("sign", [1, -1])
def test_single_sigmoid_output_keeps_its_sign_under_perturbation(sign, single_output_model):
    with torch.no_grad():
        model = small_vit(num_classes=1)
        model.head.weight.mul_(sign)
        model.head.bias.zero_()
    inspector = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu", head_type="sigmoid")
    trace = inspector.trace(IMAGE)
    assert trace.prediction == int(trace.logits.item() >= 0)
    perturbed_scores = vitviz.perturbation(inspector, trace, "drop", draws=3)
    probability, kept = (
        perturbed_scores.probability["black"].double(),
        perturbed_scores.kept["black"].double(),
    )
    assert torch.equal(kept, ((probability >= 0.5) == bool(trace.prediction)).double())
    result = vitviz.faithfulness(inspector, trace, 0, ["rollout"], draws=2)
    most = result.curves["rollout"].most
    torch.testing.assert_close(most["probability"], torch.sigmoid(most["logit"]))
    same_side = (most["logit"] >= 0) == bool(trace.prediction)
    assert torch.equal(most["kept"], same_side.double())
    edges = vitviz.sufficient_edges(inspector, trace, draws=1)
    assert edges.margins["share"][0, -1] == pytest.approx(abs(trace.logits.item()), abs=1e-3)


def test_faithfulness_of_value_head_ranks_by_value():
    inspector = inspect_head(1, "value")
    result = vitviz.faithfulness(inspector, IMAGE, 0, ["rollout", "frozen"], draws=2)
    assert result.scores == ("logit",) and result.ranking() == result.ranking("logit")
    assert "gap_logit" in result.rows()[0] and "gap_probability" not in result.rows()[0]
    assert all(np.isfinite(curve.saco) for curve in result.curves.values())


def test_bfloat16_deviation_of_value_head_is_in_logits():
    model = small_vit(num_classes=1)
    inspector = vitviz.Inspector.of(
        model, mean=0.5, std=0.5, device="cpu", dtype="bfloat16", head_type="value"
    )
    deviation = inspector.trace(IMAGE).deviation
    assert deviation.classes == deviation.logits > 0
