"""The model check on healthy and faulty copies of vitviz-tiny, and its numbers against plain loops."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import binom, ttest_rel
from timm.models.eva import Eva

import vitviz
from tests.diagnostics import faults
from tests.notebook.helpers import Reader
from vitviz.analyses.depth import token_norms
from vitviz.diagnostics import check, head, inputs, subject, weights
from vitviz.diagnostics.finding import Finding, Report, verdict
from vitviz.engine.studies.saliency import parameter_randomisation
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid


@pytest.fixture(scope="module")
def samples(inspector):
    return subject.images_of(inspector, None)


def verdicts_until(inspector, images, expected):
    """Return the names of the verdicts, up to the expected one or the end of the input's checks."""
    verdicts = []
    for found in check.findings(inspector, images):
        verdicts += [found.name] if found.severity != "number" else []
        if found.name in expected and verdicts[-1:] == [found.name] or found.group == "head":
            break
    return verdicts


@pytest.fixture
def without_long_checks(monkeypatch):
    """Leave out the maps and the alternatives that need many passes."""
    kept = {**check.CHECKS, "input": check.CHECKS["input"][:3]}
    kept.pop("maps")
    monkeypatch.setattr(check, "CHECKS", kept)


@pytest.mark.long
def test_healthy_model_has_no_serious_finding(inspector, samples, without_long_checks):
    found = list(check.findings(inspector, samples))
    assert [one.name for one in found if one.severity == "serious"] == []
    assert {one.group for one in found} == {"weights", "input", "head", "attention", "numbers"}
    assert all(one.threshold is None or one.source for one in found)


@pytest.mark.parametrize(
    "fault",
    [
        faults.no_normalisation, faults.values_to_255, faults.no_positions, faults.random_positions,
        faults.positions_of_sequence,
        faults.initial_layer, faults.initial_projection, faults.zeroed_head, faults.doubled_head,
        faults.overflow, faults.initial_classifier, faults.untrained, faults.initial_norms,
        faults.four_bits, faults.active_dropout, faults.copied_layer,
    ],
    ids=lambda fault: fault.__name__,
)  # fmt: skip
def test_planted_fault_is_first_or_second_finding(inspector, samples, fault):
    expected = faults.EXPECTED[fault]
    verdicts = verdicts_until(fault(inspector), samples, expected)
    assert any(name in expected for name in verdicts[:2]), verdicts


@pytest.mark.slow
def test_full_check_of_healthy_model_has_no_serious_finding(inspector):
    report = vitviz.check(inspector)
    assert report.serious == () and {one.group for one in report.findings} == set(check.CHECKS)
    assert not [one for one in report.findings if one.name == "not_checked"]


def test_check_of_one_image_says_what_needs_two(inspector):
    said = str(vitviz.check(inspector, [vitviz.sample_image("coffee")]))
    assert "has no classifier" not in said
    assert "there is only one. Pass two or more" in said and "add up to the logit" in said


def test_shifted_labels_are_reported_with_shift(inspector, samples):
    prediction = int(inspector.trace(samples[0].image).logits.argmax())
    wrong = frozenset({prediction - 1})
    images = [subject.CheckedImage(samples[0].image, wrong)] * 4
    (found,) = head.labels(subject.CheckSubject(inspector, images, "frozen"))
    assert found.name == "shifted_labels" and found.severity == "serious" and "+1" in found.sentence


def test_sigmoid_head_with_many_positive_classes_is_serious(inspector, samples):
    given = faults.sigmoid_of_softmax(inspector)
    (found,) = head.head_type(subject.CheckSubject(given, samples[:2], "frozen"))
    assert found.severity == "serious" and found.number > head.YES


def test_softmax_of_multilabel_head_is_noted(inspector, samples):
    given = faults.softmax_of_sigmoid(inspector)
    (found,) = head.head_type(subject.CheckSubject(given, samples[:2], "frozen"))
    assert (found.name, found.severity) == ("head_type", "note")


