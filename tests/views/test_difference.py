"""Difference of edited and original image: every view's difference against both of its figures."""

import numpy as np
import pytest

import vitviz
from vitviz.errors import VitvizError
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS, ViewContext
from vitviz.views.controls import DIFFERENCE
from vitviz.views.routes import item_array, parse_settings

DIFFERING = [view for view in VIEWS if any(one.name == DIFFERENCE.name for one in view.controls)]
EVIDENCE = next(view for view in VIEWS if view.slug == "evidence")
STROKES = "brush.mean_40.120.90.30.10 brightness_10"


@pytest.fixture(scope="module")
def subject(inspector):
    picture = vitviz.sample_image("chelsea")
    before = ViewContext(inspector, inspector.trace(picture))
    after = inspector.trace(vitviz.edit_image(picture, STROKES))
    return ViewContext(inspector, after, original=lambda: before)


def asked(view, subject, name: str, **given: str) -> np.ndarray:
    return item_array(view, subject, name, parse_settings(view, {"difference": "on", **given}, subject.about))


@pytest.mark.parametrize("view", DIFFERING, ids=lambda view: view.slug)
def test_a_difference_is_after_less_before(view, subject):
    settings = parse_settings(view, {}, subject.about)
    if view is EVIDENCE:
        settings["target"] = str(int(subject.trace.logits.argmax()))
    differing = {item.name for item in view.items if DIFFERENCE.name in item.depends}
    for name in differing - {"chart", "wall", "pinned", "sources", "lines", "explained"}:
        after, before = (
            np.asarray(view.item(one, name, settings), float) for one in (subject, subject.original())
        )
        found = asked(view, subject, name)
        if name == "wallmax":
            assert (found <= np.maximum(after, before) + 1e-6).all() and found.max() > 0
        elif view is EVIDENCE:  # each account by the deviation of before
            deviations = [float(one.trace.written.weights[0, 0]) for one in (subject, subject.original())]
            after = after * deviations[1] / deviations[0]
            np.testing.assert_allclose(found, after - before, atol=1e-4)
        else:
            np.testing.assert_allclose(found, after - before, atol=2e-3)
        assert np.abs(found).max() > 1e-3 or name == "biases"  # which no picture changes
        with pytest.raises(VitvizError, match="no difference to show"):
            asked(view, subject.original(), name)


def test_difference_contributions_sum_to_logit_change(subject):
    lines = asked(EVIDENCE, subject, "lines")
    shares = sum(asked(EVIDENCE, subject, name).sum(dtype=np.float64) for name in ("heads", "mlps", "biases"))
    top = int(subject.trace.logits.argmax())
    change = (subject.trace.logits - subject.original().trace.logits)[top].item()
    assert lines[:4].sum() + lines[6] + shares == pytest.approx(change, abs=1e-4)
    assert lines[4] == pytest.approx(change, abs=1e-4) and abs(lines[6]) > 1e-3
    assert asked(EVIDENCE, subject, "sources").sum() == pytest.approx(
        asked(EVIDENCE, subject, "heads").sum(), abs=1e-4
    )


def test_removed_patch_loses_its_contribution(inspector, subject):
    before, without = subject.original(), Ablation(patches=[90, 91])
    trace = inspector.trace(vitviz.sample_image("chelsea"), ablation=without)
    gone = ViewContext(inspector, trace, original=lambda: before)
    top = str(int(trace.logits.argmax()))
    lost = asked(EVIDENCE, gone, "map", target=top).ravel()[[90, 91]]
    settings = parse_settings(EVIDENCE, {"target": top}, before.about)
    gave = EVIDENCE.item(before, "map", settings).ravel()[[90, 91]]
    np.testing.assert_allclose(lost, -gave, atol=1e-6)


def test_attention_grid_difference_is_change_of_every_map(subject):
    view = next(view for view in VIEWS if view.slug == "explorer")
    settings = parse_settings(view, {}, subject.about)
    wall, most = (asked(view, subject, name).astype(float) for name in ("wall", "wallmax"))
    token, skip = settings["token"], subject.grid.prefix
    layer, head = np.unravel_index(most.argmax(), most.shape)
    after, before = (
        one.trace.attention(int(layer))[head, token, skip:] for one in (subject, subject.original())
    )
    shown = (2 * wall[layer, head] / 255 - 1) * most[layer, head]
    np.testing.assert_allclose(shown, (after - before).numpy(), atol=most.max() / 120)


@pytest.mark.parametrize("view", DIFFERING, ids=lambda view: view.slug)
def test_difference_figure_has_detail(view, inspector, subject):
    shown = {"show": "similarity"} if view.slug == "tokens" else {}  # colours have no difference
    told = {"before": subject.original().trace, "difference": "on", "detail": True, **shown}
    made = vitviz.figure(view.slug, inspector, subject.trace, **told)
    assert made.svg(), view.slug
    assert "After − before" in made.caption
    with pytest.raises(VitvizError, match="no difference to show"):
        vitviz.figure(view.slug, inspector, subject.trace, difference="on", **shown)
