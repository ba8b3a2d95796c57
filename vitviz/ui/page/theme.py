"""How the page looks. No web fonts: the page has to work without any network."""

from __future__ import annotations

import gradio as gr


def theme() -> gr.themes.Base:
    """A calm theme with system fonts, in which all texts stand out from what is behind them by 4.5 : 1 (WCAG
    AA).
    """
    base = gr.themes.Default(
        primary_hue="teal",
        neutral_hue="slate",
        font=["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
    )
    return base.set(
        body_text_color_subdued="*neutral_500",
        color_accent="*primary_700",  # in the dark page.css sets it back
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_hover_dark="*primary_800",
    )