def test_singular_values_separate_random_from_learned_matrices():
    generator = torch.Generator().manual_seed(5)
    mean, spread = weights.random_values(300, 200)
    for drawn in (
        torch.rand(300, 200, generator=generator),
        torch.randn(300, 200, generator=generator).sign(),
        3 + 0.02 * torch.randn(300, 200, generator=generator),
    ):
        values = weights.singular_values(drawn)
        assert weights._relative_distance(values, mean) < weights.TIMES * spread
        assert values.max().item() == pytest.approx(300**0.5 + 200**0.5, rel=0.04)  # Marchenko and Pastur
        whole = drawn.double()
        whole = (whole - whole.mean()) / whole.std()
        expected = np.linalg.svd(whole.numpy(), compute_uv=False)
        torch.testing.assert_close(values.flip(0), torch.from_numpy(expected.copy()), rtol=1e-6, atol=1e-6)
    learned = drawn + 0.02 * torch.outer(torch.ones(300), torch.linspace(-1, 1, 200))
    assert weights._relative_distance(weights.singular_values(learned), mean) > weights.TIMES * spread


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_information_matches_loops(kind):
    logits = 3 * torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))

    def entropy(shares):
        found = -sum(p * math.log(p) for p in shares)
        return found - sum((1 - p) * math.log(1 - p) for p in shares) if kind == "sigmoid" else found

    shares = []
    for i in range(5):
        views = []
        for view in logits[:, i].double().tolist():
            if kind == "softmax":
                total = sum(math.exp(z) for z in view)
                views.append([math.exp(z) / total for z in view])
            else:
                views.append([1 / (1 + math.exp(-z)) for z in view])
        shares.append([sum(pair) / 2 for pair in zip(*views, strict=True)])
    mean = [sum(one) / 5 for one in zip(*shares, strict=True)]
    expected = entropy(mean) - sum(map(entropy, shares)) / 5
    assert inputs.information(logits, kind) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("verdict", [True, False])
def test_gain_is_serious_only_if_t_test_is_significant(verdict):
    generator = torch.Generator().manual_seed(0)
    own = 2 * torch.eye(6)[None] + 0.1 * torch.randn(1, 6, 6, generator=generator)
    lucky = own.clone()
    lucky[:, 2] *= 40  # one image alone
    given = SimpleNamespace(inspector=SimpleNamespace(head_type="softmax"), own_outputs=own, images=range(6))
    for better, expected in ((own + 3 * torch.eye(6), "serious"), (lucky, "note")):
        alternatives = {"worse": lambda: 0.5 * own, "better": lambda better=better: better}
        comparison = inputs.Comparison("pooling", lambda subject, of=alternatives: of, verdict=verdict)
        (found,) = comparison(given)
        terms = [inputs.divergences(logits, "softmax").double().numpy() for logits in (better, own)]
        p = ttest_rel(*terms, alternative="greater").pvalue
        assert (p < inputs.LEVEL / 2) == (expected == "serious")
        assert found.severity == (expected if verdict else "number") and found.number == pytest.approx(
            np.mean(terms[0] - terms[1])
        )
        assert found.number > inputs.GAIN and "better" in found.sentence


def test_gain_that_leaves_the_model_uninformed_is_a_note():
    own = 0.1 * torch.eye(6)[None]
    given = SimpleNamespace(inspector=SimpleNamespace(head_type="softmax"), own_outputs=own, images=range(6))
    for gain, expected in ((1.2, "note"), (4, "serious")):
        alternatives = {"better": lambda gain=gain: own + gain * torch.eye(6)}
        (found,) = inputs.Comparison("pooling", lambda subject, of=alternatives: of)(given)
        reached = inputs.information(alternatives["better"](), "softmax") / math.log(6)
        assert (reached > inputs.WEAK) == (expected == "serious")
        assert found.number > inputs.GAIN and found.severity == expected


