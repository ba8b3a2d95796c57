"""The Attribution view: head ablation, predictions per patch, the training slider and links to the view."""

import re

import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import open_tab, ready
from vitviz import analyses
from vitviz.engine.studies import attribution
from vitviz.traces import samples

PANEL = "#vitviz-evidence .vv-effects"


@pytest.fixture(scope="module")
def coffee():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return inspector, inspector.trace(samples.sample_image("coffee"))


def wait_for_layers(page, count: str) -> None:
    page.wait_for_function(
        f"(count) => document.querySelector('{PANEL}')?.dataset.done === count", arg=count, timeout=90_000
    )


def correlation(value: float) -> str:
    """Return the sentence of a correlation, with a minus sign (U+2212)."""
    return f"Correlation of contribution and drop: {value:.2f}".replace("-", "−")


def test_ablation_chart_matches_effects_and_contributions(open_page, coffee):
    inspector, trace = coffee
    target = int(trace.logits.argmax())
    contributions = vitviz.logit_attribution(inspector, trace, target)
    effects = inspector.effects(samples.sample_image("coffee"), target)
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    ready(page, "evidence")
    page.locator("#vitviz-evidence [data-name=show] select").select_option("effects")
    wait_for_layers(page, "all")
    panel = page.locator(PANEL)
    expect(panel.locator(".vv-chart .point")).to_have_count(24)
    agreement = analyses.agreement(effects, contributions)
    expect(panel).to_contain_text(correlation(agreement.heads))
    deviations = (effects.heads - contributions.heads).abs()
    layer, head = divmod(int(deviations.argmax()), 3)
    expect(panel).to_contain_text(f"Layer {layer + 1}, head {head + 1} is furthest from the line")
    expect(panel.locator(".js-line[style*='rgb(196, 106, 22)']")).to_have_count(
        3
    )  # of the largest deviations
    panel.locator(".vv-chart").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".vv-tip")).to_contain_text("drop when ablated")
    page.keyboard.press("Enter")
    least = divmod(int(contributions.heads.argmin()), 3)
    page.wait_for_function(
        "(chosen) => location.search.includes(`chosen=${chosen}`)", arg=f"{least[0] + 1}.{least[1] + 1}"
    )
    panel.get_by_role("button", name="MLPs").click()
    expect(panel.locator(".vv-chart .point")).to_have_count(8)
    expect(panel).to_contain_text(correlation(agreement.mlps))


def test_selected_patches_do_not_change_ablation_texts(open_page):
    texts = []
    for chosen in ("", "&patches=104.105"):
        page = open_page(f"?sample=coffee&tab=evidence&show=effects{chosen}", wait=False)
        ready(page, "evidence")
        wait_for_layers(page, "all")
        panel = page.locator(PANEL)
        texts.append(panel.locator("p").all_inner_texts())
        assert any("Correlation of contribution and drop" in text for text in texts[-1])
        texts[-1].append(
            page.locator("#vitviz-evidence .vv-below p", has_text="Contribution of every head").inner_text()
        )
    assert texts[0] == texts[1]


def test_ablation_stops_and_continues(open_page):
    page = open_page("?sample=rocket&tab=evidence", wait=False)
    ready(page, "evidence")
    page.route(re.compile(r"/evidence/chart\?.*layer=5(&|$)"), lambda route: None)  # never answered
    page.locator("#vitviz-evidence [data-name=show] select").select_option("effects")
    wait_for_layers(page, "3")
    expect(page.locator(PANEL)).to_contain_text("3 of 8 layers")
    page.locator(PANEL).get_by_role("button", name="Stop").click()
    page.unroute_all()
    expect(page.locator(PANEL).locator(".vv-chart .point")).to_have_count(9)
    page.locator(PANEL).get_by_role("button", name="Continue").click()
    wait_for_layers(page, "all")
    expect(page.locator(PANEL).get_by_role("button", name="Continue")).to_be_hidden()


def test_ablation_is_unavailable_while_parts_are_removed(open_page):
    page, failed = open_page("?sample=coffee&tab=evidence&without=heads%3D5.2", wait=False), []
    page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
    key = ready(page, "evidence")
    show = page.locator("#vitviz-evidence [data-name=show] select")
    for name, panel in (("smallest", "#vitviz-evidence .vv-alone:visible"), ("effects", PANEL)):
        show.select_option(name)
        expect(page.locator(panel)).to_contain_text("needs the full model")
        expect(page.locator(panel).get_by_role("button", name="Begin")).to_be_hidden()
    assert failed == [], "the page sends requests that must fail"
    page.evaluate("vitviz.send('reset-edits')")
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-evidence [data-ready]').dataset.ready.startsWith(key)",
        arg=key,
    )
    wait_for_layers(page, "all")
    expect(page.locator(PANEL)).not_to_contain_text("needs the full model")


