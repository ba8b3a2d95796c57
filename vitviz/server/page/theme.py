"""Gradio's theme, made of the design tokens in frontend/style/tokens.css.

Every value is a reference to a token, so that light, dark and presentation mode are defined there alone.
"""

import inspect

import gradio as gr
from gradio.themes.utils.sizes import Size

# Gradio's variables by token.
COLOURS = {
    "paper": (
        "background_fill_primary", "body_background_fill", "block_background_fill", "input_background_fill",
        "block_label_background_fill", "checkbox_background_color", "button_secondary_background_fill",
        "button_primary_text_color", "table_even_background_fill", "panel_background_fill",
    ),
    "shade": (
        "background_fill_secondary", "button_secondary_background_fill_hover", "code_background_fill",
        "table_odd_background_fill",
    ),
    "tint": ("color_accent_soft", "checkbox_label_background_fill_selected"),
    "line": (
        "border_color_primary", "block_border_color", "input_border_color", "checkbox_border_color",
        "button_secondary_border_color", "table_border_color",
    ),
    "ink": (
        "body_text_color", "button_secondary_text_color", "block_title_text_color",
        "checkbox_label_text_color_selected", "button_primary_background_fill_hover",
    ),
    "soft": ("body_text_color_subdued", "block_label_text_color", "input_placeholder_color"),
    "accent": (
        "color_accent", "border_color_accent", "input_border_color_focus", "link_text_color",
        "link_text_color_hover", "link_text_color_active", "link_text_color_visited", "slider_color",
        "button_primary_background_fill", "button_primary_border_color", "checkbox_background_color_selected",
        "checkbox_border_color_selected", "checkbox_border_color_focus", "stat_background_fill",
    ),
    "warn": ("error_text_color", "error_icon_color", "error_border_color"),
}  # fmt: skip
TEXT = Size("t1", "t1", "t2", "t3", "t3", "t4", "t5")
SPACE = Size("s1", "s1", "s2", "s3", "s4", "s5", "s6")
RADII = Size("r1", "r1", "r1", "r2", "r2", "r2", "r2")


def theme() -> gr.themes.Base:
    """Return the theme; its contrast is at least 4.5 : 1 (WCAG AA)."""
    base = gr.themes.Base(
        text_size=_tokens(TEXT),
        spacing_size=_tokens(SPACE),
        radius_size=_tokens(RADII),
        font=["var(--vv-sans)"],
        font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
    )
    known = inspect.signature(base.set).parameters
    given = {
        name: f"var(--vv-{token})"
        for token, names in COLOURS.items()
        for light in names
        for name in (light, f"{light}_dark")
        if name in known
    }
    return base.set(
        **given,
        input_border_width="1px",
        block_radius="*radius_md",
        input_radius="*radius_md",
        block_label_radius="*radius_md",
        block_title_text_weight="600",
        block_title_text_size="*text_sm",
        section_header_text_size="*text_sm",
        input_text_size="*text_sm",
        input_padding="*spacing_md *spacing_xl",
        button_large_text_size="*text_sm",
        button_large_text_weight="500",
        button_medium_text_weight="500",
    )


def _tokens(size: Size) -> Size:
    """Return a size scale for Gradio whose steps are the design tokens (CSS variables)."""
    return Size(*(f"var(--vv-{name})" for name in size.expand()), name=f"tokens of {size.md}")
