"""Gradio components with the edges taken off."""

from __future__ import annotations

import gradio as gr

from gradio.events import Dependency

class Upload(gr.Image):
    """An image input that hands on the file as it came.

    Gradio's own flattens transparency onto black, clips 16-bit pictures and fails on a bad file with an error that
    says nothing; our loader opens the file and speaks.
    """

    def __init__(self, **options):
        super().__init__(type="filepath", image_mode=None, sources=["upload", "webcam", "clipboard"], **options)

    def preprocess(self, payload):
        return None if payload is None else payload.path

    def get_block_name(self) -> str:
        return "image"

    def get_config(self, cls=None) -> dict:
        return super().get_config(gr.Image)
    from typing import Callable, Literal, Sequence, Any, TYPE_CHECKING
    from gradio.blocks import Block
    if TYPE_CHECKING:
        from gradio.components import Timer
        from gradio.components.base import Component