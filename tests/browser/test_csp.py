"""The content security policy: views, uploads and exports cause no violation."""

import urllib.request

from playwright.sync_api import expect

from tests.browser.conftest import export, open_tab, ready, visit_views
from tests.browser.helpers import upload_image, write_image
from vitviz.views import VIEWS

COLLECT = """window.violations_ = [];
  addEventListener("securitypolicyviolation", (event) =>
    window.violations_.push(`${event.violatedDirective} ${event.blockedURI}`));"""


def test_views_uploads_and_exports_respect_csp(open_page, server, tmp_path):
    page = open_page(color_scheme="light")  # options force a separate window; the script stays in it
    page.add_init_script(COLLECT)
    page.reload()
    ready(page, "patches")
    with urllib.request.urlopen(server.url) as answer:
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    before = ready(page, "patches")
    upload_image(page, write_image(tmp_path / "mine.png"))
    expect(page.locator(f"#vitviz-patches [data-ready]:not([data-ready^='{before}'])")).to_have_count(1)
    for _ in visit_views(page, VIEWS):
        pass
    open_tab(page, "Attention distance")
    with page.expect_download():
        export(page, "distance", "[data-name='figure.html']")
    export(page, "distance", ".vv-print")
    with page.expect_download():
        page.get_by_role("dialog").get_by_role("button", name="Download").click()
    assert page.evaluate("window.violations_") == []
