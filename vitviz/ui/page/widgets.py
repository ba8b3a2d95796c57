"""Gradio components with the edges taken off."""

from __future__ import annotations

import gradio as gr


class Upload(gr.Image):
    """An image input that hands on the file as it came.

    Gradio's own flattens transparency onto black, clips 16-bit pictures and fails on a bad file with an error
    that says nothing; our loader opens the file and speaks. The path is a stranger's: only
    `vitviz.ui.serving.uploads` may open it.
    """

    def __init__(self, **options):
        super().__init__(
            type="filepath", image_mode=None, sources=["upload", "webcam", "clipboard"], **options
        )

    def preprocess(self, payload):
        return None if payload is None else payload.path

    def get_block_name(self) -> str:
        return "image"

    def get_config(self, cls=None) -> dict:
        return super().get_config(
            gr.Image
        )  # the page reads Image's own parameters, which are not in our signature


class Pictures(gr.File):
    """An input of many files that hands on their paths, which are a stranger's too.

    Gradio's own makes an empty temporary file for each of them whenever they are used, and never removes it.
    """

    def __init__(self, **options):
        super().__init__(file_count="multiple", type="filepath", **options)

    def preprocess(self, payload):
        return None if payload is None else [file.path for file in payload.root]

    def get_block_name(self) -> str:
        return "file"

    def get_config(self, cls=None) -> dict:
        return super().get_config(gr.File)


class Zip(gr.File):
    """An input of one zip, filled by the page's scripts, that hands on its path: a stranger's too."""

    def __init__(self, **options):
        super().__init__(file_count="single", type="filepath", **options)

    def preprocess(self, payload):
        return None if payload is None else payload.path

    def get_block_name(self) -> str:
        return "file"

    def get_config(self, cls=None) -> dict:
        return super().get_config(gr.File)
