"""Helpers that several test files share."""

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser

import numpy as np
from PIL import Image

VOID = {"img", "circle", "line", "polyline", "br", "path"}


class Reader(HTMLParser):
    """Tags, attributes, pictures and text; fails where a tag is not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.given, self.text = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.given += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def pictures(self):
        """As pixels, in order."""
        found = [value.partition("base64,")[2] for name, value in self.given if name == "src"]
        return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in found]

    @property
    def said(self):
        return " ".join(" ".join(self.text).split())
