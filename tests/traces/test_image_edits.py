"""Grammar of image edits: parsing inverts writing, and invalid text is rejected."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vitviz.errors import VitvizError
from vitviz.traces.image_edits import MOST, ImageEdit, ImageEdits

near, wide = st.integers(-99_999, 99_999), st.integers(1, 9_999)
path = st.tuples(wide, st.lists(st.tuples(near, near), min_size=1, max_size=5)).map(
    lambda one: (one[0], *sum(one[1], ()))
)
inks = st.one_of(
    st.sampled_from(["mean", "blur", "noise0", "noise77", "ff8800", "000000"]),
    st.from_regex(r"[0-9a-f]{6}", fullmatch=True),
)
goal = st.integers(1, 4_096).map(lambda one: one * (-1) ** one)
place = st.tuples(near, near, wide, wide, near, near)
outline = st.lists(st.tuples(near, near), min_size=3, max_size=5)
piece = st.one_of(
    place,
    st.tuples(place, goal, goal).map(lambda one: (*one[0], *one[1:])),
    st.tuples(place, outline).map(lambda one: (*one[0], -one[0][2], one[0][3], *sum(one[1], ()))),
)
strokes = st.one_of(
    st.builds(ImageEdit, st.just("brush"), path, inks),
    st.builds(ImageEdit, st.just("erase"), path),
    st.builds(ImageEdit, st.sampled_from(["move", "copy"]), piece),
    st.builds(ImageEdit, st.just("onto"), piece, st.sampled_from(["coffee", "other", "0a" * 20])),
    st.builds(ImageEdit, st.sampled_from(["brightness", "contrast"]), st.tuples(st.integers(-100, 100))),
    st.builds(ImageEdit, st.sampled_from(["hue", "rotate"]), st.tuples(st.integers(-180, 180))),
    st.builds(ImageEdit, st.just("shift"), st.tuples(near, near)),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(strokes, max_size=6))
def test_parse_inverts_text(each):
    edits = ImageEdits(tuple(each))
    assert ImageEdits.parse(edits.text()) == edits and bool(edits) == bool(each)


@given(st.text("brushmoveaniyct._-0123456789 f", max_size=40))
def test_text_of_parsed_edits_is_unchanged(text):
    try:
        edits = ImageEdits.parse(text)
    except VitvizError as error:
        assert "is not valid" in str(error) and "expected" in str(error)
    else:
        assert edits.text() == " ".join(text.split())


INVALID = """
brush_24.1.1
brush.mean_24 brush.mean_24.1 brush.mean_0.1.1 brush.mean_-3.1.1 brush.red_3.1.1 brush.FF8800_3.1.1
brush.noise_3.1.1 brush.noise01_3.1.1 brush.mean_10000.1.1 erase.mean_3.1.1 move_0.0.8.8.1 move_0.0.0.8.1.1
move_0.0.8.-8.1.1 brightness_101 hue_-181 rotate_1.1 shift_1 brush.mean_3.01.1 shift_-0.1 shift_1.123456
shift_1. move_0.0.8.8.1.1.5 copy_0.0.8.8.1.1.0.8 move_0.0.8.8.1.1.8.-4097 move_0.0.8.8.1.1.8.8.1.1.2.2
move_0.0.8.8.1.1.8.8.1.1.2.2.3 move_0.0.8.8.1.1.1.1.2.2.9.9
onto_0.0.8.8.1.1 onto.a-b_0.0.8.8.1.1 onto.coffee_0.0.8.8 move.coffee_0.0.8.8.1.1
shift _1.1 smudge_3.1.1 shift_1,1
""".split()
INVALID_VALUES = [
    5,
    None,
    "x" * 20_001,
    " ".join(["shift_1.1"] * (MOST + 1)),
    "shift_1.\N{FULLWIDTH DIGIT ONE}",
]


@pytest.mark.parametrize("text", [*INVALID, *INVALID_VALUES])
def test_invalid_edits_raise_with_expected_form(text):
    with pytest.raises(VitvizError, match=r"(not valid|too many); expected "):
        ImageEdits.parse(text)


def test_public_text_hides_key_of_uploaded_image():
    key = "0a" * 20
    edits = ImageEdits.parse(f"hue_1 onto.{key}_0.0.8.8.1.1 onto.coffee_0.0.8.8.1.1 hue_2")
    assert (edits.own, edits.ground) == (key, "coffee") and not ImageEdits.parse("hue_1").ground
    assert edits.told().text() == "hue_1 onto.other_0.0.8.8.1.1 onto.coffee_0.0.8.8.1.1 hue_2"
