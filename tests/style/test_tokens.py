"""Design tokens: style sheets take type, space, radii and colours from frontend/style/tokens.css alone."""

import re
from pathlib import Path

import pytest

from vitviz.server.page import theme
from vitviz.views import typefaces

PACKAGE = Path(__file__).parents[2] / "vitviz"
TOKENS = PACKAGE / "frontend" / "style" / "tokens.css"
SHEETS = {
    path.relative_to(PACKAGE).as_posix(): re.sub(
        r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.S
    )
    for path in sorted(PACKAGE.rglob("*.css"))
    if path != TOKENS
}
DEFINED = re.findall(r"^  (--vv-[\w-]+):", TOKENS.read_text(encoding="utf-8"), re.M)
SIZE = r"(var\(--vv-t(?:\d|-map)\)|[\d.]+em|inherit)"
LENGTH = re.compile(r"(?<![\w.-])(?:1\.[5-9]|[2-9]|[1-2]\d)(?:\.\d+)?px|[\d.]+rem")  # 1 px is a hairline


def declarations(text: str, name: str) -> list[str]:
    return re.findall(rf"(?<![\w-]){name}: ([^;}}]+)", text)


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_sheet_has_no_font_size_radius_space_or_typeface_of_its_own(sheet):
    text = SHEETS[sheet]
    for value in declarations(text, "font-size"):
        assert re.fullmatch(rf"{SIZE}( !important)?", value), f"font-size: {value}"
    for value in declarations(text, "font"):
        assert re.fullmatch(rf"inherit|(\d+ )?{SIZE} / [\d.]+ var\(--vv-(sans|serif)\)( !important)?", value)
    for value in declarations(text, "border-radius"):
        assert re.fullmatch(r"((0|50%|inherit|var\(--vv-r[12]\)) ?)+", value), f"border-radius: {value}"
    for value in declarations(text, "(?:gap|padding|margin)[a-z-]*"):
        if not value.startswith("-") and "(--vv-s" not in value:
            assert not LENGTH.search(value), value
    for value in declarations(text, "font-family"):
        assert "var(--vv-" in value or "Math" in value, value


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_sheet_has_no_colour_of_its_own(sheet):
    colours = re.findall(r"#[0-9a-f]{3,8}\b(?=[^{]*;)", SHEETS[sheet])
    assert set(colours) <= {"#fff", "#000"}  # outlines on images


def test_there_are_five_sizes_one_scale_of_space_and_two_radii():
    for letter, count in (("t", 5), ("s", 7), ("r", 2)):
        assert {f"--vv-{letter}{n + 1}" for n in range(count)} == {
            name for name in DEFINED if re.fullmatch(rf"--vv-{letter}\d+", name)
        }


def test_every_token_that_is_used_is_defined_and_every_defined_one_is_used():
    known = re.compile(
        r"var\((--vv-(?:[tsr]\d|t-map|sans|serif|paper|ink|soft|line|shade|groove|tint|warn))\b"
    )
    texts = [*SHEETS.values(), TOKENS.read_text(encoding="utf-8")]
    used = {name for text in texts for name in known.findall(text)}
    used |= {f"--vv-{name}" for name in theme.COLOURS}
    used |= {f"--vv-{name}" for size in (theme.TEXT, theme.SPACE, theme.RADII) for name in size.expand()}
    assert used <= set(DEFINED)
    assert set(DEFINED) - used <= {"--vv-orange", "--vv-blue", "--vv-shadow"}


def test_gradios_theme_consists_of_tokens():
    css = theme.theme()._get_theme_css()
    light, dark = css.split(":root.dark")
    for part in (light, dark):
        named = dict(re.findall(r"--([\w-]+): ([^;]+);", part))
        for token, names in theme.COLOURS.items():
            for name in names:
                assert named.get(name.replace("_", "-"), f"var(--vv-{token})") == f"var(--vv-{token})", name
    assert "--text-md: var(--vv-t3);" in light and "--radius-md: var(--vv-r2);" in light


def test_the_typefaces_are_small_and_have_their_licences_beside_them():
    assert {face.file for face in typefaces.FACES} == {path.name for path in typefaces.FONTS.glob("*.woff2")}
    assert sum(len(typefaces.font_file(face.file)) for face in typefaces.FACES) <= 150_000
    for face in typefaces.FACES:
        assert typefaces.font_file(face.file)[:4] == b"wOF2"
        family = face.file.partition("-latin")[0]
        assert "SIL Open Font License" in (typefaces.FONTS / f"{family}-LICENSE.txt").read_text()
    assert typefaces.font_faces().count("font-display: swap") == len(typefaces.FACES)
