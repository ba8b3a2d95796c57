"""Numbers computed by scripts in Node, compared with plain float64 loops."""

import json
import math

import numpy as np
import pytest

import vitviz
from vitviz.analyses import attention_entropy
from vitviz.views import ViewContext
from vitviz.views.evidence import AttributionView
from vitviz.views.patches import PatchesView
from vitviz.views.positions import PositionsView
from vitviz.views.routes import item_array, parse_settings
from vitviz.views.tokens import RepresentationsView


@pytest.fixture(scope="module")
def subject(inspector, trace):
    return ViewContext(inspector, trace)


def view_state(subject, **more) -> dict:
    """Return the part of a mounted view that its functions read."""
    grid = subject.trace.grid
    shape = {
        "rows": grid.rows,
        "cols": grid.cols,
        "patch": list(grid.patch),
        "prefix": list(grid.prefix_names),
    }
    return {"grid": shape, "value": {"layers": 8, "heads": 3}, "summary": {}, "ui": {}, **more}


def items(view, subject, names, **settings) -> dict:
    """Return items as the browser receives them: float32 values and shape."""
    settings = parse_settings(view, {name: str(value) for name, value in settings.items()}, subject.about)
    found = {name: np.asarray(view.item(subject, name, settings)) for name in names}
    return {name: {"values": one.astype(np.float32), "shape": list(one.shape)} for name, one in found.items()}


def test_normalised_patch_equals_the_model_input(node, subject):
    inputs = []
    inspector = subject.inspector
    layer = inspector.model.patch_embed
    handle = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0].double().numpy()[0]))
    try:
        inspector.trace(vitviz.sample_image("coffee"), size=None)
    finally:
        handle.remove()
    picture, grid = subject.trace.view.picture, subject.trace.grid
    shape = {"cols": grid.cols, "patch": list(grid.patch)}
    rgba = np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    (tall, wide), preprocessing = grid.patch, inspector.preprocessing
    for patch in (0, 17, grid.patches - 1):
        found = node(
            "frontend/normalisation.js",
            "normalised(bytes, patch, grid, preprocessing)",
            bytes=rgba,
            patch=patch,
            grid=shape,
            preprocessing={"mean": list(preprocessing.mean), "std": list(preprocessing.std)},
        )
        row, col = divmod(patch, grid.cols)
        square = inputs[-1][:, row * tall : (row + 1) * tall, col * wide : (col + 1) * wide]
        np.testing.assert_allclose(found, square.transpose(1, 2, 0).ravel(), atol=1e-5)


def test_entropy_of_row_and_head_matches_python(node, subject):
    weights = subject.trace.attention(4)[2].double().numpy()
    rows = [-sum(a * math.log(a) for a in row if a > 0) for row in weights]
    found = node(
        "views/explorer/tokens.js",
        "[0, 1, 2].map((i) => entropy(values, i * count, count))",
        values=weights[:3].astype(np.float32),
        count=len(weights),
    )
    np.testing.assert_allclose(found, rows[:3], rtol=1e-5)
    assert np.mean(rows) == pytest.approx(attention_entropy(subject.trace, 4)[2].item(), rel=1e-5)
    assert node("views/explorer/tokens.js", "entropy(values, 0, 3)", values=np.float32([0, 0.5, 0.5])) == (
        pytest.approx(math.log(2))
    )


def test_attention_text_reports_entropy_and_distance(node, subject):
    weights = np.full(197, 1 / 197, np.float32)
    view = view_state(
        subject,
        settings={"layer": 5, "head": 2, "show": "head", "direction": "row"},
        data={
            "entropy": {"values": [1.25, 2.5, 3.75]},
            "distances": {"values": np.arange(24, dtype=np.float32)},
        },
    )
    view["ui"]["weights"] = weights
    text = node("views/explorer/query.js", "told(self)", self=view)
    assert f"row {math.log(197):.2f} nats" in text and "head: entropy 2.50 nats" in text
    assert f"distance {4 * 3 + 1:.1f} px" in text and f"On patches: {196 / 197:.3f}" in text


