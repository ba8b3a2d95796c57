"""A retouched photograph by plain numpy; what a model gets of a piece that was moved by whole patches."""

import colorsys

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

import vitviz
from vitviz.engine.images import editing as module
from vitviz.errors import ImageError, Stopped, VitvizError
from vitviz.traces import cancellation
from vitviz.traces.image_edits import ImageEdits

HEIGHT, WIDTH = 60, 80


@pytest.fixture(scope="module")
def picture():
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def made(picture, strokes) -> np.ndarray:
    before = picture.copy()
    found = np.asarray(vitviz.edit_image(picture, strokes))
    assert (picture == before).all(), "the picture that is handed in stays as it was"
    assert (found == np.asarray(vitviz.edit_image(Image.fromarray(picture), strokes))).all(), "to the bit"
    return found


def distances(*path: tuple[int, int]) -> np.ndarray:
    """Each pixel's distance from a path, by its segments."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    here, found = np.stack([x, y], -1).astype(float), np.full((HEIGHT, WIDTH), np.inf)
    for start, end in zip(path, path[1:] or path, strict=False):
        a, b = np.array(start, float), np.array(end, float)
        along = (b - a) @ (b - a)
        share = np.clip((here - a) @ (b - a) / along, 0, 1)[..., None] if along else 0.0
        found = np.minimum(found, np.linalg.norm(here - a - share * (b - a), axis=-1))
    return found


def mean_of(picture) -> np.ndarray:
    return np.floor(picture.reshape(-1, 3).mean(0) + 0.5).astype(np.uint8)


PATHS = [("20.15", [(20, 15)]), ("20.15.30.20", [(20, 15), (50, 35)]),
         ("-5.10.20.0.40.45", [(-5, 10), (15, 10), (55, 55)])]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), PATHS)
@pytest.mark.parametrize("ink", ["ff8800", "mean"])
def test_a_brush_colours_what_lies_within_half_its_width(picture, text, path, ink):
    found, far = made(picture, f"brush.{ink}_9.{text}"), distances(*path)
    colour = (255, 136, 0) if ink == "ff8800" else mean_of(picture)
    assert (found[far <= 3.5] == colour).all()
    assert (found[far > 6] == picture[far > 6]).all()
    assert (far <= 3.5).sum() > 30


def test_the_mean_is_that_of_the_picture_as_it_was(picture):
    found = made(picture, "brightness_60 brush.mean_9.20.15")
    assert (found[15, 20] == mean_of(picture)).all()


def test_noise_is_seeded_and_nothing_else(picture):
    one, again, other = (made(picture, f"brush.noise{seed}_31.40.30") for seed in (7, 7, 8))
    under = distances((40, 30)) <= 14
    assert (one == again).all() and (one[under] != other[under]).mean() > 0.9
    assert abs(one[under].mean() - 127.5) < 10 and one[under].std() > 60
    assert (one[~(distances((40, 30)) <= 17)] == picture[~(distances((40, 30)) <= 17)]).all()


def test_blur_is_a_gaussian_of_a_quarter_of_the_width(picture):
    """Its weights in plain numpy; Pillow's comes by three boxes, and rounds."""
    found, wide = made(picture, "brush.blur_16.40.30"), 16
    offsets = np.arange(-wide, wide + 1)
    kernel = np.exp(-(offsets**2) / (2 * (wide / 4) ** 2))
    kernel /= kernel.sum()
    kernel = np.outer(kernel, kernel)
    under = np.argwhere(distances((40, 30)) <= 7)
    for y, x in under[::5]:
        around = picture[y - wide : y + wide + 1, x - wide : x + wide + 1].astype(float)
        assert np.abs((around * kernel[..., None]).sum((0, 1)) - found[y, x]).max() < 3


def test_blur_does_not_depend_on_how_far_the_path_goes_on(picture):
    one, on = (made(picture, f"brush.blur_8.40.30{more}") for more in ("", ".-40.-28"))
    under = distances((40, 30)) <= 3
    assert (one[under] == on[under]).all()


