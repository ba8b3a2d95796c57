"""Captions of figures as plain text, LaTeX and Markdown.

A caption has two sentences, what the figure shows and what is measured, and further lines: settings,
definition, limits and source. Definitions are Markdown with formulas between dollar signs. Plain text has no
LaTeX: a formula is written with Unicode signs, and groups are in parentheses, such as A^(l,h).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

FORMS = ("txt", "tex", "md")

SIGNS = {
    "bar": "\u0304", "beta": "β", "cdot": "·", "cdots": "⋯", "circ": "∘", "gamma": "γ", "ge": "≥",
    "hat": "\u0302", "in": "∈", "langle": "⟨", "ldots": "…", "le": "≤", "lfloor": "⌊", "pm": "±",
    "rangle": "⟩", "rfloor": "⌋", "sigma": "σ", "sqrt": "√", "sum": "∑", "tilde": "\u0303", "times": "×",
    "to": "→", "top": "⊤", "|": "‖", ",": " ", ";": " ", " ": " ",
}  # fmt: skip
ACCENTS = ("bar", "hat", "tilde")
SCRIPTS = {"^": str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"), "_": str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")}
IN_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$",
    "×": r"$\times$", "→": r"$\to$", "±": r"$\pm$", "≥": r"$\ge$", "≤": r"$\le$", "·": r"$\cdot$",
    "…": r"\ldots{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"})  # fmt: skip
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|[^\\\s]")
_EMPHASIS = re.compile(r"\*\*(.+?)\*\*|\*(.+?)\*|`(.+?)`")


@dataclass(frozen=True)
class Caption:
    """A caption: two sentences, and lines; each text is (text, True if Markdown with formulas)."""

    sentences: tuple[tuple[str, bool], ...]
    lines: tuple[tuple[str, bool], ...]

    def text(self, form: str = "txt", definition: bool = True) -> str:
        """Return the caption as "txt", "tex" or "md"; with `definition` the lines below the sentences."""
        write = {"txt": _plain, "tex": _latex, "md": _markdown}[form]
        head = " ".join(write(*one) for one in self.sentences)
        lines = [write(*one) for one in self.lines] if definition else []
        return ("\n\n" if form == "md" else "\n").join([head, *lines]) + "\n"


def first_sentence(text: str) -> str:
    """Return the first sentence of a text.

    >>> first_sentence("One (e.g. 1.5) here. Two.")
    'One (e.g. 1.5) here.'
    """
    return re.split(r"(?<=[.!?])\s+(?=[A-Z가-힣])|(?<=[。？！])", text, maxsplit=1)[0]


def _plain(text: str, marked: bool) -> str:
    if not marked:
        return text
    parts = text.split("$")  # formulas have odd places
    parts[::2] = [_EMPHASIS.sub(r"\1\2\3", part) for part in parts[::2]]
    parts[1::2] = map(plain_formula, parts[1::2])
    return "".join(parts)


def _latex(text: str, marked: bool) -> str:
    if not marked:
        return text.translate(IN_LATEX)
    parts = text.split("$")  # formulas have odd places, and are LaTeX already
    parts[::2] = [_EMPHASIS.sub(_command, part.translate(IN_LATEX)) for part in parts[::2]]
    return "$".join(parts)


def _command(emphasis: re.Match) -> str:
    """Return a match of Markdown emphasis as a LaTeX command."""
    name = ("textbf", "emph", "texttt")[emphasis.lastindex - 1]
    return f"\\{name}{{{emphasis[emphasis.lastindex]}}}"


def _markdown(text: str, marked: bool) -> str:
    return text if marked else re.sub(r"([\\`*_\[\]<>$#|])", r"\\\1", text)


def plain_formula(formula: str) -> str:
    r"""Return a LaTeX formula as plain text.

    >>> plain_formula(r"A^{l,h} = \mathrm{softmax}(q k^\top / \sqrt{d})")
    'A^(l,h) = softmax(q k^⊤ / √d)'
    >>> plain_formula(r"\frac{1}{n(n-3)} x_0^2")
    '1/(n(n-3)) x₀²'
    """
    tokens = _TOKEN.findall(formula)
    tokens.reverse()  # pop() takes the next one

    def argument() -> str:
        while tokens and tokens[-1].isspace():
            tokens.pop()
        return sequence(1)

    def grouped() -> str:
        inner = argument()
        return inner if re.fullmatch(r"\w+|.", unicodedata.normalize("NFC", inner)) else f"({inner})"

    def sequence(most: int | None = None) -> str:
        """Read `most` elements, or all up to the closing brace."""
        written, count = "", 0
        while tokens and (most is None or count < most):
            token, count = tokens.pop(), count + 1
            name = token[1:]
            if token == "}":
                break
            if token == "{":
                written += sequence()
            elif token in SCRIPTS:
                script = grouped()
                small = script.translate(SCRIPTS[token])
                written += small if script.isdecimal() else token + script
            elif token == "'":
                written += "′"
            elif not token.startswith("\\"):
                written += " " if token.isspace() else token
            elif name == "frac":
                written += f"{grouped()}/{grouped()}"
            elif name in ("mathrm", "text", "operatorname"):
                written += argument()
            elif name == "mathbb":
                written += {"R": "ℝ", "N": "ℕ", "Z": "ℤ"}.get(inner := argument(), inner)
            elif name in ACCENTS:
                written += argument() + SIGNS[name]
            elif name == "sqrt":
                written += SIGNS[name] + grouped()
            else:
                written += SIGNS.get(name, name)
        return written

    result = unicodedata.normalize("NFC", re.sub(r" {2,}", " ", sequence()).strip())
    return re.sub(r"(?<=[⟨⌊]) | (?=[⟩⌋])", "", result)