@pytest.mark.parametrize("show", ["head", "mean"])
@pytest.mark.parametrize("direction", ["row", "column"])
def test_query_weights_are_row_or_column_of_head_or_mean(node, subject, show, direction):
    view = view_state(subject, settings={"show": show, "head": 3, "direction": direction, "token": 0})
    count = subject.trace.grid.tokens
    layer = np.random.default_rng(0).random((3, count, count)).astype(np.float32)
    view["data"] = {"layer": {"values": layer}}
    found = node("views/explorer/query.js", "weights(self, 40)", self=view)
    expected = layer.astype(np.float64).mean(axis=0) if show == "mean" else layer[2]
    np.testing.assert_allclose(found, expected[40] if direction == "row" else expected[:, 40], rtol=1e-5)


@pytest.mark.parametrize("scale", ["own", "shared"])
def test_head_wall_scales_by_own_or_shared_maximum(node, subject, scale):
    random, grid = np.random.default_rng(0), subject.trace.grid
    maps = random.random((8, 3, grid.rows, grid.cols)) * random.random((8, 3, 1, 1))
    peaks = maps.max(axis=(2, 3))
    bytes_ = np.round(255 * maps / peaks[:, :, None, None]).astype(np.uint8)
    view = view_state(subject, settings={"scale": scale})
    view["data"] = {"wall": {"values": bytes_}, "wallmax": {"values": peaks.astype(np.float32)}}
    found = np.reshape(
        node("views/explorer/wall.js", "levelsOf(self)", self=view), (8, grid.rows, 4, grid.cols)
    )
    for layer in range(8):
        known = bytes_[layer] / 255 * peaks[layer][:, None, None]
        for head, heatmap in enumerate([*known, known.mean(axis=0)]):
            maximum = peaks.max() if scale == "shared" else heatmap.max()
            np.testing.assert_allclose(found[layer, :, head], heatmap / maximum, atol=1e-5)


def test_effective_tokens_of_a_head_match_its_entropy(node, subject):
    view, layer, head = RepresentationsView(), 4, 2
    settings = parse_settings(view, {"show": "heads", "measure": "nats"}, subject.about)
    attention = subject.trace.attention(layer)[head].double().numpy()
    rows = [-sum(a * math.log(a) for a in row if a > 0) for row in attention]
    nats = float(np.mean(rows[1:]))
    figure = json.loads(item_array(view, subject, "matrices", settings).tobytes())[0]
    lines = node("frontend/matrix.js", "told(figure, 2, 4)", figure=figure)
    assert lines[0] == "Layer 5, head 3"
    assert f"{math.exp(nats):.3g} effective tokens, entropy {nats:.3g} nats" in lines[1]
    assert f"{rows[0]:.3g} nats" in lines[2]
    assert np.shape(figure["values"]) == (3, 8)
    assert figure["values"][head][layer] == pytest.approx(nats, rel=1e-4)


def test_patch_norms_before_and_after_position_match_trace(node, subject):
    norms, count = PatchesView().item(subject, "norms", {}), subject.trace.grid.patches
    given = {"norms": {"values": norms.astype(np.float32)}, "count": count}
    found = node("views/patches/detail.js", "normsOf(norms, 33, count)", **given)
    before = np.sqrt((subject.trace.patch_embedding[33].double().numpy() ** 2).sum())
    after = np.sqrt((subject.trace.position_embedded[33].double().numpy() ** 2).sum())
    np.testing.assert_allclose([found["before"], found["after"]], [before, after], rtol=1e-5)
    assert found["most"] == pytest.approx(norms.max(), rel=1e-6) and abs(before - after) > 0.1


def test_position_similarity_range_and_tile_layout(node, subject):
    summary, similarity = PositionsView().summary(subject), PositionsView().item(subject, "similarity", {})
    view = view_state(
        subject, settings={"scale": "data"}, data={"similarity": {"values": similarity.astype(np.float32)}}
    )
    view["summary"] = summary
    ends = "ends({ ...self, ui: {}, beside: () => [{ summary: { minimum: 0.1, maximum: 2 }, ui: {} }] })"
    assert node("views/positions/view.js", ends, self=view) == [summary["minimum"], 2]
    view["settings"] = {"scale": "full"}
    assert node("views/positions/view.js", ends, self=view) == [-1, 1]
    small = np.arange(36, dtype=np.float32)  # 2 x 3 patches
    found = node("views/positions/view.js", "tilesOf(values, { rows: 2, cols: 3 })", values=small)
    for patch in range(6):
        for other in range(6):
            row, col = patch // 3 * 2 + other // 3, patch % 3 * 3 + other % 3
            assert found[row * 9 + col] == small[patch * 6 + other]