def test_the_eraser_brings_the_picture_back_as_it_was_before_all_strokes(picture):
    found = made(picture, "brush.000000_41.40.30 brightness_50 rotate_30 erase_21.40.30")
    far = distances((40, 30))
    assert (found[far <= 9] == picture[far <= 9]).all()
    assert (found[far > 12] != picture[far > 12]).mean() > 0.9


@pytest.mark.parametrize("tool", ["move", "copy"])
@pytest.mark.parametrize(
    ("left", "top", "across", "down"), [(8, 16, 24, 8), (60, 40, -30, -20), (0, 0, -8, 4)]
)
def test_a_rectangle_goes_by_whole_pixels(picture, tool, left, top, across, down):
    found, expected = made(picture, f"{tool}_{left}.{top}.16.12.{across}.{down}"), picture.copy()
    if tool == "move":
        expected[top : top + 12, left : left + 16] = mean_of(picture)
    for y in range(top, min(top + 12, HEIGHT)):
        for x in range(left, min(left + 16, WIDTH)):
            if 0 <= y + down < HEIGHT and 0 <= x + across < WIDTH:
                expected[y + down, x + across] = picture[y, x]
    assert (found == expected).all()


def test_a_rectangle_is_taken_as_far_as_it_lies_within(picture):
    assert (made(picture, "copy_-4.-4.12.12.20.20") == made(picture, "copy_0.0.8.8.20.20")).all()
    assert (made(picture, "move_500.500.8.8.-480.-480") == picture).all()


@pytest.mark.parametrize("tool", ["move", "copy"])
@pytest.mark.parametrize("sides", [(-1, 1), (1, -1), (-1, -1)])
def test_a_piece_is_mirrored_to_the_bit(picture, tool, sides):
    found, expected = made(picture, f"{tool}_8.16.16.12.24.8.{16 * sides[0]}.{12 * sides[1]}"), picture.copy()
    if tool == "move":
        expected[16:28, 8:24] = mean_of(picture)
    expected[24:36, 32:48] = picture[16:28, 8:24][:: sides[1], :: sides[0]]
    assert (found == expected).all()


def test_a_piece_is_scaled_about_its_upper_left_corner(picture):
    """Of one colour to the bit; of an even slope as bilinear is, but for the edges."""
    plain = np.full_like(picture, 40)
    plain[10:20, 10:30] = (250, 120, 7)
    expected = plain.copy()
    expected[30:35, 40:50] = (250, 120, 7)
    assert (made(plain, "copy_10.10.20.10.30.20.10.5") == expected).all()
    slope = np.repeat(np.add.outer(np.arange(60), 2 * np.arange(80))[..., None], 3, -1).astype(np.uint8)
    larger = made(slope, "copy_0.0.20.10.5.20.-60.30")[20:50, 5:65, 0]
    y, x = (np.arange(30) + 0.5) / 3 - 0.5, (np.arange(60) + 0.5) / 3 - 0.5
    wanted = np.add.outer(y, 2 * x)[:, ::-1]
    assert np.abs(larger - wanted)[3:-3, 3:-3].max() <= 1


def test_a_piece_cut_by_an_outline_takes_what_lies_within(picture):
    """The crossing number of each pixel's middle; on the outline itself it may be either."""
    corners = [(20, 10), (40, 14), (34, 40), (22, 30)]
    x, y = (axis[..., None] for axis in np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)))
    inside = np.zeros((HEIGHT, WIDTH), bool)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside ^= ((ay > y) != (by > y))[..., 0] & (x < ax + (y - ay) * (bx - ax) / (by - ay))[..., 0]
    sure = distances(*corners, corners[0]) > 1
    assert inside[sure].sum() > 200
    outline = "20.10.20.4.-6.26.-12.-10"
    found = made(picture, f"move_20.10.21.31.30.15.21.31.{outline}")
    was, there = np.argwhere(sure & inside), np.roll(sure & inside, (15, 30), (0, 1))
    assert (found[there] == picture[tuple(was.T)]).all()
    left = sure & inside & ~np.roll(inside | ~sure, (15, 30), (0, 1))
    assert (found[left] == mean_of(picture)).all() and left.sum() > 100
    same = sure & ~inside & ~np.roll(inside | ~sure, (15, 30), (0, 1))
    assert (found[same] == picture[same]).all()
    flipped = made(picture, f"copy_20.10.21.31.30.15.-21.31.{outline}")
    box = np.s_[10:41, 20:41]
    expected = np.where((sure & inside)[box][:, ::-1, None], picture[box][:, ::-1], flipped[25:56, 50:71])
    assert (flipped[25:56, 50:71] == expected).all() and (
        flipped[25:56, 50:71] != picture[25:56, 50:71]
    ).any()
    far = made(picture, "move_0.0.80.60.0.0.80.60.-99999.-99999.99999.99999.99999.99999.-99999.0")
    assert far.shape == picture.shape


