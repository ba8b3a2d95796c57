"""Similarity figure: the matrix is CKA by plain loops over the traces; the curves are the heads' numbers."""

import itertools

import numpy as np
import pytest

import vitviz
from tests.export.reading import cell_centres, image_of, texts, values_of_colours
from tests.tiers import sweep
from vitviz import analyses
from vitviz.errors import VitvizError
from vitviz.surveys import LAYERS, sample_crops
from vitviz.traces.runs import Ablation

EARLY = "vitviz-tiny@30"

pytestmark = pytest.mark.usefixtures("cached_sample_survey")


@pytest.fixture(scope="module")
def early():
    return vitviz.load(EARLY, device="cpu")


@pytest.fixture(scope="module")
def sample_traces(inspector, early):
    """Return the traces of every crop of the samples, by both checkpoints."""
    return [[one.trace(part) for part in sample_crops()] for one in (inspector, early)]


@pytest.fixture(scope="module")
def cached_figures(inspector, early):
    """Return a function that makes figures of both checkpoints and caches them."""
    kept = {}

    def make(second=True, **asked):
        if (name := (second, *asked.items())) not in kept:
            asked = {"against": "own"} | asked
            kept[name] = vitviz.figure("compared", inspector, second=early if second else None, **asked)
        return kept[name]

    return make


@pytest.fixture(scope="module")
def surveys(inspector, early):
    return [vitviz.survey(sample_crops(), one, LAYERS, batch=5) for one in (inspector, early)]


def hsic_by_loops(K: np.ndarray, L: np.ndarray) -> float:
    """Return HSIC of two Gram matrices: the mean over quadruples of distinct images (Song et al. 2012)."""
    fours = itertools.permutations(range(len(K)), 4)
    return float(np.mean([K[i, j] * (L[i, j] + L[q, r] - 2 * L[i, q]) for i, j, q, r in fours]))


def cka_by_loops(first: list, second: list, depth: int, other: int) -> float:
    """Return CKA of two layers over minibatches of eight, as on the page."""

    def grams(traces, depth):
        rows = np.stack([trace.tokens[depth][1:].double().mean(dim=0).numpy() for trace in traces])
        parts = np.split(rows - rows.mean(axis=0), (8, 16))
        return [part @ part.T for part in parts]

    def summed(left, right):
        return sum(map(hsic_by_loops, left, right))

    one, two = grams(first, depth), grams(second, other)
    return summed(one, two) / (summed(one, one) * summed(two, two)) ** 0.5


def panels(figure):
    return [panel for row in figure.spec.rows for panel in row]


@pytest.mark.long
@pytest.mark.parametrize("against", ["own", "beside"])
def test_cka_matrix_matches_loops(cached_figures, sample_traces, against):
    figure = cached_figures(against=against)
    (matrix,) = panels(figure)
    other = sample_traces[1 if against == "beside" else 0]
    for depth, column in ((0, 3), (2, 7), (8, 1)):
        assert matrix.values[depth, column] == pytest.approx(
            cka_by_loops(sample_traces[0], other, depth, column), abs=2e-4
        )
    assert (matrix.scale.colours, matrix.scale.low, matrix.scale.high) == ("viridis", 0.0, 1.0)
    found = values_of_colours(cell_centres(image_of(figure.svg(), "panel-1-values"), 9, 9), 0.0, 1.0)
    np.testing.assert_allclose(found, np.clip(matrix.values, 0, 1), atol=1 / 255)


def test_axes_and_scale_are_labelled_from_layer_zero(cached_figures):
    said = texts(cached_figures(against="beside").svg())
    assert {"depth of vitviz-tiny", f"depth of {EARLY}", "CKA similarity", "0", "8"} <= set(said)
    assert "9" not in said and "Based on 20 crops of the four sample images." in said
    assert panels(cached_figures(against="beside"))[0].y_label == "depth of vitviz-tiny"


def test_undefined_cka_is_transparent_and_noted(cached_figures):
    figure = cached_figures(tokens="class")
    assert (
        np.isnan(panels(figure)[0].values[0]).all() and not np.isnan(panels(figure)[0].values[1:, 1:]).any()
    )
    alpha = cell_centres(image_of(figure.svg(), "panel-1-values"), 9, 9)[..., 3]
    assert (alpha[0] == 0).all() and (alpha[:, 0] == 0).all() and (alpha[1:, 1:] == 255).all()
    assert any("Empty squares: CKA is undefined" in text for text in texts(figure.svg()))
    assert not any("Empty squares" in str(note) for note in cached_figures(against="own").spec.notes)


