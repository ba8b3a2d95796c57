"""Numbers of every print figure, panel by panel, against the trace: head, axis, unit and scale."""

import numpy as np
import pytest
import torch

import vitviz
from tests.export.helpers import assert_close
from tests.export.reading import panels
from vitviz import analyses


def test_distance_charts_by_layer_and_sorted(cached_figures, trace):
    expected = vitviz.attention_distance(trace).double()
    chart, mass = panels(cached_figures("distance", True))
    dots, mean = chart.series
    assert_close(dots.x, np.repeat(np.arange(1, 9), 3)), assert_close(dots.y, expected.ravel())
    assert_close(mean.y, expected.mean(dim=1)), assert_close(mean.x, np.arange(1, 9))
    assert chart.y == (0.0, pytest.approx(1.08 * max(expected.max().item(), chart.levels[0].value)))
    assert chart.levels[0].value == pytest.approx(analyses.uniform_distance(trace.grid))
    assert (str(chart.y_label), str(mass.y_label)) == (
        "Mean attention distance (px)",
        "Attention on prefix tokens",
    )
    assert_close(mass.series[0].y, analyses.prefix_mass(trace).ravel())
    assert mass.y == (0.0, 1.0) and not mass.levels
    (sorted_chart,) = panels(cached_figures("distance", form="sorted", rows="renormalised"))
    again = vitviz.attention_distance(trace, renormalise=True).double().sort(dim=1).values
    for line, row in zip(sorted_chart.series, again, strict=True):
        assert_close(line.y, row), assert_close(line.x, [1, 2, 3])
    assert sorted_chart.levels[0].value == pytest.approx(analyses.uniform_distance(trace.grid, True))


@pytest.mark.parametrize("scale", ["own", "shared"])
@pytest.mark.parametrize("direction", ["row", "column"])
def test_attention_map_of_head_and_of_mean(cached_figures, trace, direction, scale):
    attention, token = trace.attention(4), 30
    lines = attention[:, token] if direction == "row" else attention[:, :, token]
    most = torch.stack([(a[:, token] if direction == "row" else a[:, :, token])[:, 1:].max()
                        for a in (trace.attention(layer) for layer in range(8))]).max()  # fmt: skip
    for show, line in (("head", lines[1]), ("mean", lines.mean(dim=0))):
        settings = {"layer": 5, "head": 2, "token": token, "direction": direction, "scale": scale}
        figure = cached_figures("explorer", show=show, **settings)
        (panel,) = panels(figure)
        assert_close(panel.values, line[1:].reshape(14, 14), 1e-6)
        high = most.item() if scale == "shared" else line[1:].max().item()
        assert (panel.scale.low, panel.scale.high) == (0.0, pytest.approx(high, rel=1e-4))
        assert panel.marks[0].cell == token - 1
        notes = " ".join(map(str, figure.spec.notes))
        share = line[1:].sum().item()
        told = f"On patches: {share:.3f}." if direction == "row" else f"from all patches: {share:.3g}."
        assert told in notes and f"class: {line[0].item():.4f}" in notes


def test_head_grid_frames_selected_head(cached_figures):
    wall = panels(cached_figures("explorer", True, layer=5, head=2))[1]
    assert wall.chosen == 1 * 8 + 4 and (str(wall.x_label), str(wall.y_label)) == ("layer", "head")
    assert panels(cached_figures("explorer", True, layer=5, show="mean"))[1].chosen == 3 * 8 + 4


def test_head_grid_can_be_ordered_by_distance(cached_figures, trace):
    distance = vitviz.attention_distance(trace)
    first, plain = (panels(cached_figures("explorer", True, order=one, layer=5, head=2))[1]
                    for one in ("distance", "number"))  # fmt: skip
    order = distance.argsort(dim=1, stable=True)
    for layer in range(8):
        for place in range(3):
            (one,) = first.pictures[place * 8 + layer][None]
            assert (one == plain.pictures[order[layer, place] * 8 + layer]).all()
    assert first.chosen == order[4].tolist().index(1) * 8 + 4


def test_filter_tiles_are_scaled_separately(cached_figures, inspector):
    tiles, chart = panels(cached_figures("filters", True))
    filters = vitviz.embedding_filters(inspector)
    shares = np.asarray(filters.variance, float)[: len(tiles.pictures)]
    assert_close(chart.bars.high, shares, 1e-6), assert_close(chart.bars.low, 0 * shares)
    assert chart.percent and chart.y == (0.0, pytest.approx(1.08 * shares.max()))
    for share, caption in zip(shares, tiles.captions, strict=True):
        assert float(caption.removesuffix(" %")) == pytest.approx(100 * share, rel=0.06)
    for picture in tiles.pictures:
        assert picture.min() == 0 and picture.max() == 255
    (raw,) = panels(cached_figures("filters", kind="raw"))
    weight = inspector.model.patch_embed.proj.weight.detach()
    largest = weight[int(weight.flatten(1).norm(dim=1).argmax())].permute(1, 2, 0).numpy()
    expected = 255 * (largest - largest.min()) / np.ptp(largest)
    assert abs(raw.pictures[0].astype(float) - expected).max() < 1.01 and len(raw.pictures) == len(weight)