def test_a_piece_is_laid_onto_another_photograph_which_is_the_picture_from_then_on(picture):
    other = np.random.default_rng(2).integers(0, 256, (50, 90, 3), np.uint8)

    def laid(strokes):
        kept = other.copy()
        found = np.asarray(vitviz.edit_image(picture, strokes, other))
        assert (other == kept).all()
        return found

    piece = "onto.other_8.16.16.12.24.8"
    expected = other.copy()
    expected[24:36, 32:48] = picture[16:28, 8:24]
    assert (laid(piece) == expected).all()
    bright = np.asarray(vitviz.edit_image(picture, "brightness_40"))
    expected[24:36, 32:48] = bright[16:28, 8:24]
    assert (laid(f"brightness_40 {piece}") == expected).all(), "what was painted before comes along"
    erased, far = laid(f"{piece} erase_21.40.30"), np.hypot(*np.mgrid[-30:20, -40:50])
    assert (erased[far < 9] == other[far < 9]).all(), "the eraser brings the other one back"
    assert (laid(f"{piece} brush.mean_9.5.5")[5, 5] == mean_of(other)).all()
    assert (laid("onto.other_500.0.8.8.0.0") == other).all()
    coffee = np.asarray(vitviz.sample_image("coffee"))
    assert (laid("onto.coffee_0.0.8.8.500.300")[300:308, 500:508] == picture[:8, :8]).all()
    assert (laid("onto.coffee_0.0.8.8.500.300")[:300] == coffee[:300]).all()
    for strokes, given, reason in (
        ("onto.nobody_0.0.8.8.0.0", other, "There is no sample 'nobody': expected one of chelsea"),
        (piece, None, "no other photograph; expected one"),
        (piece, b"no picture", "not a picture"),
        (f"{piece}.4096.4097", other, "up to 4,096"),
    ):
        with pytest.raises(VitvizError, match=reason):
            vitviz.edit_image(picture, strokes, given)


def test_a_shift_leaves_the_mean_colour(picture):
    found = made(picture, "shift_7.-3")
    assert (found[: HEIGHT - 3, 7:] == picture[3:, : WIDTH - 7]).all()
    assert (found[:, :7] == mean_of(picture)).all() and (found[-3:] == mean_of(picture)).all()


def test_brightness_and_contrast(picture):
    values = picture.astype(float)
    for number in (-100, -37, 5, 100):
        bright = np.clip(np.floor(values + 2.55 * number + 0.5), 0, 255)
        assert (made(picture, f"brightness_{number}") == bright).all()
        contrast = np.clip(np.floor(128 + (values - 128) * (1 + number / 100) + 0.5), 0, 255)
        assert np.abs(made(picture, f"contrast_{number}") - contrast).max() == 0


def test_hue_turns_in_hsv_and_leaves_grey(picture):
    found = made(picture, "hue_90")
    for y, x in [(3, 4), (30, 40), (50, 70), (11, 60)]:
        hue, saturation, value = colorsys.rgb_to_hsv(*picture[y, x] / 255)
        expected = np.array(colorsys.hsv_to_rgb((hue + 0.25) % 1, saturation, value)) * 255
        assert np.abs(expected - found[y, x]).max() < 9, "Pillow’s H has 256 steps, of six levels each"
    grey = np.repeat(picture[..., :1], 3, -1)
    assert (made(grey, "hue_90") == grey).all()


