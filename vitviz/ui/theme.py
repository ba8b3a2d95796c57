"""How the page looks. No web fonts: the page has to work without any network."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def theme() -> gr.themes.Base:
    """A calm theme with system fonts."""
    return gr.themes.Default(
        primary_hue="teal",
        neutral_hue="slate",
        font=["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
    )