def test_second_checkpoint_is_compared_by_default(inspector, early, cached_figures):
    by_default = vitviz.figure("compared", inspector, second=early)
    assert by_default.name == cached_figures(against="beside").name
    assert str(by_default.caption) == str(cached_figures(against="beside").caption)


@pytest.mark.parametrize("second", [False, True])
def test_detail_adds_distance_curves_of_all_checkpoints(cached_figures, sample_traces, second):
    matrix, chart = panels(cached_figures(second=second, detail=True))
    assert [line.name for line in chart.series] == ["vitviz-tiny", EARLY][: 1 + second]
    assert len({line.colour for line in chart.series}) == 1 + second
    for line, traces in zip(chart.series, sample_traces, strict=False):
        every = np.stack([vitviz.attention_distance(trace).double().numpy() for trace in traces])
        np.testing.assert_allclose(line.y, every.mean(axis=(0, 2)), rtol=2e-4)
        np.testing.assert_array_equal(line.x, np.arange(1, 9))
    assert str(chart.x_label) == "layer" and str(chart.y_label) == "Attention distance (px)"
    assert chart.y[0] == 0 and chart.y[1] > max(line.y.max() for line in chart.series)
    np.testing.assert_array_equal(matrix.values, panels(cached_figures(second=False))[0].values)


CURVES = [
    ({"curve": "entropy"}, "entropy", "mean over a layer’s heads"),
    ({"curve": "attention"}, "skip.attention_patches", "mean over the patches"),
    ({"curve": "mlp"}, "skip.mlp_patches", "mean over the patches"),
    ({"curve": "attention", "tokens": "class"}, "skip.attention_class", "of the class token"),
    ({"curve": "mlp", "tokens": "class"}, "skip.mlp_class", "of the class token"),
    ({"curve": "entropy", "tokens": "class"}, "entropy", "mean over a layer’s heads"),
]


@pytest.mark.long
@sweep("asked, name, said", CURVES, quick=1)
def test_curve_setting_selects_the_quantity(cached_figures, surveys, asked, name, said):
    _, chart = panels(cached_figures(detail=True, **asked))
    for line, survey in zip(chart.series, surveys, strict=True):
        expected = survey.mean(name)
        np.testing.assert_allclose(
            line.y,
            expected.mean(axis=1) if expected.ndim > 1 else expected,
            rtol=2e-4,
            err_msg=str(asked),
        )
    assert str(chart.title).endswith(said), asked


@pytest.mark.long
def test_training_history_has_one_column_per_step(inspector, sample_traces, monkeypatch):
    from vitviz.engine.hub import snapshots

    kept = [
        frame
        for frame in snapshots.all_snapshots(inspector.checkpoint)
        if frame.name in (EARLY, "vitviz-tiny")
    ]
    monkeypatch.setattr(snapshots, "all_snapshots", lambda checkpoint: kept)
    figure = vitviz.figure("compared", inspector, against="film")
    (matrix,) = panels(figure)
    assert matrix.cols == tuple(str(frame.step) for frame in kept) and matrix.cols[0] == "30"
    assert matrix.values[5, 0] == pytest.approx(cka_by_loops(*sample_traces, 5, 5), abs=2e-4)
    np.testing.assert_allclose(matrix.values[:, -1], 1, atol=1e-6)
    assert {"training step", "30"} <= set(texts(figure.svg()))  # the next one finds no room beside it


def test_own_surveys_are_drawn_with_standard_error(inspector, surveys):
    figure = vitviz.figure(
        "compared", inspector, surveys[0], second=surveys[1], against="beside", detail=True
    )
    matrix, _ = panels(figure)
    np.testing.assert_allclose(matrix.values, vitviz.cka(*surveys), atol=1e-6)
    error = analyses.cka_error(*(survey.grams for survey in surveys), "patches").max().item()
    told = [str(note) for note in figure.spec.notes]
    assert told == ["Based on 20 images.", f"Standard error: at most ± {error:.3f}."]
    assert "Based on 20 images." in figure.caption and f"Second checkpoint: {EARLY} (–)." in figure.caption
    chart = panels(vitviz.figure("distance", inspector, surveys[0]))[0]
    np.testing.assert_allclose(chart.series[1].y, surveys[0].mean("distance").mean(axis=1), rtol=1e-4)