def test_rotation_is_against_the_clock_about_the_middle(picture):
    square = picture[:60, :60]
    assert (made(square, "rotate_90") == np.rot90(square)).all()
    found = made(square, "rotate_45")
    assert (found[0, 0] == mean_of(square)).all(), "where nothing is"
    smooth = np.repeat(np.add.outer(np.arange(60), 2 * np.arange(60))[..., None], 3, -1).astype(np.uint8)
    turned, angle = made(smooth, "rotate_30"), np.deg2rad(30)
    y, x = np.mgrid[20:40, 20:40] - 29.5
    source_x, source_y = x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)
    expected = (source_y + 29.5) + 2 * (source_x + 29.5)
    assert np.abs(turned[20:40, 20:40, 0] - expected).max() <= 1


def test_one_stroke_after_the_other(picture):
    one = made(made(picture, "copy_0.0.20.20.30.30"), "brightness_20")
    assert (made(picture, "copy_0.0.20.20.30.30 brightness_20") == one).all()
    assert (made(picture, "") == picture).all()


def test_far_away_paths_and_pieces_leave_all_as_it_was(picture):
    far = " ".join(["brush.mean_3" + ".99999.99999" * 900, "erase_9999.-99999.-99999"])
    assert (made(picture, far)[:40] == picture[:40]).all()


def test_what_goes_over_too_many_pixels_is_refused(picture, monkeypatch):
    monkeypatch.setattr(module, "WORK", 3 * HEIGHT * WIDTH)
    assert made(picture, "hue_1 hue_1 hue_1").shape == picture.shape
    with pytest.raises(ImageError, match=r"Given .* 80 x 60; take some back"):
        vitviz.edit_image(picture, "hue_1 hue_1 hue_1 shift_1.1")
    with pytest.raises(ImageError, match="take some back"):
        vitviz.edit_image(picture, "copy_0.0.1.1.0.0.4096.4096")
    with pytest.raises(VitvizError, match="expected one of"):
        vitviz.edit_image(picture, "smudge_1")
    with pytest.raises(ImageError, match="take some back"):
        vitviz.edit_image(picture, "onto.coffee_0.0.1.1.0.0")


def test_a_trace_says_how_its_picture_was_retouched_and_no_file_can_say_so(picture, tmp_path):
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    image = vitviz.edit_image(picture, "hue_90")
    trace = inspector.trace(image)
    assert trace.view.retouched == ImageEdits.parse("hue_90") and "retouched: hue_90" in trace._repr_html_()
    assert "retouched: hue_90" in vitviz.figure("rollout", inspector, trace).caption
    cell = vitviz.show("rollout", inspector, trace, image=image, live=[]).page
    assert '"The photograph was retouched: {what}.", "values": {"what": {"text": "hue_90"' in cell
    said = PngImagePlugin.PngInfo()
    said.add_text("retouched", "hue_90")
    Image.fromarray(picture).save(tmp_path / "one.png", pnginfo=said)
    plain = inspector.trace(tmp_path / "one.png")
    assert not plain.view.retouched and "retouched" not in vitviz.figure("rollout", inspector, plain).caption