def test_patch_norms_with_and_without_positions(cached_figures, trace):
    tiles, plain, placed = panels(cached_figures("patches", True))
    expected = trace.patch_embedding.norm(dim=-1).reshape(14, 14)
    assert_close(plain.values, expected)
    assert_close(placed.values, trace.position_embedded.norm(dim=-1)[-196:].reshape(14, 14))
    assert_close([plain.scale.low, plain.scale.high], [expected.min(), expected.max()])
    assert str(plain.scale.label) == "Embedding norm" and len(tiles.pictures) == 196


def position_history(inspector, trace) -> list[torch.Tensor]:
    """Return the position embeddings of the patches at every stored training step."""
    return inspector.position_tables(trace.grid.pixels)


@pytest.mark.parametrize("scale", ["full", "data"])
def test_position_similarity_as_matrix_and_tiles(cached_figures, inspector, trace, scale):
    expected = vitviz.position_similarity(inspector).double().reshape(196, 196)
    (matrix,) = panels(cached_figures("positions", form="matrix", scale=scale))
    assert_close(matrix.values, expected, 1e-5)
    film = [torch.nn.functional.normalize(one.double(), dim=-1) for one in position_history(inspector, trace)]
    others = torch.cat([(one @ one.T)[~torch.eye(196, dtype=torch.bool)] for one in film])
    assert len(film) > 1  # the scale covers the whole training, for any step in view
    ends = (others.min(), others.max()) if scale == "data" else (-1, 1)
    assert_close([matrix.scale.low, matrix.scale.high], ends, 1e-4)
    assert matrix.step == 14 and str(matrix.x_label) == str(matrix.y_label) == "Input patch number"
    _, middle = panels(cached_figures("positions", True, scale=scale))
    assert_close(middle.values, expected[7 * 14 + 7].reshape(14, 14), 1e-5)
    assert middle.marks[0].cell == 7 * 14 + 7


def test_rollout_of_all_layers_one_layer_and_one_patch(cached_figures, trace):
    main, strip = panels(cached_figures("rollout", True))
    whole = vitviz.rollout(trace)
    assert_close(main.values, whole, 1e-6)
    assert main.box == trace.view.box and len(strip.pictures) == 8
    assert_close([main.scale.low, main.scale.high], [whole.min(), whole.max()], 1e-6)
    (alone,) = panels(cached_figures("rollout", alone=3))
    mean = trace.attention(2).double().mean(dim=0)[0, 1:].reshape(14, 14)
    assert_close(alone.values, mean, 1e-6)
    (asked,) = panels(cached_figures("rollout", query="40"))
    assert_close(asked.values, vitviz.rollout(trace, query=40), 1e-6)
    assert asked.marks[0].cell == 40
    held = float(vitviz.rollout(trace, query=40).sum())
    assert f"Attention: {held:.2f} on patches" in str(cached_figures("rollout", query="40").spec.notes[0])


def test_attribution_chart_sums_from_start_to_logit(cached_figures, inspector, trace):
    target = int(trace.logits.argmax())
    account = vitviz.logit_attribution(inspector, trace, target)
    main, chart, wall = panels(cached_figures("evidence", True))
    attention = account.heads.sum(dim=1) + account.projection_biases
    steps = [account.start, *torch.stack([attention, account.mlps], dim=1).ravel().tolist()]
    steps.append(account.norm_bias + account.head_bias)
    heights = np.asarray(chart.bars.high) - np.asarray(chart.bars.low)
    assert_close(heights, [*steps, account.total], 1e-3)
    assert_close(chart.bars.high[:-1], np.cumsum(steps), 1e-3)
    assert_close(wall.values, account.heads.T, 1e-4)
    most = account.heads.abs().max().item()
    assert_close([wall.scale.low, wall.scale.high], [-most, most])
    assert (str(wall.x_label), str(wall.y_label)) == ("layer", "head") and wall.scale.colours == "balance"
    most = account.patches.abs().max().item()
    assert_close([main.scale.low, main.scale.high], [-most, most], 1e-4)
    (one,) = panels(cached_figures("evidence", chosen="8.2"))
    assert_close(one.values, account.sources[7, 1, 1:].reshape(14, 14), 1e-5)
    chosen = panels(cached_figures("evidence", True, chosen="8.2"))[2]
    assert chosen.chosen == 1 * 8 + 7
    picked = panels(cached_figures("evidence", True, patches=(3, 77)))[2]
    assert_close(picked.values, account.sources[..., [4, 78]].sum(dim=-1).T, 1e-5)


def test_forming_chart_shows_logit_lens(cached_figures, inspector, trace):
    chart = panels(cached_figures("evidence", True, show="forming"))[1]
    table = vitviz.logit_lens(inspector, trace).double().softmax(dim=-1)
    for line, index in zip(chart.series, trace.logits.topk(5).indices.tolist(), strict=True):
        assert_close(line.y, table[:, index], 1e-4), assert_close(line.x, np.arange(9))
        assert line.name == trace.labels[index]
    assert chart.percent and chart.y == (0.0, 1.0) and chart.x == (0, 8)
