"""The page's typefaces: IBM Plex Sans for text and Newsreader for titles.

Both are subsets of Fontsource's packages under the SIL Open Font License, which lies beside them in
frontend/fonts. The browser preloads them, before Gradio's scripts build the page. Until they arrive, system
fonts stand in, scaled to the same widths and heights, so that no figure changes its size. Chinese and Korean
text uses the system's fonts.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vitviz.errors import Unknown, quoted

FONTS = Path(__file__).parents[1] / "frontend" / "fonts"
LATIN = (
    "U+0000-00FF,U+0131,U+0152-0153,U+02BB-02BC,U+02C6,U+02DA,U+02DC,U+0304,U+0308,U+0329,U+2000-206F,U+20AC,"
    "U+2122,U+2191,U+2193,U+2212,U+2215,U+FEFF,U+FFFD"
)
LATIN_EXT = (
    "U+0100-02BA,U+02BD-02C5,U+02C7-02CC,U+02CE-02D7,U+02DD-02FF,U+1D00-1DBF,U+1E00-1E9F,U+1EF2-1EFF,U+2020,"
    "U+20A0-20AB,U+20AD-20C0,U+2113,U+2C60-2C7F,U+A720-A7FF"
)


@dataclass(frozen=True)
class FontFace:
    """One file of a typeface, with the characters that it holds."""

    family: str
    file: str
    weights: str
    characters: str
    preloaded: bool = True


FACES = (
    FontFace("IBM Plex Sans Variable", "ibm-plex-sans-latin-wght-normal.woff2", "100 700", LATIN),
    FontFace(
        "IBM Plex Sans Variable", "ibm-plex-sans-latin-ext-wght-normal.woff2", "100 700", LATIN_EXT, False
    ),
    FontFace("Newsreader Variable", "newsreader-latin-wght-normal.woff2", "200 800", LATIN),
)
# Widths, ascents and descents of the typefaces, as fractions of those of Arial and Times New Roman, whose
# metrics Liberation shares.
STAND_INS = """
@font-face { font-family: 'vitviz sans'; src: local('Arial'), local('Liberation Sans');
  size-adjust: 101.5%; ascent-override: 101%; descent-override: 27.1%; line-gap-override: 0%; }
@font-face { font-family: 'vitviz serif'; src: local('Times New Roman'), local('Liberation Serif');
  size-adjust: 106%; ascent-override: 69.3%; descent-override: 25%; line-gap-override: 0%; }
"""


def font_file(name: str) -> bytes:
    """Return a typeface's file. Raises Unknown for any other name."""
    if name not in [face.file for face in FACES]:
        raise Unknown(f"There is no font {quoted(name)}.")
    return (FONTS / name).read_bytes()


def preloads() -> str:
    """Return the page's links that load the typefaces early."""
    return "".join(
        f'<link rel="preload" href="{_address(face)}" as="font" type="font/woff2" crossorigin>'
        for face in FACES
        if face.preloaded
    )


def font_faces() -> str:
    """Return the CSS rules of the typefaces and of the system fonts that stand in for them."""
    rules = [
        f"@font-face {{ font-family: '{face.family}'; font-weight: {face.weights}; font-display: swap;"
        f" src: url({_address(face)}) format('woff2'); unicode-range: {face.characters}; }}"
        for face in FACES
    ]
    return "\n".join([*rules, STAND_INS])


@cache
def _address(face: FontFace) -> str:
    """Return a file's address relative to the page, with a hash of its content."""
    version = hashlib.blake2b(font_file(face.file), digest_size=8).hexdigest()
    return f"gradio_api/vitviz/fonts/{version}/{face.file}"