def test_a_piece_moved_by_whole_patches_takes_its_embeddings_along():
    """On a picture at the input's own size, before positions: at the goal those of the source to the bit, and
    at the source those of a picture of the fill's colour alone.
    """
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    grid = inspector.grid()
    (height, width), (tall, wide) = grid.pixels, grid.patch
    picture = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    image = vitviz.edit_image(picture, f"move_{2 * wide}.{tall}.{3 * wide}.{2 * tall}.{5 * wide}.{4 * tall}")
    before, after = inspector.trace(picture), inspector.trace(image)
    assert (after.view.picture == np.asarray(image)).all(), "neither scaled nor cut"
    plain = inspector.trace(np.broadcast_to(mean_of(picture), picture.shape).copy()).patch_embedding
    one, other = (trace.patch_embedding.unflatten(0, (grid.rows, grid.cols)) for trace in (before, after))
    assert (other[5:7, 7:10] == one[1:3, 2:5]).all()
    assert (other[1:3, 2:5] == plain[0]).all()
    # mirrored, it is the embedding of the patches each of which was mirrored, in the other order
    turned = f"copy_{2 * wide}.{tall}.{3 * wide}.{2 * tall}.{5 * wide}.{4 * tall}.{-3 * wide}.{2 * tall}"
    mirrored = inspector.trace(vitviz.edit_image(picture, turned)).patch_embedding
    back = inspector.trace(np.ascontiguousarray(picture[:, ::-1])).patch_embedding
    across, back = grid.cols - 1, back.unflatten(0, (grid.rows, grid.cols))
    mirrored = mirrored.unflatten(0, (grid.rows, grid.cols))
    assert (mirrored[5:7, 7:10] == back[1:3, across - 4 : across - 1]).all()
    assert (mirrored != one).any(-1).sum() == 6
    changed = (one != other).any(-1)
    assert changed.sum() == 12 and not (one[1:3, 2:5] == other[1:3, 2:5]).all(-1).any()


def test_a_piece_laid_onto_another_picture_by_whole_patches_takes_its_embeddings_along():
    """At the goal those of where it was cut out, to the bit; all others are the other picture's."""
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    grid = inspector.grid()
    (height, width), (tall, wide) = grid.pixels, grid.patch
    picture, other = np.random.default_rng(3).integers(0, 256, (2, height, width, 3), np.uint8)
    at = f"{2 * wide}.{tall}.{3 * wide}.{2 * tall}.{5 * wide}.{4 * tall}"
    image = vitviz.edit_image(picture, f"onto.other_{at}", other)
    source, ground, found = (
        inspector.trace(one).patch_embedding.unflatten(0, (grid.rows, grid.cols))
        for one in (picture, other, image)
    )
    expected = ground.clone()
    expected[5:7, 7:10] = source[1:3, 2:5]
    assert (found == expected).all() and (expected != ground).any(-1).sum() == 6


LONG = [
    "brush.noise7_31.40.30.9.-8.30.5",
    "brush.blur_24.40.30.9.9",
    "brush.mean_15.1.1.60.50 erase_21.40.30",
    "hue_77 contrast_-30 brightness_9 rotate_33 shift_-7.5",
    "move_4.4.50.40.9.9.-70.33.4.4.45.3.-9.30 copy_0.0.80.60.20.11",
]


@pytest.mark.parametrize("text", LONG)
def test_strokes_are_the_same_whole_or_in_bands(picture, text, monkeypatch):
    whole = made(picture, text)
    monkeypatch.setattr(module, "BAND", 700)
    assert (made(picture, text) == whole).all() and (whole != picture).any()


def test_a_long_stroke_is_painted_in_parts_between_which_it_can_be_stopped(picture, monkeypatch):
    monkeypatch.setattr(module, "BAND", HEIGHT * WIDTH)  # as for a picture of two million pixels
    text, asked = "brush.mean_60.0.0" + ".1.0.-1.1" * 500, []

    def gone():
        asked.append(1)
        return len(asked) > 200

    with cancellation.when(gone), pytest.raises(Stopped):
        vitviz.edit_image(picture, text)
    assert len(asked) == 201, "of a thousand parts"


def test_a_stroke_that_covers_all_is_painted_no_further(picture, monkeypatch):
    monkeypatch.setattr(module, "BAND", 1)
    parts, real = [], module.cv2.polylines
    monkeypatch.setattr(module.cv2, "polylines", lambda *given: (parts.append(1), real(*given)))
    assert (made(picture, "brush.ff0000_999.40.30" + ".1.0.-1.0" * 500)[..., 0] == 255).all()
    assert len(parts) == 2, "one for each time"


def test_how_often_a_path_goes_over_the_picture_counts(picture, monkeypatch):
    monkeypatch.setattr(module, "WORK", 20 * HEIGHT * WIDTH)
    assert made(picture, "brush.mean_999.40.30" + ".1.0" * 300).shape == picture.shape
    with pytest.raises(ImageError, match="take some back"):
        vitviz.edit_image(picture, "brush.mean_999.40.30" + ".1.0" * 400)
