"""Ablation of each head and MLP in print: dots and matrices show the drops and contributions of Python."""

import numpy as np
import pytest

import vitviz
from tests.export.reading import cell_centres, diverging_values, dot_positions, image_of, texts
from vitviz.errors import VitvizError

CLASS = 7


@pytest.fixture(scope="module")
def effects(inspector, trace):
    return inspector.effects(trace.view, CLASS)


@pytest.fixture(scope="module")
def account(inspector, trace):
    return vitviz.logit_attribution(inspector, trace, CLASS)


def effects_figure(cached_figures, **settings):
    return cached_figures("evidence", True, target=str(CLASS), show="effects", **settings)


@pytest.mark.long
@pytest.mark.parametrize("part", ["heads", "mlps"])
def test_dots_show_contribution_and_drop(cached_figures, effects, account, part):
    found = dot_positions(effects_figure(cached_figures, part=part))
    expected = np.stack([getattr(account, part).double().ravel(), getattr(effects, part).double().ravel()], 1)
    expected = expected[expected[:, 0].argsort()]
    span = np.ptp(expected)
    np.testing.assert_allclose(found, expected, atol=0.005 * span)
    chart = effects_figure(cached_figures, part=part).spec.rows[0][1]
    assert chart.x == chart.y and chart.x[0] < expected.min() and chart.x[1] > expected.max()
    line, *_ = chart.series
    np.testing.assert_array_equal(line.x, line.y)
    said = texts(effects_figure(cached_figures, part=part).svg())
    assert {"direct contribution, in logits", "drop when ablated, in logits"} <= set(said)
    assert ("one head" in said) is (part == "heads") and ("one MLP" in said) is (part == "mlps")


def test_matrices_show_drops_and_contributions_on_one_scale(cached_figures, effects, account):
    figure = effects_figure(cached_figures, part="heads")
    most = max(account.heads.abs().max().item(), effects.heads.abs().max().item())
    for name, expected in (("panel-3-values", effects.heads), ("panel-4-values", account.heads)):
        wall = cell_centres(image_of(figure.svg(), name), *expected.T.shape)  # heads down, layers across
        np.testing.assert_allclose(diverging_values(wall, most), expected.T, atol=0.02 * most)
    said = texts(figure.svg())
    ends = [f"{end:.3g}".replace("-", "−") for end in (-most, most)]
    assert all(said.count(end) == 2 for end in ends), said
    told = f"±{most:.2f}"
    assert f"Drop when each head is ablated, colour scale {told}" in said
    assert f"Contribution of every head, colour scale {told}" in said


def test_mlps_have_no_head_matrices(cached_figures):
    assert (
        len(effects_figure(cached_figures, part="mlps").spec.rows) == 1
        and len(effects_figure(cached_figures, part="heads").spec.rows) == 2
    )


@pytest.mark.parametrize("part", ["heads", "mlps"])
def test_notes_state_correlation_and_largest_deviation(cached_figures, effects, account, part):
    notes = " ".join(map(str, effects_figure(cached_figures, part=part).spec.notes))
    alike = getattr(vitviz.analyses.agreement(effects, account), part)
    assert f"Correlation of contribution and drop: {alike:.2f}".replace("-", "−") in notes
    shares, losses = getattr(account, part).double(), getattr(effects, part).double()
    layer, *head = np.unravel_index(int((losses - shares).abs().argmax()), shares.shape)
    named = f"Layer {layer + 1}, head {head[0] + 1}" if head else f"Layer {layer + 1}, MLP"
    own, lost = (f"{one[(layer, *head)]:+.2f}".replace("-", "−") for one in (shares, losses))
    assert f"{named} is furthest from the line: contribution {own}, drop {lost}." in notes


def test_chosen_head_is_framed_in_both_matrices(cached_figures):
    figure = effects_figure(cached_figures, part="heads", chosen="5.2")
    assert [panel.chosen for panel in figure.spec.rows[1]] == [1 * 8 + 4] * 2


def test_figure_without_detail_has_only_the_map(cached_figures):
    assert len(cached_figures("evidence", show="effects").spec.rows) == 1


def test_effects_of_ablated_trace_raise(inspector, photo):
    trace = inspector.trace(photo, ablation=vitviz.Ablation(heads=[(4, 1)]))
    with pytest.raises(VitvizError, match="Restore removed parts first"):
        vitviz.figure("evidence", inspector, trace, detail=True, show="effects")
