"""Captions: plain text without LaTeX, LaTeX that compiles, Markdown that renders correctly."""

import re
import unicodedata

import pytest
from markdown_it import MarkdownIt
from matplotlib.mathtext import MathTextParser

from vitviz.errors import VitvizError
from vitviz.export.captions import Caption, first_sentence, plain_formula
from vitviz.views import VIEWS
from vitviz.views.languages import NAMES, translate

CAPTION = Caption(
    (("Map, my_model*50%: a & b $1.", False), ("An *idea* with `code`.", True)),
    (("Definition: **bold** $A^{l,h}_{0j} = \\frac{1}{N_p}$ of 5 %", True),),
)
SPECIAL = re.compile(r"(?<!\\)[&%#_~^]")  # outside of formulas, LaTeX reads these as commands


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (r"A^{l,h} = \mathrm{softmax}(q k^\top / \sqrt{d})", "A^(l,h) = softmax(q k^⊤ / √d)"),
        (
            r"D(l,h) = \frac{1}{N_p} \sum_i \sum_j A^{l,h}_{ij} d_{ij}",
            "D(l,h) = 1/N_p ∑_i ∑_j A^(l,h)_ij d_ij",
        ),
        (
            r"\frac{1^T \tilde K 1 \; 1^T \tilde L 1}{(n-1)(n-2)}",
            "(1^T K\u0303 1 1^T L\u0303 1)/((n-1)(n-2))",
        ),
        (r"\langle \bar u, x^0 \rangle", "⟨ū, x⁰⟩"),
        (r"x \in \mathbb{R}^{H \times W \times C}", "x ∈ ℝ^(H × W × C)"),
        (r"z'_l = \mathrm{MSA}(\mathrm{LN}(z_{l-1})) + z_{l-1}", "z′_l = MSA(LN(z_(l-1))) + z_(l-1)"),
        (r"\lfloor p N \rfloor, \|t_i\|_2, 2 s / \sqrt{10}", "⌊p N⌋, ‖t_i‖₂, 2 s / √10"),
        (r"\frac{a + b}{c}", "(a + b)/c"),
        (r"\unknown{x}", "unknownx"),
    ],
)
def test_plain_formula_matches_expected_text(formula, expected):
    assert plain_formula(formula) == unicodedata.normalize("NFC", expected)


def captions(language: str):
    for view in VIEWS:
        texts = [
            translate(one, language) for one in (view.words.what, view.words.definition, view.words.caveat)
        ]
        yield (
            view.slug,
            texts,
            Caption(((first_sentence(texts[0]), True),), tuple((one, True) for one in texts[1:])),
        )


@pytest.mark.parametrize("language", list(NAMES))
def test_plain_captions_contain_no_latex_or_markdown(language):
    for slug, _, caption in captions(language):
        assert not re.search(r"[\\${}`]|\*\*|(?<!\w)\*\w", caption.text("txt")), slug


@pytest.mark.parametrize("language", list(NAMES))
def test_latex_captions_parse_and_escape_commands(language):
    parse = MathTextParser("path").parse
    for slug, texts, caption in captions(language):
        parts = caption.text("tex").split("$")
        assert len(parts) % 2, slug
        for formula in parts[1::2]:
            parse(f"${formula}$".replace(r"\ge ", r"\geq "))  # a name that mathtext lacks
        written = " ".join(parts[::2])
        assert not SPECIAL.search(written), slug
        assert written.count("{") == written.count("}"), slug
        own = [formula for text in texts[1:] for formula in text.split("$")[1::2]]
        assert [one for one in parts[1::2] if one in own] == own, f"{slug}: each formula, unchanged"


@pytest.mark.parametrize("language", list(NAMES))
def test_markdown_captions_keep_definitions_unchanged(language):
    for slug, texts, caption in captions(language):
        assert all(text in caption.text("md") for text in texts[1:]), slug


def test_names_and_emphasis_are_escaped_per_form():
    assert CAPTION.text("txt") == (
        "Map, my_model*50%: a & b $1. An idea with code.\nDefinition: bold A^(l,h)_0j = 1/N_p of 5 %\n"
    )
    assert CAPTION.text("tex") == (
        "Map, my\\_model*50\\%: a \\& b \\$1. An \\emph{idea} with \\texttt{code}.\n"
        "Definition: \\textbf{bold} $A^{l,h}_{0j} = \\frac{1}{N_p}$ of 5 \\%\n"
    )
    html = MarkdownIt().render(CAPTION.text("md"))
    assert "Map, my_model*50%: a &amp; b $1. An <em>idea</em> with <code>code</code>." in html
    assert "<strong>bold</strong> $A^{l,h}_{0j} = \\frac{1}{N_p}$" in html


@pytest.mark.parametrize("form", ["txt", "tex", "md"])
def test_caption_without_definition_has_two_sentences(form):
    for language in NAMES:
        for slug, texts, _ in captions(language):
            second = first_sentence(texts[0])
            assert len(re.findall(r"[.?!](?=\s+[A-Z가-힣])|[。？！](?=.)", second)) == 0, (slug, second)
            caption = Caption((("Map, tiny: a panel.", False), (second, True)), (("More.", False),))
            assert caption.text(form, definition=False).count("\n") == 1
            assert "More." in caption.text(form) and "More." not in caption.text(form, definition=False)


def test_unknown_caption_form_raises_with_known_forms(inspector, trace):
    import vitviz

    with pytest.raises(VitvizError, match="txt, tex, md"):
        vitviz.figure("rollout", inspector, trace).caption_as("html")
