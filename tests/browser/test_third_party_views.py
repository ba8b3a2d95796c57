"""Two third-party views, a map and a chart, added as one folder each, have all features of other views."""

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

import vitviz
from tests.browser.conftest import ROOT, Server, open_tab, ready
from tests.browser.helpers import is_painted, violations
from tests.browser.third_party_views.entropies import Entropies
from tests.browser.third_party_views.weighted import Weighted

HERE = Path(__file__).parent / "third_party_views"
VIEWS = (Weighted(), Entropies())
TILE = 5 * 14 + 3  # the clicked patch


@pytest.fixture(scope="module")
def project_copy(tmp_path_factory):
    """Copy the project and add the folders of both views; no line of the copy is changed."""
    home = tmp_path_factory.mktemp("house") / "vitviz"
    home.mkdir()
    skipped = shutil.ignore_patterns("__pycache__", "node_modules", "snapshots")
    for name in ("app.py", "pyproject.toml", "README.md", "requirements.txt"):
        shutil.copy(ROOT / name, home / name)
    for name in ("docs", "vitviz", "tests", "weights/vitviz-tiny"):
        shutil.copytree(ROOT / name, home / name, ignore=skipped)
    for view in VIEWS:
        shutil.copytree(HERE / view.slug, home / "vitviz/views" / view.slug, ignore=skipped)
    return home


@pytest.fixture(scope="module")
def server(project_copy):
    with Server(home=project_copy) as running:
        yield running


@pytest.fixture(scope="module")
def traced():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return inspector, inspector.trace(vitviz.sample_image("coffee"))


@pytest.fixture(scope="module")
def lengths(traced):
    """Compute weight times length of W_O v in float64 loops, for TILE and for the middle patch."""
    inspector, trace = traced
    lengths_by_head = {}
    for token in (1 + TILE, 1 + 7 * 14 + 7):
        for layer, block in enumerate(inspector.model.blocks):
            weight = block.attn.proj.weight.detach().double().numpy()
            values, rows = trace.layers[layer].v.double().numpy(), trace.attention(layer).double().numpy()
            dim = values.shape[-1]
            for head in range(len(values)):
                part = weight[:, head * dim : (head + 1) * dim]
                lengths_by_head[token, layer, head] = [
                    rows[head, token, key] * np.sqrt(((part @ values[head, key]) ** 2).sum())
                    for key in range(1, trace.length)
                ]
    return lengths_by_head


@pytest.fixture(scope="module")
def entropy(traced):
    rows = [traced[1].attention(layer).double().numpy()[:, 1:] for layer in range(8)]
    return np.array([(-(row * np.log(row)).sum(axis=-1)).mean(axis=-1) for row in rows])


@pytest.mark.browser
def test_example_views_have_at_most_sixty_lines():
    for view in VIEWS:
        files = [file for file in (HERE / view.slug).iterdir() if file.is_file()]
        lines = [file.read_text("utf-8").splitlines() for file in files if file.suffix == ".py"]
        assert len(files) <= 3 and sum(map(len, lines)) <= 60


def test_map_hovers_without_requests_and_click_selects_query(open_page, lengths):
    page = open_page("?sample=coffee")
    open_tab(page, VIEWS[0].title)
    ready(page, "weighted")
    assert is_painted(page, "weighted")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    heat = page.locator("#vitviz-weighted canvas.vv-heat")
    heat.scroll_into_view_if_needed()
    box, token = heat.bounding_box(), 1 + 7 * 14 + 7

    def point(patch):
        row, col = divmod(patch, 14)
        place = (box["x"] + (col + 0.5) * box["width"] / 14, box["y"] + (row + 0.5) * box["height"] / 14)
        page.mouse.move(*place)
        expect(page.locator(".vv-tip")).to_contain_text(f"Patch {patch + 1}")
        return place, float(page.locator(".vv-tip div").first.inner_text())

    for layer, head in ((8, 1), (3, 2)):
        for name, value in (("layer", layer), ("head", head)):
            page.locator(f"#vitviz-weighted [data-name={name}] input").fill(str(value))
        expect(page.locator("#vitviz-weighted [data-ready]")).to_have_attribute(
            "data-ready", re.compile(f"layer={layer}.*head={head}")
        )
        assert point(40)[1] == pytest.approx(lengths[token, layer - 1, head - 1][40], rel=6e-3)
    assert requests == [], "another layer or head sent a request"
    page.mouse.click(*point(TILE)[0])
    page.wait_for_function(f"() => new URLSearchParams(location.search).get('token') === '{1 + TILE}'")
    expect(page.locator("#vitviz-weighted [data-ready]")).to_have_attribute(
        "data-ready", re.compile(f"token={1 + TILE}(&|$)")
    )
    assert point(41)[1] == pytest.approx(lengths[1 + TILE, 2, 1][41], rel=6e-3)