def test_outlier_tokens_match_median_plus_mad(node, subject):
    data = items(RepresentationsView(), subject, ["norms", "usual"], show="norms", k=2)
    view = view_state(subject, data=data, settings={"depth": 8, "k": 2})
    found = node("views/tokens/tokens.js", "outliers(self)", self=view)
    norms = [math.sqrt(sum(x * x for x in token)) for token in subject.trace.tokens[8][1:].double().tolist()]
    median = float(np.median(norms))
    limit = median + 2 * float(np.median([abs(norm - median) for norm in norms]))
    assert found["limit"] == pytest.approx(limit, rel=1e-4)
    assert found["cells"] == [patch for patch, norm in enumerate(norms) if norm > limit] and found["cells"]


def test_attribution_lines_and_waterfall_sum_to_the_logit(node, subject):
    names = ["heads", "mlps", "biases", "lines", "sources"]
    view = view_state(subject, data=items(AttributionView(), subject, names))
    target = subject.trace.top(1)[0][0]
    attribution = vitviz.logit_attribution(subject.inspector, subject.trace, target=target)
    sums = node("views/evidence/lines.js", "sums(self)", self=view)
    bars = AttributionView().chart(subject, parse_settings(AttributionView(), {}, subject.about)).bars
    assert bars.low[0] == 0 and bars.high[-1] == pytest.approx(float(attribution.logit), abs=1e-3)
    np.testing.assert_allclose(bars.high[:-2], bars.low[1:-1])
    attention = (bars.high - bars.low)[1:-2:2]
    expected = attribution.heads.double().sum(dim=1) + attribution.projection_biases.double()
    np.testing.assert_allclose(attention, expected.numpy(), atol=1e-4)
    names = ("patches", "start", "mlps", "biases", "pooling")
    lines = sum(sums["prefix"]) + sum(sums[name] for name in names)
    assert lines == pytest.approx(sums["sum"], abs=1e-3) == pytest.approx(float(attribution.total), abs=1e-3)


def cubic(x: float) -> float:
    """Evaluate the kernel of Keys 1981 with a = -0.75."""
    x, a = abs(x), -0.75
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def test_map_is_upsampled_bicubically_and_clipped(node):
    small, factor = np.random.default_rng(0).random((3, 4)).astype(np.float32), 5
    found = node("frontend/colours.js", "enlarged(values, 3, 4, 5)", values=small)
    expected = np.zeros((15, 20))
    for row in range(15):
        for col in range(20):
            y, x = (row + 0.5) / factor - 0.5, (col + 0.5) / factor - 0.5
            for i in range(math.floor(y) - 1, math.floor(y) + 3):
                for j in range(math.floor(x) - 1, math.floor(x) + 3):
                    near = small[min(2, max(0, i)), min(3, max(0, j))]
                    expected[row, col] += cubic(y - i) * cubic(x - j) * near
    expected = expected.clip(small.min(), small.max())
    np.testing.assert_allclose(np.reshape(found["values"], (15, 20)), expected, atol=1e-5)
    small[1, 2] = np.nan
    found = np.array(
        node("frontend/colours.js", "enlarged(values, 3, 4, 5)", values=small)["values"], dtype=float
    )
    missing = np.isnan(found.reshape(3, 5, 4, 5))
    assert missing[1, :, 2].all() and missing.sum() == 25


def test_float16_decoding_and_nan_ignoring_sums(node):
    halves = np.float16([0, 1, -2.5, 65504, 6e-8, 1 / 3])
    words = np.frombuffer(halves.tobytes(), np.uint8)
    found = node("frontend/data.js", "fromHalf(bytes.buffer)", bytes=words)
    assert found == halves.astype(float).tolist()
    given = np.float32([2, np.nan, -5, 4])
    assert node("frontend/numbers.js", "[total(values), bounds(values)]", values=given) == [1, [-5, 4]]
