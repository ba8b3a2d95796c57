"""Link previews: our title and image replace those of Gradio's template."""

import json
import re
from pathlib import Path

import gradio as gr

from vitviz.server.security.page_cache import CARD, FOLDER, resolve_placeholder, with_link_preview

SCOPE = {"type": "http", "scheme": "https", "headers": [(b"host", b'a.example"><b')]}


def test_link_preview_replaces_gradio_metadata():
    template = Path(gr.__file__).with_name("templates") / "frontend" / "index.html"
    page = with_link_preview(template.read_bytes(), SCOPE).decode()
    metadata = dict(re.findall(r'<meta\s+(?:property|name)="(\S+?)"\s+content="([^"]*)"', page)[::-1])
    assert metadata["og:title"] == metadata["twitter:title"] == "vitviz"
    assert metadata["og:image"] == f"https://a.example&quot;&gt;&lt;b{CARD}" == metadata["twitter:image"]
    assert "Vision Transformer" in metadata["og:description"]
    assert "Click to try" not in page and "header-image" not in page


def test_preview_image_url_uses_proxy_host_and_prefix():
    names = {"host": "inside:7860", "x-forwarded-host": "vit.example, b", "x-forwarded-proto": "https"}
    headers = [(name.encode(), value.encode()) for name, value in names.items()]
    scope = {"type": "http", "scheme": "http", "headers": headers}
    page = with_link_preview(b'"https://x/header-image.jpg"', scope, "/vit/").decode()
    assert page == f'"https://vit.example/vit{CARD}"'


def test_upload_folder_placeholder_is_resolved_in_paths_only():
    from gradio.utils import get_upload_folder

    body = f'{{"path": "{FOLDER}/a/image.webp", "said": "{FOLDER}"}}'.encode()
    assert json.loads(resolve_placeholder(body)) == {
        "path": f"{get_upload_folder()}/a/image.webp",
        "said": FOLDER,
    }
