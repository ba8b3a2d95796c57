"""Numbers of the print figures of Representations and Perturbations, panel by panel."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import vitviz
from tests.export.helpers import assert_close
from tests.export.reading import panels
from tests.tiers import sweep
from vitviz import analyses


def test_similarity_panel_shows_token_cosines(cached_figures, trace):
    tokens, token = trace.tokens[6].double(), 50
    plain = F.cosine_similarity(tokens[token][None], tokens, dim=-1)[1:].reshape(14, 14)
    main, strip = panels(
        cached_figures("tokens", True, show="similarity", depth=6, token=str(token), mean="in")
    )
    assert_close(main.values, plain, 1e-5)
    assert main.marks[-1].cell == token - 1 and strip.chosen == 6 and len(strip.pictures) == 9
    every = F.normalize(tokens, dim=-1) @ F.normalize(tokens, dim=-1).T
    assert_close([main.scale.low, main.scale.high], [min(every.min().item(), 0.99), 1.0], 1e-4)
    (centred,) = panels(cached_figures("tokens", show="similarity", depth=6, token=str(token)))
    centre = tokens - tokens[1:].mean(dim=0)
    assert_close(
        centred.values, F.cosine_similarity(centre[token][None], centre, dim=-1)[1:].reshape(14, 14), 1e-5
    )
    assert (centred.scale.colours, centred.scale.low, centred.scale.high) == ("balance", -1.0, 1.0)


def test_norm_panels_show_norms_limit_and_attention_sinks(cached_figures, trace):
    main, histogram, strip, sinks = panels(cached_figures("tokens", True, show="norms", depth=6))
    norms = trace.tokens[6].double().norm(dim=-1)[1:]
    assert_close(main.values, norms.reshape(14, 14), 1e-3)
    median = norms.median() if len(norms) % 2 else norms.sort().values[97:99].mean()
    assert main.scale.low == pytest.approx(min(norms.min().item(), median.item()), rel=1e-4)
    assert main.scale.high == pytest.approx(norms.max().item(), rel=1e-4)
    assert histogram.bars.high.sum() == 196 and str(histogram.x_label) == "Norm of the token"
    counted = np.histogram(norms, 36, histogram.x)[0]
    assert_close(histogram.bars.high, counted)
    limit, away = histogram.levels[0].value, (norms - median).abs().sort().values
    assert limit == pytest.approx((median + 5 * away[97:99].mean()).item(), rel=1e-4)  # five MADs, of 196
    assert str(histogram.levels[0].name) == f"limit: {limit:.3g}"
    orange = sum(n for n, colour in zip(counted, histogram.bars.colours, strict=True) if colour == "#c46a16")
    assert abs(orange - int((norms > limit).sum())) <= counted.max()
    assert len(main.marks) == int((norms > limit).sum())
    received = torch.stack([trace.attention(layer).double().mean(dim=1).max(dim=-1).values
                            for layer in range(8)])  # layer head  # fmt: skip
    assert_close(sinks.values, received.T, 1e-5)
    assert (str(sinks.x_label), str(sinks.y_label)) == ("layer", "head") and strip.chosen == 6


def test_component_panels_show_scores_and_shares(cached_figures, trace):
    main, strip, *singles = panels(cached_figures("tokens", True, depth=5))
    patches = trace.tokens[5].double()[1:]
    centred = patches - patches.mean(dim=0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    for i, single in enumerate(singles):
        found = torch.tensor(single.values).double().flatten()
        assert abs(F.cosine_similarity(found, u[:, i], dim=0).item()) == pytest.approx(1, abs=1e-3)
        share = (s[i] ** 2 / (s**2).sum()).item()
        assert f"Component {i + 1}: {100 * share:.1f} %" == str(single.title)
        most = abs(single.values).max()
        assert_close([single.scale.low, single.scale.high], [-most, most])
    assert main.pixels.shape == (14, 14, 3) and len(strip.pictures) == 9


@pytest.mark.parametrize("measure", ["nats", "looked"])
@pytest.mark.parametrize("alike", ["cosine", "divergence"])
def test_head_panels_show_entropy_and_redundancy(cached_figures, trace, measure, alike):
    main, likeness = panels(
        cached_figures("tokens", True, show="heads", measure=measure, alike=alike, depth=6)
    )
    entropy = torch.stack([analyses.head_entropy(trace, layer).patches for layer in range(8)]).double()
    assert_close(main.values, (entropy.exp() if measure == "looked" else entropy).T, 1e-3)
    high = 197 if measure == "looked" else np.log(197)
    assert_close([main.scale.low, main.scale.high], [1.0 if measure == "looked" else 0.0, high])
    assert (str(main.x_label), str(main.y_label)) == ("layer", "head")
    found = analyses.head_redundancy(trace, 5)
    assert_close(likeness.values, getattr(found, alike), 1e-4)
    assert_close([likeness.scale.low, likeness.scale.high], [0, 1 if alike == "cosine" else np.log(2)])
    assert likeness.scale.colours == ("viridis" if alike == "cosine" else "magma")


@pytest.mark.long
@sweep("score", ["probability", "kept"], quick=1)
@sweep("kind", ["drop", "shuffle"], quick=["shuffle"])
def test_perturbation_chart_shows_means_and_bands(
    cached_figures, inspector, trace, fast_perturbation, kind, score
):
    found = vitviz.perturbation(inspector, trace, kind, draws=2)
    (chart,) = panels(cached_figures("experiment", kind=kind, score=score))
    x = np.arange(0, 101, 10) if kind == "drop" else [1, 2, 3, 4]
    assert len(chart.series) == len(found.probability) == (2 if kind == "drop" else 1)
    for line, draws in zip(chart.series, getattr(found, score).values(), strict=True):
        mean, error = draws.mean(dim=1), draws.std(dim=1) / len(draws[0]) ** 0.5
        assert_close(line.x, x), assert_close(line.y, mean)
        (
            assert_close(line.band[0], (mean - 2 * error).clamp(0, 1)),
            assert_close(line.band[1], (mean + 2 * error).clamp(0, 1)),
        )
    assert chart.y == (0.0, 1.0) and chart.percent and str(chart.title).endswith(found.label)
    named = dict(chart.ticks)
    assert named == ({x: f"{x} %" for x in range(0, 101, 20)} if kind == "drop" else
                     {1: "1", 2: "4", 3: "49", 4: "196"})  # fmt: skip


@sweep("kind, step, draw", [("drop", 7, 3), ("shuffle", 2, 4)], quick=[("shuffle", 2, 4)])
def test_perturbation_detail_shows_model_inputs(cached_figures, inspector, trace, photo, kind, step, draw):
    figure = cached_figures("experiment", True, kind=kind, step=step, draw=draw)
    chart, *shown = panels(figure)
    seen, (tall, wide) = trace.view.picture, trace.grid.patch
    notes = " | ".join(map(str, figure.spec.notes))
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
        assert "Shown: 70 % of the patches dropped: 137 of 196, sample 3." in notes
        gone = vitviz.Ablation(patches=[patch for patch in range(196) if patch not in kept])
        label, share = inspector.trace(photo, ablation=gone).top(1)[0]
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
        assert "Shown: 49 pieces of 2 × 2 patches shuffled, sample 4." in notes
    assert chart.levels[0].value == (70 if kind == "drop" else 3) and chart.levels[0].upright
