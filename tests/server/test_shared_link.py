"""What a link to the page looks like where it is shared: ours, though Gradio's template says otherwise."""

import json
import re
from pathlib import Path

import gradio as gr

from vitviz.server.security.page_cache import CARD, FOLDER, resolve_placeholder, with_link_preview

SCOPE = {"type": "http", "scheme": "https", "headers": [(b"host", b'a.example"><b')]}


def test_a_shared_link_shows_our_title_and_picture_and_not_gradios():
    theirs = Path(gr.__file__).with_name("templates") / "frontend" / "index.html"
    page = with_link_preview(theirs.read_bytes(), SCOPE).decode()
    told = dict(re.findall(r'<meta\s+(?:property|name)="(\S+?)"\s+content="([^"]*)"', page)[::-1])
    assert told["og:title"] == told["twitter:title"] == "vitviz"
    assert told["og:image"] == f"https://a.example&quot;&gt;&lt;b{CARD}" == told["twitter:image"]
    assert "Vision Transformer" in told["og:description"]
    assert "Click to try" not in page and "header-image" not in page


def test_the_picture_of_a_link_has_the_proxys_host_and_prefix():
    names = {"host": "inside:7860", "x-forwarded-host": "vit.example, b", "x-forwarded-proto": "https"}
    headers = [(name.encode(), value.encode()) for name, value in names.items()]
    scope = {"type": "http", "scheme": "http", "headers": headers}
    page = with_link_preview(b'"https://x/header-image.jpg"', scope, "/vit/").decode()
    assert page == f'"https://vit.example/vit{CARD}"'


def test_a_sample_comes_back_under_the_pages_word_for_the_folder():
    from gradio.utils import get_upload_folder

    asked = f'{{"path": "{FOLDER}/a/image.webp", "said": "{FOLDER}"}}'.encode()
    assert json.loads(resolve_placeholder(asked)) == {
        "path": f"{get_upload_folder()}/a/image.webp",
        "said": FOLDER,
    }