def test_chart_hovers_without_requests_and_click_opens_head(open_page, entropy):
    page = open_page("?tab=entropies&sample=coffee", wait=False)
    ready(page, "entropies")
    dots = page.locator("#vitviz-entropies .vv-chart .point")
    expect(dots).to_have_count(entropy.size)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    dots.nth(3 * 4 + 1).hover(force=True)
    tooltip = page.locator(".vv-tip div")
    expect(tooltip.nth(1)).to_have_text("Layer 5, head 2")
    assert float(tooltip.first.inner_text().split()[0]) == pytest.approx(entropy[4, 1], rel=1e-3)
    assert requests == []
    dots.nth(3 * 4 + 1).click(force=True)
    ready(page, "explorer")
    page.wait_for_function(
        "() => ['layer', 'head'].map((one) => new URLSearchParams(location.search).get(one)).join() === '5,2'"
    )


def test_views_have_links_print_figures_videos_and_zip_entries(open_page, server, lengths, entropy):
    page = open_page("?tab=weighted&layer=3&head=2&sample=coffee", wait=False)
    ready(page, "weighted")
    expect(page.locator("#vitviz-weighted [data-name=layer] input")).to_have_value("3")
    with page.expect_download() as download:
        page.locator(".vv-everything").click()
    with zipfile.ZipFile(download.value.path()) as archive:
        names, readme = archive.namelist(), archive.read("README.txt").decode()
        for view in VIEWS:
            assert view.title in readme
            captions = [
                name
                for name in names
                if name.startswith(f"figures/vitviz-{view.slug}") and name[-3:] == "txt"
            ]
            caption = archive.read(captions[0]).decode()
            assert view.words.source in caption and "Dosovitskiy" not in caption
            assert any(
                name.startswith(f"figures/vitviz-{view.slug}") and name.endswith(".svg") for name in names
            )
        with np.load(io.BytesIO(archive.read("numbers/weighted.npz"))) as file:
            np.testing.assert_allclose(file["weighted"][2, 1].ravel(), lengths[106, 2, 1], rtol=1e-4)
        with np.load(io.BytesIO(archive.read("numbers/entropies.npz"))) as file:
            np.testing.assert_allclose(file["entropy"], entropy, rtol=1e-4)
    key = page.evaluate("() => [...vitviz.views].find((one) => one.name === 'weighted').key")
    video = httpx.get(f"{server.url}gradio_api/vitviz/{key}/weighted/film.json").json()
    assert "layers" in json.dumps(video), video


@pytest.mark.processes
def test_views_have_documented_api_endpoints(server, entropy):
    from gradio_client import Client

    endpoints = httpx.get(server.url + "gradio_api/info").json()["named_endpoints"]
    for view in VIEWS:
        assert view.words.what in endpoints[f"/{view.slug}"]["description"]
    client = Client(server.url, verbose=False)
    try:
        answer = client.predict("coffee", api_name="/entropies")
    finally:
        client.close()
    np.testing.assert_allclose(answer["entropy"], entropy, rtol=1e-4)


def test_views_are_translated_and_accessible(open_page):
    page = open_page("?tab=entropies&lang=ko", wait=False)
    ready(page, "entropies")
    expect(page.get_by_role("tab", name="헤드 엔트로피", exact=True)).to_have_attribute(
        "aria-selected", "true"
    )
    expect(page.locator("#vitviz-entropies .vv-legends")).to_contain_text("균일 어텐션")
    assert not (problems := violations(open_page(), VIEWS)), "\n".join(problems)


@pytest.mark.processes
def test_views_work_in_notebooks_and_pass_the_generic_tests(project_copy):
    """Generic tests iterate VIEWS. A missing translation fails none of them; a command lists it."""
    file = project_copy / "vitviz/views/entropies/ko.json"
    words = json.loads(file.read_text(encoding="utf-8"))
    del words[VIEWS[1].words.source]
    file.write_text(json.dumps(words), encoding="utf-8")
    files = [
        "tests/server/test_translations.py",
        "tests/server/test_links.py",
        "tests/frontend/test_scripts.py",
    ]
    arguments = ["-n", "0", "-q", "-p", "no:cacheprovider", "-k", "entropies or weighted", *files]
    code = (
        "import sys, vitviz, pytest; inspector = vitviz.load('vitviz-tiny');"
        "trace = inspector.trace(vitviz.sample_image('coffee'));"
        "print([vitviz.show(one, inspector, trace, live=[]) for one in ('weighted', 'entropies')]);"
        f"sys.exit(pytest.main({arguments!r}))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=project_copy, capture_output=True, text=True)
    output = result.stdout
    assert "StandaloneView(view='weighted'" in output and "StandaloneView(view='entropies'" in output, (
        output + result.stderr
    )
    assert result.returncode == 0, output + result.stderr
    command = [sys.executable, "-m", "tests.translations"]
    listed = subprocess.run(command, cwd=project_copy, capture_output=True, text=True)
    (missing,) = listed.stdout.splitlines()
    assert missing == f"ko missing in views/entropies: {VIEWS[1].words.source}", listed.stderr
