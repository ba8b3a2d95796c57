"""What a classifier's outputs are, against transformers' own pipeline, and where nobody tells it."""

import json

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import vitviz
from tests.engine.small import SMALL, perturbed, saved, small
from vitviz.engine import choices
from vitviz.engine.adapters import sidecar_config
from vitviz.errors import AssumedWarning, CheckpointError, VitvizError

hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")

SIDE = 28
MULTI, ONE_OF, VALUES = "multi_label_classification", "single_label_classification", "regression"
CASES = [  # problem_type, outputs, config.function_to_apply, head_type
    (None, 5, None, "softmax"),
    (ONE_OF, 5, "none", "softmax"),  # which the pipeline does not look at
    (MULTI, 5, None, "sigmoid"),
    (MULTI, 1, None, "sigmoid"),
    (None, 1, None, "sigmoid"),
    (VALUES, 1, None, "value"),
    (VALUES, 4, "softmax", "value"),
]
IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))


def of_transformers(problem, outputs, function=None, kind="ViT"):
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
def test_scores_of_a_folder_are_those_of_transformers_pipeline(
    problem, outputs, function, head_type, kind, tmp_path
):
    of_transformers(problem, outputs, function, kind).save_pretrained(tmp_path)
    hf.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(tmp_path)
    theirs = hf.pipeline("image-classification", model=str(tmp_path), device="cpu")(IMAGE, top_k=outputs)
    inspector = vitviz.load(tmp_path, device="cpu")
    trace = inspector.trace(IMAGE)
    assert inspector.head_type == trace.head_type == head_type and not inspector.checkpoint.assumed
    assert [name for name, _ in trace.top(outputs)] == [one["label"] for one in theirs]
    expected = [one["score"] for one in theirs]
    assert [score for _, score in trace.top(outputs)] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("problem", "outputs", "function", "head_type"), CASES)
def test_a_model_of_transformers_in_memory_is_read_by_its_configuration(
    problem, outputs, function, head_type
):
    model = of_transformers(problem, outputs, function)
    asked = {"mean": 0.5, "std": 0.5, "device": "cpu"}
    assert vitviz.Inspector.of(model, **asked).head_type == head_type
    assert vitviz.Inspector.of(model, **asked, head_type="value").trace(IMAGE).head_type == "value"


def test_a_problem_type_that_transformers_does_not_know_is_refused(tmp_path):
    of_transformers(None, 5).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "problem_type": "ranking"}))
    with pytest.raises(CheckpointError, match="problem_type is 'ranking'"):
        vitviz.load(tmp_path, device="cpu")


@pytest.fixture(scope="module")
def one_output():
    return small(num_classes=1)


def test_a_bare_file_with_one_output_is_asked_what_it_is(one_output, tmp_path):
    file = saved(one_output, tmp_path / "mine.safetensors")
    with pytest.warns(AssumedWarning, match=r"what its one output is \(head_type=sigmoid\)"):
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
def test_what_is_said_of_one_output_is_asked_no_more_and_kept(one_output, tmp_path):
    file = saved(one_output, tmp_path / "mine.safetensors")
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


def test_one_output_of_timms_folder_is_asked_too(one_output, tmp_path):
    saved(one_output, tmp_path / "model.safetensors")
    args = {name: value for name, value in SMALL.items() if name != "num_classes"}
    about = {"architecture": "vit_tiny_patch16_224", "num_classes": 1, "model_args": args}
    about["pretrained_cfg"] = {"mean": [0.5] * 3, "std": [0.5] * 3, "num_classes": 1}
    (tmp_path / "config.json").write_text(json.dumps(about))
    with pytest.warns(AssumedWarning, match="head_type=sigmoid"):
        inspector = vitviz.load(tmp_path, device="cpu")
    assert [one.name for one in inspector.checkpoint.assumed] == ["head_type"]
    assert 0 < inspector.trace(IMAGE).top(1)[0][1] < 1


def test_one_output_is_never_read_by_a_softmax(one_output, tmp_path):
    file = saved(one_output, tmp_path / "mine.safetensors")
    with pytest.raises(VitvizError, match="its softmax is 100 % for every image"):
        vitviz.load(file, device="cpu", head_type="softmax")
    for model in (one_output, timm.create_model("vit_tiny_patch16_224", **{**SMALL, "num_classes": 1})):
        with pytest.raises(VitvizError, match="has one output and does not tell"):
            vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    with pytest.raises(VitvizError, match="expected one of softmax, sigmoid, value"):
        vitviz.load(file, device="cpu", head_type="logits")


def inspected(outputs, head_type):
    model = small(num_classes=outputs)
    return vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu", head_type=head_type)