def test_patch_predictions_match_logit_lens_at_a_layer(open_page, coffee):
    inspector, trace = coffee
    page = open_page("?sample=coffee&tab=evidence&show=forming", wait=False)
    ready(page, "evidence")
    view = page.locator("#vitviz-evidence")
    expect(view).to_contain_text("Prediction of each patch after 8 layers")
    expect(view).to_contain_text(
        "Interpret with care: the classifier was never trained to read single patches"
    )
    depth = view.locator("[data-name=depth] input")
    depth.fill("5")
    expect(view).to_contain_text("Prediction of each patch after 5 layers")
    shares = analyses.lens_probabilities(attribution.checked_logit_terms(inspector, trace), 5)[:, 6, 7]
    best = shares.topk(3)
    heat = view.locator(".vv-heat")
    box = heat.bounding_box()
    heat.hover(position={"x": box["width"] * 7.5 / 14, "y": box["height"] * 6.5 / 14})
    for share, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        expect(page.locator(".vv-tip")).to_contain_text(f"{trace.labels[index]} {100 * share:.1f} %")


def test_attribution_of_untrained_snapshot_balances_on_same_scale(open_page):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    key = ready(page, "evidence")
    ends = page.locator("#vitviz-evidence .vv-bar-ticks .vv-last")
    before = ends.all_inner_texts()
    page.locator("#vitviz-film input[type=range]").fill("0")
    page.wait_for_function(
        "(key) => !document.querySelector('#vitviz-evidence [data-ready]').dataset.ready.startsWith(key)",
        arg=key,
        timeout=30_000,
    )
    ready(page, "evidence")
    balance = page.locator("#vitviz-evidence .vv-balance").inner_text()
    assert balance.endswith(", the logit"), "the sum differs from the logit"
    assert ends.all_inner_texts() == before


def test_rollout_shows_benchmark_and_links_to_attribution(open_page):
    page = open_page("?sample=coffee&tab=rollout", wait=False)
    ready(page, "rollout")
    expect(page.locator("#vitviz-rollout .vv-fares")).to_contain_text("500 images")
    page.locator("#vitviz-rollout .vv-fares button").click()
    ready(page, "evidence")


def test_tour_shows_contribution_sum_and_ablates_a_head(open_page, coffee):
    inspector, trace = coffee
    page = open_page("?sample=coffee&tab=tour&step=11", wait=False)
    ready(page, "tour")
    tour = page.locator("#vitviz-tour")
    rows = tour.locator(".vv-table tbody tr td:last-child").all_inner_texts()
    *parts, total, logit = [float(text.replace("−", "-")) for text in rows]
    assert len(parts) == 4 and sum(parts) == pytest.approx(total, abs=1e-4)
    assert logit == pytest.approx(trace.logits.max().item(), abs=1e-4) and total == pytest.approx(
        logit, abs=1e-3
    )
    tour.locator(".vv-next").click()
    expect(tour.locator(".vv-tour-title")).to_have_text("One head ablated")
    name = re.search(r"Layer \d+, head \d+", tour.inner_text())[0]
    layer, head = map(int, re.findall(r"\d+", name))
    without = inspector.trace(
        samples.sample_image("coffee"), ablation=vitviz.Ablation(heads=[(layer - 1, head - 1)])
    )
    label, share = without.top(1)[0]
    expect(tour.locator(".vv-table tbody tr").first).to_contain_text(f"{label} {100 * share:.1f} %")
    tour.get_by_role("button", name="Ablate this head in every view").click()
    expect(page.locator("#vitviz-edits .vv-edits")).to_contain_text(name)
    expect(tour).to_contain_text("Something is already removed")
    open_tab(page, "Attribution")
    ready(page, "evidence")


def test_tooltip_follows_a_map_that_changes_under_the_pointer(open_page):
    page = open_page("?sample=coffee&tab=evidence", wait=False)
    ready(page, "evidence")
    page.locator("#vitviz-evidence canvas[role=application]").first.hover()
    expect(page.locator(".vv-tip")).to_contain_text("s the logit")  # raises or lowers
    page.locator("#vitviz-evidence [data-name=method] select").select_option("rollout")
    expect(page.locator(".vv-tip")).to_contain_text("relevance, in the method’s own units")


def test_map_of_an_ablated_head_says_that_it_is_zero(open_page):
    page = open_page("?sample=coffee&tab=evidence&chosen=5.2&without=heads%3D5.2", wait=False)
    ready(page, "evidence")
    expect(page.locator("#vitviz-evidence")).to_contain_text(
        "Layer 5, head 2: ablated, so no patch contributes"
    )