def test_checkpoints_of_other_depth_use_relative_depth(inspector, sample_traces, tmp_path):
    from tests.engine.small_models import save_model, small_vit

    other = vitviz.load(save_model(small_vit(), tmp_path / "mine.safetensors"), heads=2, device="cpu")
    matrix, chart = panels(vitviz.figure("compared", inspector, second=other, against="beside", detail=True))
    assert matrix.values.shape == (9, 3) and (len(matrix.rows), matrix.cols) == (9, ("0", "1", "2"))
    first, second = chart.series
    np.testing.assert_allclose(first.x, np.arange(1, 9) / 8), np.testing.assert_allclose(second.x, [0.5, 1])
    assert str(chart.x_label).startswith("relative depth") and not chart.whole
    even = analyses.uniform_distance(inspector.grid())
    every = np.stack([vitviz.attention_distance(trace).double().numpy() for trace in sample_traces[0]])
    np.testing.assert_allclose(first.y, every.mean(axis=(0, 2)) / even, rtol=2e-4)
    assert str(chart.y_label) == "Attention distance / uniform attention"


def test_missing_curve_is_noted_and_not_drawn():
    from tests.engine.constructions import small_model
    from tests.engine.random_inspectors import inspect

    gated = inspect(small_model("gated, averaged").float())
    figure = vitviz.figure("compared", gated, detail=True, curve="mlp")
    assert len(panels(figure)) == 1 and "has no such curve" in str(figure.spec.notes[-1])
    assert any("has no such curve" in text for text in texts(figure.svg()))


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("zh-CN", {"vitviz-tiny 的深度", "CKA 相似度", "基于四张示例图片的 20 个裁剪图。"}),
        (
            "ko",
            {
                "vitviz-tiny의 깊이",
                "CKA 유사도",
                "예시 이미지 네 장에서 잘라 낸 조각 20개 기준입니다.",
                "레이어",
            },
        ),
    ],
)
def test_figure_is_translated(cached_figures, language, said):
    from vitviz.charts.mpl import drawing

    figure = cached_figures(detail=True, language=language, against="beside")
    if drawing.families(language) is not None:
        assert said <= set(texts(figure.svg()))
    assert EARLY in figure.caption and "Second checkpoint" not in figure.caption


def test_name_and_caption_mention_shown_second_checkpoint(cached_figures):
    assert cached_figures(second=False).name == "vitviz-compared_vitviz-tiny"
    assert (
        cached_figures(against="beside").name == "vitviz-compared_vitviz-tiny_vitviz-tiny-30_against-beside"
    )
    assert cached_figures(detail=True).name == "vitviz-compared_vitviz-tiny_vitviz-tiny-30_detail"
    alone, both = cached_figures(), cached_figures(against="beside")
    assert alone.name == "vitviz-compared_vitviz-tiny" and "Second checkpoint" not in alone.caption
    assert f"Second checkpoint: {EARLY} (vit_tiny_patch16_224, Tiny-ImageNet" in both.caption
    for part in ("Based on 20 crops of the four sample images.", "Compare against: The second checkpoint",
                 "Nguyen, Raghu and Kornblith 2021", "K\u0303", "computed in float32"):  # fmt: skip
        assert part in both.caption
    assert "frame" not in both.caption, "the playback step is no setting of the figure"


def test_invalid_comparisons_raise_before_any_forward_pass(
    inspector, early, trace, photo, surveys, monkeypatch
):
    from vitviz.export import over_a_set

    monkeypatch.setattr(over_a_set, "survey_samples", lambda *given: pytest.fail("pictures were looked at"))
    less = inspector.trace(photo, ablation=Ablation(heads=[(0, 1)]))
    for given, words in (
        ((inspector, less), "Restore removed parts first"),
        ((early, surveys[0]), f"The survey is of vitviz-tiny, the inspector of {EARLY}"),
    ):
        with pytest.raises(VitvizError, match=words):
            vitviz.figure("compared", *given)
    with pytest.raises(VitvizError, match="There is no second checkpoint"):
        vitviz.figure("compared", inspector, surveys[0], against="beside")
    with pytest.raises(VitvizError, match="no stored training steps"):
        vitviz.figure("compared", inspector, surveys[0], against="film")
    few = vitviz.survey(sample_crops()[:5], early, LAYERS, batch=5)
    rough = vitviz.survey(sample_crops()[:5], inspector, ["distance"])
    for second, words in ((few, "of different images"), (early, "pass a survey of the same images")):
        with pytest.raises(VitvizError, match=words):
            vitviz.figure("compared", inspector, surveys[0], second=second)
    with pytest.raises(VitvizError, match="pass a survey of the same images"):
        vitviz.figure("compared", inspector, trace, second=surveys[1])
    with pytest.raises(VitvizError, match="pass a survey with the measures vitviz.surveys.LAYERS"):
        vitviz.figure("compared", inspector, rough)
    with pytest.raises(VitvizError, match="`second` is for Similarity"):
        vitviz.figure("rollout", inspector, trace, second=early)
    with pytest.raises(VitvizError, match="Rollout shows one image"):
        vitviz.figure("rollout", inspector, surveys[0])
