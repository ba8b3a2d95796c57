"""The numbers of every figure for print, panel by panel, against the trace itself: which head, which axis,
which unit, which scale.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import vitviz
from vitviz import analyses


def panels(figure):
    return [panel for row in figure.plate.rows for panel in row]


def close(found, expected, atol=1e-4):
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), atol=atol)


def test_distance_by_depth_and_sorted(made, trace):
    expected = vitviz.attention_distance(trace).double()
    chart, mass = panels(made("distance", True))
    dots, mean = chart.series
    close(dots.x, np.repeat(np.arange(1, 9), 3)), close(dots.y, expected.ravel())
    close(mean.y, expected.mean(dim=1)), close(mean.x, np.arange(1, 9))
    assert chart.y == (0.0, pytest.approx(1.08 * max(expected.max().item(), chart.levels[0].value)))
    assert chart.levels[0].value == pytest.approx(analyses.uniform_distance(trace.grid))
    assert (str(chart.up), str(mass.up)) == (
        "Mean attention distance (px)",
        "Share of attention on prefix tokens",
    )
    close(mass.series[0].y, analyses.prefix_mass(trace).ravel())
    assert mass.y == (0.0, 1.0) and not mass.levels
    (sorted_chart,) = panels(made("distance", form="sorted", rows="renormalised"))
    again = vitviz.attention_distance(trace, renormalise=True).double().sort(dim=1).values
    for line, row in zip(sorted_chart.series, again, strict=True):
        close(line.y, row), close(line.x, [1, 2, 3])
    assert sorted_chart.levels[0].value == pytest.approx(analyses.uniform_distance(trace.grid, True))


@pytest.mark.parametrize("scale", ["own", "shared"])
@pytest.mark.parametrize("direction", ["row", "column"])
def test_attention_of_one_head_and_of_their_mean(made, trace, direction, scale):
    attention, token = trace.attention(4), 30
    lines = attention[:, token] if direction == "row" else attention[:, :, token]
    most = torch.stack([(a[:, token] if direction == "row" else a[:, :, token])[:, 1:].max()
                        for a in (trace.attention(layer) for layer in range(8))]).max()  # fmt: skip
    for show, line in (("head", lines[1]), ("mean", lines.mean(dim=0))):
        settings = {"layer": 5, "head": 2, "token": token, "direction": direction, "scale": scale}
        figure = made("explorer", show=show, **settings)
        (panel,) = panels(figure)
        close(panel.values, line[1:].reshape(14, 14), 1e-6)
        high = most.item() if scale == "shared" else line[1:].max().item()
        assert (panel.scale.low, panel.scale.high) == (0.0, pytest.approx(high, rel=1e-4))
        assert panel.marks[0].cell == token - 1
        notes = " ".join(map(str, figure.plate.notes))
        share = line[1:].sum().item()
        told = f"On patches: {share:.3f}." if direction == "row" else f"give it {share:.3g} in sum"
        assert told in notes and f"class: {line[0].item():.4f}" in notes


def test_the_wall_frames_the_head_in_view(made):
    wall = panels(made("explorer", True, layer=5, head=2))[1]
    assert wall.chosen == 1 * 8 + 4 and (str(wall.along), str(wall.down)) == ("layer", "head")
    assert panels(made("explorer", True, layer=5, show="mean"))[1].chosen == 3 * 8 + 4


def test_the_wall_by_distance_is_in_that_order(made, trace):
    distance = vitviz.attention_distance(trace)
    first, plain = (panels(made("explorer", True, order=one, layer=5, head=2))[1]
                    for one in ("distance", "number"))  # fmt: skip
    order = distance.argsort(dim=1, stable=True)
    for layer in range(8):
        for place in range(3):
            (one,) = first.pictures[place * 8 + layer][None]
            assert (one == plain.pictures[order[layer, place] * 8 + layer]).all()
    assert first.chosen == order[4].tolist().index(1) * 8 + 4


def test_filters_are_the_components_each_by_itself(made, inspector):
    tiles, chart = panels(made("filters", True))
    filters = vitviz.embedding_filters(inspector)
    shares = np.asarray(filters.variance, float)[: len(tiles.pictures)]
    close(chart.bars.high, shares, 1e-6), close(chart.bars.low, 0 * shares)
    assert chart.percent and chart.y == (0.0, pytest.approx(1.08 * shares.max()))
    for share, caption in zip(shares, tiles.captions, strict=True):
        assert float(caption.removesuffix(" %")) == pytest.approx(100 * share, rel=0.06)
    for picture in tiles.pictures:
        assert picture.min() == 0 and picture.max() == 255
    (raw,) = panels(made("filters", kind="raw"))
    weight = inspector.model.patch_embed.proj.weight.detach()
    largest = weight[int(weight.flatten(1).norm(dim=1).argmax())].permute(1, 2, 0).numpy()
    expected = 255 * (largest - largest.min()) / np.ptp(largest)
    assert abs(raw.pictures[0].astype(float) - expected).max() < 1.01 and len(raw.pictures) == len(weight)


def test_norms_of_patches_with_and_without_positions(made, trace):
    tiles, plain, placed = panels(made("patches", True))
    expected = trace.patch_embedding.norm(dim=-1).reshape(14, 14)
    close(plain.values, expected)
    close(placed.values, trace.position_embedded.norm(dim=-1)[-196:].reshape(14, 14))
    close([plain.scale.low, plain.scale.high], [expected.min(), expected.max()])
    assert str(plain.scale.label) == "Norm of its embedding" and len(tiles.pictures) == 196


@pytest.mark.parametrize("scale", ["full", "data"])
def test_positions_as_tiles_and_as_a_matrix(made, inspector, scale):
    expected = vitviz.position_similarity(inspector).double().reshape(196, 196)
    (matrix,) = panels(made("positions", form="matrix", scale=scale))
    close(matrix.values, expected, 1e-5)
    others = expected[~torch.eye(196, dtype=torch.bool)]
    ends = (others.min(), others.max()) if scale == "data" else (-1, 1)
    close([matrix.scale.low, matrix.scale.high], ends, 1e-4)
    assert matrix.step == 14 and str(matrix.along) == str(matrix.down) == "Input patch number"
    _, middle = panels(made("positions", True, scale=scale))
    close(middle.values, expected[7 * 14 + 7].reshape(14, 14), 1e-5)
    assert middle.marks[0].cell == 7 * 14 + 7


def test_rollout_of_all_layers_of_one_and_of_a_patch(made, trace):
    main, strip = panels(made("rollout", True))
    whole = vitviz.rollout(trace)
    close(main.values, whole, 1e-6)
    assert main.box == trace.view.box and len(strip.pictures) == 8
    close([main.scale.low, main.scale.high], [whole.min(), whole.max()], 1e-6)
    (alone,) = panels(made("rollout", alone=3))
    mean = trace.attention(2).double().mean(dim=0)[0, 1:].reshape(14, 14)
    close(alone.values, mean, 1e-6)
    (asked,) = panels(made("rollout", query="40"))
    close(asked.values, vitviz.rollout(trace, query=40), 1e-6)
    assert asked.marks[0].cell == 40
    held = float(vitviz.rollout(trace, query=40).sum())
    assert f"hold {held:.2f} of it" in str(made("rollout", query="40").plate.notes[0])


def test_likeness_is_a_cosine_of_tokens(made, trace):
    tokens, token = trace.tokens[6].double(), 50
    plain = F.cosine_similarity(tokens[token][None], tokens, dim=-1)[1:].reshape(14, 14)
    main, strip = panels(made("tokens", True, depth=6, token=str(token), mean="in"))
    close(main.values, plain, 1e-5)
    assert main.marks[-1].cell == token - 1 and strip.chosen == 6 and len(strip.pictures) == 9
    every = F.normalize(tokens, dim=-1) @ F.normalize(tokens, dim=-1).T
    close([main.scale.low, main.scale.high], [min(every.min().item(), 0.99), 1.0], 1e-4)
    (centred,) = panels(made("tokens", depth=6, token=str(token)))
    centre = tokens - tokens[1:].mean(dim=0)
    close(centred.values, F.cosine_similarity(centre[token][None], centre, dim=-1)[1:].reshape(14, 14), 1e-5)
    assert (centred.scale.colours, centred.scale.low, centred.scale.high) == ("balance", -1.0, 1.0)


def test_norms_their_limit_and_the_largest_attention(made, trace):
    main, histogram, strip, sinks = panels(made("tokens", True, show="norms", depth=6))
    norms = trace.tokens[6].double().norm(dim=-1)[1:]
    close(main.values, norms.reshape(14, 14), 1e-3)
    median = norms.median() if len(norms) % 2 else norms.sort().values[97:99].mean()
    assert main.scale.low == pytest.approx(min(norms.min().item(), median.item()), rel=1e-4)
    assert main.scale.high == pytest.approx(norms.max().item(), rel=1e-4)
    assert histogram.bars.high.sum() == 196 and str(histogram.along) == "Norm of the token"
    counted = np.histogram(norms, 36, histogram.x)[0]
    close(histogram.bars.high, counted)
    limit = histogram.levels[0].value
    orange = sum(n for n, colour in zip(counted, histogram.bars.colours, strict=True) if colour == "#c46a16")
    assert abs(orange - int((norms > limit).sum())) <= counted.max()
    assert len(main.marks) == int((norms > limit).sum())
    received = torch.stack([trace.attention(layer).double().mean(dim=1).max(dim=-1).values
                            for layer in range(8)])  # layer head  # fmt: skip
    close(sinks.values, received.T, 1e-5)
    assert (str(sinks.along), str(sinks.down)) == ("block", "head") and strip.chosen == 6


def test_components_are_scores_and_their_shares(made, trace):
    main, strip, *singles = panels(made("tokens", True, show="components", depth=5))
    patches = trace.tokens[5].double()[1:]
    centred = patches - patches.mean(dim=0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    for i, single in enumerate(singles):
        found = torch.tensor(single.values).double().flatten()
        assert abs(F.cosine_similarity(found, u[:, i], dim=0).item()) == pytest.approx(1, abs=1e-3)
        share = (s[i] ** 2 / (s**2).sum()).item()
        assert f"Component {i + 1}: {100 * share:.1f} %" == str(single.title)
        most = abs(single.values).max()
        close([single.scale.low, single.scale.high], [-most, most])
    assert main.pixels.shape == (14, 14, 3) and len(strip.pictures) == 9


@pytest.mark.parametrize("measure", ["nats", "looked"])
@pytest.mark.parametrize("alike", ["cosine", "divergence"])
def test_how_widely_heads_look_and_how_alike_they_are(made, trace, measure, alike):
    main, likeness = panels(made("tokens", True, show="heads", measure=measure, alike=alike, depth=6))
    entropy = torch.stack([analyses.head_entropy(trace, layer).patches for layer in range(8)]).double()
    close(main.values, (entropy.exp() if measure == "looked" else entropy).T, 1e-3)
    high = 197 if measure == "looked" else np.log(197)
    close([main.scale.low, main.scale.high], [1.0 if measure == "looked" else 0.0, high])
    assert (str(main.along), str(main.down)) == ("block", "head")
    found = analyses.head_redundancy(trace, 5)
    close(likeness.values, getattr(found, alike), 1e-4)
    close([likeness.scale.low, likeness.scale.high], [0, 1 if alike == "cosine" else np.log(2)])
    assert likeness.scale.colours == ("viridis" if alike == "cosine" else "magma")


def test_the_account_goes_from_the_start_to_the_logit(made, inspector, trace):
    target = int(trace.logits.argmax())
    account = vitviz.evidence(inspector, trace, target)
    main, chart, wall = panels(made("evidence", True))
    attention = account.heads.sum(dim=1) + account.projection_biases
    steps = [account.start, *torch.stack([attention, account.mlps], dim=1).ravel().tolist()]
    steps.append(account.norm_bias + account.head_bias)
    heights = np.asarray(chart.bars.high) - np.asarray(chart.bars.low)
    close(heights, [*steps, account.total], 1e-3)
    close(chart.bars.high[:-1], np.cumsum(steps), 1e-3)
    close(wall.values, account.heads.T, 1e-4)
    most = account.heads.abs().max().item()
    close([wall.scale.low, wall.scale.high], [-most, most])
    assert (str(wall.along), str(wall.down)) == ("layer", "head") and wall.scale.colours == "balance"
    most = account.patches.abs().max().item()
    close([main.scale.low, main.scale.high], [-most, most], 1e-4)
    (one,) = panels(made("evidence", chosen="8.2"))
    close(one.values, account.sources[7, 1, 1:].reshape(14, 14), 1e-5)
    chosen = panels(made("evidence", True, chosen="8.2"))[2]
    assert chosen.chosen == 1 * 8 + 7
    picked = panels(made("evidence", True, patches=(3, 77)))[2]
    close(picked.values, account.sources[..., [4, 78]].sum(dim=-1).T, 1e-5)


def test_the_answer_forming_is_the_lens(made, inspector, trace):
    chart = panels(made("evidence", True, show="forming"))[1]
    table = vitviz.lens(inspector, trace).double().softmax(dim=-1)
    for line, index in zip(chart.series, trace.logits.topk(5).indices.tolist(), strict=True):
        close(line.y, table[:, index], 1e-4), close(line.x, np.arange(9))
        assert line.name == trace.labels[index]
    assert chart.percent and chart.y == (0.0, 1.0) and chart.x == (0, 8)


@pytest.mark.parametrize("score", ["probability", "kept"])
@pytest.mark.parametrize("kind", ["drop", "shuffle"])
def test_the_experiment_has_its_means_and_bands_by_step(made, inspector, trace, kind, score):
    found = vitviz.experiment(inspector, trace, kind)
    (chart,) = panels(made("experiment", kind=kind, score=score))
    x = np.arange(0, 101, 10) if kind == "drop" else [1, 2, 3, 4]
    assert len(chart.series) == len(found.probability) == (2 if kind == "drop" else 1)
    for line, draws in zip(chart.series, getattr(found, score).values(), strict=True):
        mean, error = draws.mean(dim=1), draws.std(dim=1) / len(draws[0]) ** 0.5
        close(line.x, x), close(line.y, mean)
        (
            close(line.band[0], (mean - 2 * error).clamp(0, 1)),
            close(line.band[1], (mean + 2 * error).clamp(0, 1)),
        )
    assert chart.y == (0.0, 1.0) and chart.percent and str(chart.title).endswith(found.label)
    named = dict(chart.ticks)
    assert named == ({x: f"{x} %" for x in range(0, 101, 20)} if kind == "drop" else
                     {1: "1", 2: "4", 3: "49", 4: "196"})  # fmt: skip


@pytest.mark.parametrize(("kind", "step", "draw"), [("drop", 7, 3), ("shuffle", 2, 4)])
def test_beside_the_experiment_stands_what_the_model_was_shown(
    made, inspector, trace, photo, kind, step, draw
):
    figure = made("experiment", True, kind=kind, step=step, draw=draw)
    chart, *shown = panels(figure)
    seen, (tall, wide) = trace.view.picture, trace.grid.patch
    notes = " | ".join(map(str, figure.plate.notes))
    if kind == "drop":
        kept = set(analyses.patches_kept(trace.grid, 70, draw).tolist())
        left, black = (one.picture for one in shown)
        for patch in range(196):
            at = np.s_[
                patch // 14 * tall : patch // 14 * tall + tall, patch % 14 * wide : patch % 14 * wide + wide
            ]
            if patch in kept:
                assert (left[at][..., :3] == seen[at]).all() and (left[at][..., 3] == 255).all()
                assert (black[at] == left[at]).all()
            else:
                assert not left[at].any() and (black[at] == [0, 0, 0, 255]).all()
        assert "Shown: 70 % of the patches dropped: 137 of 196, draw 3." in notes
        gone = vitviz.Without(patches=[patch for patch in range(196) if patch not in kept])
        label, share = inspector.trace(photo, without=gone).top(1)[0]
        assert f"left out of the sequence: {label} {100 * share:.1f} %" in notes
    else:
        order = analyses.shuffled_pieces(trace.grid, 2, draw)
        (picture,) = (one.picture for one in shown)
        for place, patch in enumerate(order):
            (row, col), (row2, col2) = divmod(place, 14), divmod(int(patch), 14)
            piece = picture[tall * row : tall * (row + 1), wide * col : wide * (col + 1)]
            assert (
                piece[..., :3] == seen[tall * row2 : tall * (row2 + 1), wide * col2 : wide * (col2 + 1)]
            ).all()
        assert "Shown: 49 pieces of 2 × 2 patches shuffled, draw 4." in notes
    assert chart.levels[0].value == (70 if kind == "drop" else 3) and chart.levels[0].upright