def test_several_outputs_of_a_bare_module_are_a_softmax_unless_it_is_said():
    model = small()
    usual = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    assert usual.head_type == "softmax"
    assert sum(score for _, score in usual.trace(IMAGE).top(7)) == pytest.approx(1)
    trace = inspected(7, "sigmoid").trace(IMAGE)
    expected = 1 / (1 + np.exp(-trace.logits.double().numpy()))
    np.testing.assert_allclose(trace.scores(), expected, atol=1e-12)


def test_given_classes_have_their_own_rule_and_give_the_heads_back():
    inspector = inspected(7, "value")
    picture = inspector.trace(IMAGE)
    classes = vitviz.Classes(["one", "another"], torch.eye(7)[:2])
    asked = inspector.with_classes(classes)
    answered = asked.answered(picture)
    assert (asked.head_type, answered.head_type) == ("softmax", "softmax")
    assert sum(score for _, score in answered.top()) == pytest.approx(1)
    assert inspector.answered(answered).head_type == inspector.head_type == "value"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_single_given_class_is_the_prediction_whatever_its_logit(sign):
    inspector = inspected(7, "value")
    vector = torch.nn.functional.normalize(inspector.trace(IMAGE).logits, dim=0)
    answered = inspector.with_classes(vitviz.Classes(["a"], sign * vector[None])).trace(IMAGE)
    assert answered.logits.sign().item() == sign and answered.prediction == 0
    assert answered.top() == [("a", pytest.approx(1))]


def test_values_have_no_probability_and_predict_nothing():
    inspector = inspected(2, "value")
    trace = inspector.trace(IMAGE)
    assert trace.prediction is None and trace.quantity == "value"
    assert [score for _, score in trace.top()] == sorted(trace.logits.double().tolist(), reverse=True)
    for refused in (
        trace.probabilities,
        lambda: vitviz.sufficient_edges(inspector, trace),
        lambda: vitviz.logit_attribution(inspector, trace, 0, relative=True),
        lambda: vitviz.perturbation(inspector, trace, draws=1).curve("dropped", "kept"),
        lambda: vitviz.faithfulness(inspector, trace, 0, ["rollout"], draws=2).ranking("probability"),
        lambda: vitviz.survey([IMAGE], inspector, ["lens"]),
        lambda: vitviz.survey([(IMAGE, 0)], inspector, ["accuracy"]),
        lambda: vitviz.survey([IMAGE], inspector, ["ledger"]),
    ):
        with pytest.raises(VitvizError, match=r"values|none of which|each of whose outputs"):
            refused()


def test_an_experiment_on_values_watches_the_largest():
    inspector = inspected(2, "value")
    trace = inspector.trace(IMAGE)
    found = vitviz.perturbation(inspector, trace, "grey")
    assert found.scores == ("logit",) and not found.probability and not found.kept
    assert found.curve("grey")[0] == (pytest.approx(trace.logits.max().item()), 0)
    assert {*found.rows()[0]} == {"way", "percent", "draw", "logit"}


@pytest.mark.parametrize("sign", [1, -1])
def test_of_one_output_the_yes_or_no_is_kept(sign, one_output):
    with torch.no_grad():
        model = small(num_classes=1)
        model.head.weight.mul_(sign)
        model.head.bias.zero_()
    inspector = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu", head_type="sigmoid")
    trace = inspector.trace(IMAGE)
    assert trace.prediction == int(trace.logits.item() >= 0)
    found = vitviz.perturbation(inspector, trace, "drop", draws=3)
    probability, kept = found.probability["black"].double(), found.kept["black"].double()
    assert torch.equal(kept, ((probability >= 0.5) == bool(trace.prediction)).double())
    tried = vitviz.faithfulness(inspector, trace, 0, ["rollout"], draws=2)
    most = tried.curves["rollout"].most
    torch.testing.assert_close(most["probability"], torch.sigmoid(most["logit"]))
    same_side = (most["logit"] >= 0) == bool(trace.prediction)
    assert torch.equal(most["kept"], same_side.double())
    smallest = vitviz.sufficient_edges(inspector, trace, draws=1)
    assert smallest.margins["share"][0, -1] == pytest.approx(abs(trace.logits.item()), abs=1e-3)


def test_a_trial_of_values_ranks_by_the_value():
    inspector = inspected(1, "value")
    found = vitviz.faithfulness(inspector, IMAGE, 0, ["rollout", "frozen"], draws=2)
    assert found.scores == ("logit",) and found.ranking() == found.ranking("logit")
    assert "gap_logit" in found.rows()[0] and "gap_probability" not in found.rows()[0]
    assert all(np.isfinite(one.saco) for one in found.curves.values())


def test_bfloat16_lies_from_float32_by_what_is_shown():
    model = small(num_classes=1)
    inspector = vitviz.Inspector.of(
        model, mean=0.5, std=0.5, device="cpu", dtype="bfloat16", head_type="value"
    )
    deviation = inspector.trace(IMAGE).deviation
    assert deviation.classes == deviation.logits > 0