def alternative_outputs(inspector, name):
    """Return the outputs of every alternative of a comparison by name, on random values."""
    given = subject.CheckSubject(inspector, (), "frozen")
    size = inspector.preprocessing.size
    values = torch.rand(2, 1, 3, *size, generator=torch.Generator().manual_seed(6))
    vars(given)["values"] = values
    comparison = next(one for one in inputs.COMPARISONS if one.name == name)
    return given, {str(key): outputs() for key, outputs in comparison.variants(given).items()}


@pytest.mark.parametrize(
    "fault, name, alternative",
    [
        (faults.qkv_grouped_by_head, "attention_weights", "the QKV matrix grouped by head"),
        (faults.exchanged_query_key, "attention_weights", "queries and keys exchanged in all layers"),
        (faults.transposed_filters, "patch_filters", "filters whose rows and columns are exchanged"),
        (faults.reversed_layers, "layer_order", "the layers in reverse order"),
        (faults.exchanged_mlp_halves, "mlp_halves", "the halves of each MLP's first layer exchanged"),
        (faults.flipped_positions, "position_order", "rows in reverse order"),
        (faults.average_pooling, "pooling", "pool=class"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_matching_alternative_restores_healthy_outputs(inspector, fault, name, alternative):
    faulty, outputs = alternative_outputs(fault(inspector), name)
    own = inspector.model(faulty.inputs().flatten(0, 1)).unflatten(0, (2, 1))
    torch.testing.assert_close(outputs[alternative], own, rtol=1e-4, atol=1e-4)
    assert (faulty.own_outputs - own).abs().max() > 0.1


@pytest.mark.parametrize("separate", [False, True])
def test_matching_alternative_exchanges_gate_and_value(separate):
    sizes = {"img_size": 28, "patch_size": 14, "embed_dim": 48, "depth": 2, "num_heads": 3}
    torch.manual_seed(0)
    model = Eva(**sizes, num_classes=10, swiglu_mlp=True, scale_mlp=separate)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    gated = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    given, outputs = alternative_outputs(gated, "mlp_halves")
    for mlp in (block.mlp for block in model.blocks):
        if separate:
            mlp.fc1_g, mlp.fc1_x = mlp.fc1_x, mlp.fc1_g
        else:
            mlp.gate_last = not mlp.gate_last
    expected = model.eval()(given.inputs().flatten(0, 1)).unflatten(0, (2, 1))
    torch.testing.assert_close(*outputs.values(), expected)
    assert (given.own_outputs - expected).abs().max() > 1e-3


def test_crop_share_is_measured_on_shorter_side(inspector, samples):
    for share in (0.5, 0.9):
        given = faults.with_changes(inspector, crop_pct=share)
        padding, found = inputs.crop(subject.CheckSubject(given, samples[:2], "frozen"))
        assert (padding.name, padding.number, padding.severity) == ("padding", 0, "number")
        assert found.number == pytest.approx(share, abs=0.01)
        assert found.severity == ("note" if share < inputs.CROPPED else "number")


def test_padding_is_share_of_input_outside_image(inspector, samples):
    given = faults.with_changes(inspector, crop_mode="border", crop_pct=1.0)
    wide = [one for one in samples if one.image.width > one.image.height][:1]
    padding, crop = inputs.crop(subject.CheckSubject(given, wide, "frozen"))
    image = wide[0].image
    assert padding.number == pytest.approx(1 - image.height / image.width, abs=0.01)
    assert padding.severity == "note" and crop.number == pytest.approx(image.width / image.height, abs=0.02)


def test_position_structure_matches_loops():
    grid, table = Grid(3, 4, (8, 8)), torch.randn(12, 6, generator=torch.Generator().manual_seed(2)).double()
    rows = (table - table.mean(dim=0)).numpy()
    near, every = [], []
    for a, b in itertools.permutations(range(12), 2):
        cosine = rows[a] @ rows[b] / np.linalg.norm(rows[a]) / np.linalg.norm(rows[b])
        every.append(cosine)
        if abs(a // 4 - b // 4) + abs(a % 4 - b % 4) == 1:
            near.append(cosine)
    found = weights.position_structure(table.float(), grid)
    assert found == pytest.approx(np.mean(near) - np.mean(every), abs=1e-6)


def test_row_offset_matches_loops():
    table = torch.randn(30, 6, generator=torch.Generator().manual_seed(2)).double()
    rows = (table - table.mean(dim=0)).numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    means = {one: np.mean([rows[i] @ rows[i + one] for i in range(30 - one)]) for one in range(3, 9)}
    offset, lead = weights.row_offset(table.float(), 5)
    assert means[offset] == max(means.values())
    assert lead == pytest.approx(max(means.values()) - means[5], abs=1e-6)


@pytest.mark.parametrize("size", [10, 12, 20])
def test_positions_resized_in_two_dimensions_are_those_of_the_grid(inspector, size):
    table = inspector.position_table().T.reshape(1, -1, 14, 14)
    resized = torch.nn.functional.interpolate(table, (size, size + 3), mode="bicubic")[0].flatten(1).T
    assert weights.row_offset(resized, size + 3) == (size + 3, 0)


def test_contrast_matches_loops():
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(4))
    each = [(max(row) - np.mean(row)) / np.std(row) for row in logits.tolist()]
    assert head.contrast(logits) == pytest.approx(np.mean(each), rel=1e-6)


def test_probability_of_hits_sums_over_all_outcomes():
    shares = [0.9, 0.2, 0.6, 0.35]
    expected = np.zeros(5)
    for outcome in itertools.product((0, 1), repeat=4):
        expected[sum(outcome)] += math.prod(
            p if right else 1 - p for p, right in zip(shares, outcome, strict=True)
        )
    np.testing.assert_allclose(head.probability_of_hits(shares), expected, atol=1e-12)


def test_outlier_tokens_are_reported_with_first_layer(inspector, samples):
    from vitviz.diagnostics import attention

    def enlarge(tokens):
        tokens = tokens.clone()
        tokens[:, 50] *= 30
        return tokens

    with inspector.hook("blocks.4.output", enlarge):
        given = subject.CheckSubject(inspector, samples[:2], "frozen")
        given.traces  # noqa: B018 (the traces of the hooked model)
    (found,) = attention.outliers(given)
    assert found.severity == "note" and "layer 5" in found.sentence
    assert token_norms(given.traces[0])[5, 50] > 10 * token_norms(given.traces[0])[4, 50]


def test_ended_check_runs_no_forward_pass(inspector, monkeypatch):
    monkeypatch.setattr(type(inspector), "trace", lambda *given, **more: pytest.fail("a pass was run"))
    report = vitviz.check(inspector, on_finding=lambda found: False)
    assert [one.name for one in report.findings] == ["not_finite"] and report.images == 4


def test_image_limit_keeps_classes_balanced_and_labelled(small_inspector, tmp_path, photo):
    for label in (0, 3):
        (tmp_path / f"class {label}").mkdir()
        for number in range(6):
            photo.resize((40, 40)).save(tmp_path / f"class {label}" / f"{number}.png")
    found = subject.images_of(small_inspector, tmp_path, limit=4)
    assert [set(one.truth) for one in found] == [{0}, {0}, {3}, {3}]


def test_folders_named_by_wordnet_ids_give_true_classes(inspector, tmp_path, photo):
    for name in ("n02123045", "n02012849", "n01440764"):  # tabby, crane (bird), tench
        (tmp_path / name).mkdir()
        photo.resize((40, 40)).save(tmp_path / name / "1.png")
    images = subject.images_of(inspector, tmp_path)
    assert [set(one.truth) for one in images] == [set(), set(), {inspector.labels.index("tabby")}]
    unused = next(head.labels(subject.CheckSubject(inspector, images, "frozen")))
    assert (unused.name, unused.severity, unused.number) == ("labels_unused", "note", 2 / 3)
    assert "2 of 3 images" in unused.sentence and "n01440764, n02012849" in unused.sentence


@pytest.mark.parametrize("order", ["sorted by name", "sorted by number as text", "sorted by WordNet id"])
def test_labels_in_another_known_order_are_named(inspector, order):
    labels, classes = inspector.labels, range(len(inspector.labels))
    if "name" in order:
        of_output, labels = sorted(labels), labels[::-1]
    elif "number" in order:
        of_output = [labels[number] for number in sorted(classes, key=str)]
    else:
        of_output, labels = labels, sorted(labels, key=str.lower)
    truths = {i: {labels.index(of_output[output])} for i, output in enumerate(range(20, 180, 20))}
    for hits, expected in ((3, "serious"), (2, "note"), (1, None)):
        top = [20 * (i + 1) if i < hits else 0 for i in truths]
        found = head.sorted_labels(labels, top, truths)
        assert (found and found.severity) == expected
        if found:
            assert (
                found.number == pytest.approx(3 * binom.sf(hits - 1, 8, 1 / 200)) and order in found.sentence
            )
    assert head.sorted_labels(labels, [next(iter(truth)) for truth in truths.values()], truths) is None


def test_weak_classifier_is_reported_only_without_serious_cause(inspector, samples):
    given = subject.CheckSubject(faults.stale_classifier(inspector), samples, "frozen")
    (found,) = check.results(given, "head", head.belongs)
    assert (found.name, found.severity) == ("weak_classifier", "note")
    cause = Finding("dead_heads", "weights", "serious", "Two heads are dead.")
    check.results(given, "weights", lambda _: iter([cause]))
    assert check.results(given, "head", head.belongs) == []


def test_unknown_method_or_no_images_raise(inspector):
    with pytest.raises(VitvizError, match="'lime' is not valid; expected one of"):
        vitviz.check(inspector, method="lime")
    with pytest.raises(VitvizError, match="no image to check"):
        vitviz.check(inspector, images=[])


def test_verdict_requires_finite_number_beyond_threshold():
    found = verdict("not_deterministic", 2.0, 1.0)
    assert (found.name, found.severity) == ("not_deterministic", "serious") and "dropout" in found.advice
    assert verdict("dead_heads", 2.0, 1.0, heads="").severity == "number"  # which is serious below
    missing = verdict("not_deterministic", float("nan"), 1.0)
    assert (missing.severity, missing.sentence) == ("number", "Two passes on one image agree.")
    assert missing.advice == ""


def test_report_ranks_serious_findings_first_and_escapes_html(tmp_path):
    found = [
        Finding("a", "weights", "number", "All weights are finite."),
        Finding("b", "input", "note", "Note this."),
        Finding(
            "c", "head", "serious", "<b>Wrong</b>.", 0.5, 0.25, "by definition", "Load it again.", "trial"
        ),
    ]
    report = Report("mine <1>", 4, tuple(found))
    assert [one.name for one in report.ranked] == ["c", "b", "a"] and report.serious == (found[2],)
    assert report.frame().name.tolist() == ["c", "b", "a"]
    assert str(report).splitlines()[1].startswith("SERIOUS (head) <b>Wrong</b>. [0.5, threshold 0.25: by def")
    page = report.save(tmp_path / "check.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;Wrong" in page and "mine &lt;1&gt;" in page and "<script" not in page
    assert "Load it again." in Reader(report._repr_html_()).said


def test_parameter_randomisation_of_trace_equals_that_of_image(small_inspector, photo):
    asked = {"target": 0, "methods": ["input_gradient"], "blocks": (0, 2), "seeds": (0,)}
    of_image = parameter_randomisation(small_inspector, photo, **asked)
    of_trace = parameter_randomisation(small_inspector, small_inspector.trace(photo), **asked)
    assert of_image == of_trace and of_image["input_gradient"][1][0] < 0.9
