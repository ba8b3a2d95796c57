"""A stranger's view: one folder and one line, and it has all that the others have."""

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
from tests.e2e.conftest import ROOT, Server, open_tab, ready
from tests.e2e.stranger.norms import Norms
from tests.e2e.test_accessible import violations
from tests.e2e.test_page import painted

FOLDER = Path(__file__).parent / "stranger/norms"
VIEW = Norms()


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A copy of the house with the folder, and the line in which VIEWS is written naming it."""
    home = tmp_path_factory.mktemp("house") / "vitviz"
    home.mkdir()
    for name in ("app.py", "pyproject.toml", "README.md", "requirements.txt", "docs", "vitviz", "tests"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, home / name)
    shutil.copytree(
        ROOT / "weights/vitviz-tiny",
        home / "weights/vitviz-tiny",
        ignore=shutil.ignore_patterns("snapshots*"),
    )
    shutil.copytree(FOLDER, home / "vitviz/views/norms", ignore=shutil.ignore_patterns("__pycache__"))
    listed = home / "vitviz/views/__init__.py"
    before = listed.read_text()
    line = 'VIEWS += (__import__("vitviz.views.norms", fromlist=["Norms"]).Norms(),)\n'
    mark = before.index("\n__all__")
    listed.write_text(before[:mark] + line + before[mark:])
    return home


@pytest.fixture(scope="module")
def server(house):
    with Server(home=house) as running:
        yield running


@pytest.fixture(scope="module")
def expected():
    trace = vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("coffee"))
    patches = np.stack(
        [np.sqrt((tokens.double().numpy()[trace.grid.prefix :] ** 2).sum(1)) for tokens in trace.tokens]
    )
    return patches.reshape(-1, trace.grid.rows, trace.grid.cols)


def test_it_is_small():
    files = [file for file in FOLDER.iterdir() if file.is_file()]
    assert (
        len(files) <= 4 and sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 100
    )


def test_it_has_a_tab_and_a_map_that_hovers_without_asking(open_page, expected):
    page = open_page("?sample=coffee")
    open_tab(page, VIEW.title)
    ready(page, VIEW.slug)
    assert painted(page, VIEW.slug)
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    heat = page.locator("#vitviz-norms canvas.vv-heat")
    heat.scroll_into_view_if_needed()
    box, (_, rows, cols) = heat.bounding_box(), expected.shape
    for patch in (0, 3 * cols + 5):
        row, col = divmod(patch, cols)
        page.mouse.move(
            box["x"] + (col + 0.5) * box["width"] / cols, box["y"] + (row + 0.5) * box["height"] / rows
        )
        expect(page.locator(".vv-tip")).to_contain_text(f"Patch {patch + 1}")
        shown = float(page.locator(".vv-tip div").first.inner_text())
        assert shown == pytest.approx(expected[0, row, col], rel=6e-3)
    page.locator("#vitviz-norms [data-name=depth] input").fill("5")
    expect(page.locator("#vitviz-norms [data-ready]")).to_have_attribute("data-ready", re.compile("depth=5"))
    page.mouse.move(box["x"] + 0.5 * box["width"] / cols, box["y"] + 0.5 * box["height"] / rows)
    assert float(page.locator(".vv-tip div").first.inner_text()) == pytest.approx(expected[4, 0, 0], rel=6e-3)
    assert requests == [], "every depth came with the first"


def test_it_has_a_link_a_picture_its_numbers_and_a_place_in_the_zip(open_page, expected):
    page = open_page("?tab=norms&depth=3&sample=coffee", wait=False)
    ready(page, VIEW.slug)
    expect(page.locator("#vitviz-norms [data-name=depth] input")).to_have_value("3")
    page.locator("#vitviz-norms [data-name=depth] input").fill("4")
    page.wait_for_function("() => new URLSearchParams(location.search).get('depth') === '4'")
    taken = {}
    for name, button in (
        ("png", "#vitviz-norms .vv-png"),
        ("npz", "#vitviz-norms .vv-npz"),
        ("zip", ".vv-everything"),
    ):
        with page.expect_download() as download:
            page.locator(button).click()
        taken[name] = download.value.path().read_bytes()
    assert taken["png"][:4] == b"\x89PNG" and len(taken["png"]) > 20_000
    with zipfile.ZipFile(io.BytesIO(taken["zip"])) as archive:
        kept = archive.read("numbers/norms.npz")
        assert VIEW.title in archive.read("README.txt").decode()
    for data in (taken["npz"], kept):
        with np.load(io.BytesIO(data)) as file:
            np.testing.assert_allclose(file["norms"], expected, rtol=1e-5)
            assert str(file["setting_depth"]) == "4" and str(file["view"]) == "norms"


def test_programs_can_ask_for_it_and_its_endpoint_is_documented(server, expected):
    from gradio_client import Client

    told = httpx.get(server.url + "gradio_api/info").json()["named_endpoints"]["/norms"]
    assert VIEW.words.what in told["description"]
    assert [one["parameter_name"] for one in told["parameters"]] == ["image", "checkpoint", "without"]
    client = Client(server.url, verbose=False)
    try:
        answer = client.predict("coffee", api_name="/norms")
    finally:
        client.close()
    np.testing.assert_allclose(answer["norms"], expected, rtol=1e-4)
    assert answer["checkpoint"] == "vitviz-tiny" and answer["grid"]["rows"] == expected.shape[1]


@pytest.mark.parametrize(
    "tag, title, depth", [("zh-CN", "标记的长度", "深度"), ("ko", "토큰의 길이", "깊이")]
)
def test_it_speaks_every_language(open_page, tag, title, depth):
    page = open_page(f"?tab=norms&lang={tag}", wait=False)
    ready(page, VIEW.slug)
    expect(page.get_by_role("tab", name=title, exact=True)).to_have_attribute("aria-selected", "true")
    expect(page.locator("#vitviz-norms [data-name=depth] .vv-label")).to_contain_text(depth)


@pytest.mark.parametrize("dark", [False, True])
def test_everybody_can_use_it(open_page, dark):
    page = open_page(dark=dark)
    assert not (found := violations(page, [VIEW])), "\n".join(found)


def test_the_houses_own_tests_go_over_it(house):
    """Those of words, links, routes and scripts iterate VIEWS; a missing translation is one failure, and the
    right one.
    """
    named = ["tests/ui/test_words.py", "tests/ui/test_links.py", "tests/canvas/test_scripts.py"]

    def run() -> tuple[int, str]:
        asked = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "norms",
            *named,
        ]
        done = subprocess.run(asked, cwd=house, capture_output=True, text=True)
        return done.returncode, done.stdout

    code, said = run()
    assert code == 0, said
    file = house / "vitviz/views/norms/ko.json"
    whole = file.read_text(encoding="utf-8")
    words = json.loads(whole)
    del words[VIEW.words.source]
    file.write_text(json.dumps(words), encoding="utf-8")
    try:
        code, said = run()
        assert (
            code == 1
            and "test_a_views_folder_has_the_words" in said
            and "norms-ko" in said
            and said.count("FAILED") == 1
        )
    finally:
        file.write_text(whole, encoding="utf-8")
