"""Image edits against plain NumPy, and the effect on a model's input if a piece moves by whole patches."""

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
def noise_image():
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def edited(noise_image, strokes) -> np.ndarray:
    before = noise_image.copy()
    result = np.asarray(vitviz.edit_image(noise_image, strokes))
    assert (noise_image == before).all(), "the input image was changed"
    assert (result == np.asarray(vitviz.edit_image(Image.fromarray(noise_image), strokes))).all(), (
        "results of array and PIL image differ"
    )
    return result


def distances(*path: tuple[int, int]) -> np.ndarray:
    """Return each pixel's distance from a path of line segments."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    here, nearest = np.stack([x, y], -1).astype(float), np.full((HEIGHT, WIDTH), np.inf)
    for start, end in zip(path, path[1:] or path, strict=False):
        a, b = np.array(start, float), np.array(end, float)
        along = (b - a) @ (b - a)
        fraction = np.clip((here - a) @ (b - a) / along, 0, 1)[..., None] if along else 0.0
        nearest = np.minimum(nearest, np.linalg.norm(here - a - fraction * (b - a), axis=-1))
    return nearest


def mean_of(noise_image) -> np.ndarray:
    return np.floor(noise_image.reshape(-1, 3).mean(0) + 0.5).astype(np.uint8)


PATHS = [("20.15", [(20, 15)]), ("20.15.30.20", [(20, 15), (50, 35)]),
         ("-5.10.20.0.40.45", [(-5, 10), (15, 10), (55, 55)])]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), PATHS)
@pytest.mark.parametrize("ink", ["ff8800", "mean"])
def test_brush_colours_pixels_within_half_its_width(noise_image, text, path, ink):
    result, far = edited(noise_image, f"brush.{ink}_9.{text}"), distances(*path)
    colour = (255, 136, 0) if ink == "ff8800" else mean_of(noise_image)
    assert (result[far <= 3.5] == colour).all()
    assert (result[far > 6] == noise_image[far > 6]).all()
    assert (far <= 3.5).sum() > 30


def test_mean_ink_uses_unedited_image(noise_image):
    result = edited(noise_image, "brightness_60 brush.mean_9.20.15")
    assert (result[15, 20] == mean_of(noise_image)).all()


def test_noise_ink_depends_on_seed_only(noise_image):
    first, again, other = (edited(noise_image, f"brush.noise{seed}_31.40.30") for seed in (7, 7, 8))
    under = distances((40, 30)) <= 14
    assert (first == again).all() and (first[under] != other[under]).mean() > 0.9
    assert abs(first[under].mean() - 127.5) < 10 and first[under].std() > 60
    assert (first[~(distances((40, 30)) <= 17)] == noise_image[~(distances((40, 30)) <= 17)]).all()


def test_blur_ink_is_gaussian_with_sigma_of_quarter_width(noise_image):
    """The reference is plain NumPy. Pillow approximates a Gaussian by three boxes, and rounds."""
    result, wide = edited(noise_image, "brush.blur_16.40.30"), 16
    offsets = np.arange(-wide, wide + 1)
    kernel = np.exp(-(offsets**2) / (2 * (wide / 4) ** 2))
    kernel /= kernel.sum()
    kernel = np.outer(kernel, kernel)
    under = np.argwhere(distances((40, 30)) <= 7)
    for y, x in under[::5]:
        around = noise_image[y - wide : y + wide + 1, x - wide : x + wide + 1].astype(float)
        assert np.abs((around * kernel[..., None]).sum((0, 1)) - result[y, x]).max() < 3


def test_blur_does_not_depend_on_rest_of_path(noise_image):
    short, extended = (edited(noise_image, f"brush.blur_8.40.30{more}") for more in ("", ".-40.-28"))
    under = distances((40, 30)) <= 3
    assert (short[under] == extended[under]).all()


def test_eraser_restores_unedited_image(noise_image):
    result = edited(noise_image, "brush.000000_41.40.30 brightness_50 rotate_30 erase_21.40.30")
    far = distances((40, 30))
    assert (result[far <= 9] == noise_image[far <= 9]).all()
    assert (result[far > 12] != noise_image[far > 12]).mean() > 0.9


@pytest.mark.parametrize("tool", ["move", "copy"])
@pytest.mark.parametrize(
    ("left", "top", "across", "down"), [(8, 16, 24, 8), (60, 40, -30, -20), (0, 0, -8, 4)]
)
def test_rectangle_is_moved_by_whole_pixels(noise_image, tool, left, top, across, down):
    result, expected = edited(noise_image, f"{tool}_{left}.{top}.16.12.{across}.{down}"), noise_image.copy()
    if tool == "move":
        expected[top : top + 12, left : left + 16] = mean_of(noise_image)
    for y in range(top, min(top + 12, HEIGHT)):
        for x in range(left, min(left + 16, WIDTH)):
            if 0 <= y + down < HEIGHT and 0 <= x + across < WIDTH:
                expected[y + down, x + across] = noise_image[y, x]
    assert (result == expected).all()


def test_rectangle_is_clipped_to_image(noise_image):
    assert (edited(noise_image, "copy_-4.-4.12.12.20.20") == edited(noise_image, "copy_0.0.8.8.20.20")).all()
    assert (edited(noise_image, "move_500.500.8.8.-480.-480") == noise_image).all()


@pytest.mark.parametrize("tool", ["move", "copy"])
@pytest.mark.parametrize("sides", [(-1, 1), (1, -1), (-1, -1)])
def test_piece_is_mirrored_exactly(noise_image, tool, sides):
    result, expected = (
        edited(noise_image, f"{tool}_8.16.16.12.24.8.{16 * sides[0]}.{12 * sides[1]}"),
        noise_image.copy(),
    )
    if tool == "move":
        expected[16:28, 8:24] = mean_of(noise_image)
    expected[24:36, 32:48] = noise_image[16:28, 8:24][:: sides[1], :: sides[0]]
    assert (result == expected).all()


def test_piece_is_scaled_from_upper_left_corner(noise_image):
    """A piece of one colour is exact. A linear slope equals bilinear interpolation except at the edges."""
    plain = np.full_like(noise_image, 40)
    plain[10:20, 10:30] = (250, 120, 7)
    expected = plain.copy()
    expected[30:35, 40:50] = (250, 120, 7)
    assert (edited(plain, "copy_10.10.20.10.30.20.10.5") == expected).all()
    slope = np.repeat(np.add.outer(np.arange(60), 2 * np.arange(80))[..., None], 3, -1).astype(np.uint8)
    larger = edited(slope, "copy_0.0.20.10.5.20.-60.30")[20:50, 5:65, 0]
    y, x = (np.arange(30) + 0.5) / 3 - 0.5, (np.arange(60) + 0.5) / 3 - 0.5
    interpolated = np.add.outer(y, 2 * x)[:, ::-1]
    assert np.abs(larger - interpolated)[3:-3, 3:-3].max() <= 1


def test_piece_with_outline_takes_pixels_inside_only(noise_image):
    """Inside is tested by the crossing number of each pixel's centre. Pixels on the outline may be either."""
    corners = [(20, 10), (40, 14), (34, 40), (22, 30)]
    x, y = (axis[..., None] for axis in np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT)))
    inside = np.zeros((HEIGHT, WIDTH), bool)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        inside ^= ((ay > y) != (by > y))[..., 0] & (x < ax + (y - ay) * (bx - ax) / (by - ay))[..., 0]
    sure = distances(*corners, corners[0]) > 1
    assert inside[sure].sum() > 200
    outline = "20.10.20.4.-6.26.-12.-10"
    result = edited(noise_image, f"move_20.10.21.31.30.15.21.31.{outline}")
    was, there = np.argwhere(sure & inside), np.roll(sure & inside, (15, 30), (0, 1))
    assert (result[there] == noise_image[tuple(was.T)]).all()
    left = sure & inside & ~np.roll(inside | ~sure, (15, 30), (0, 1))
    assert (result[left] == mean_of(noise_image)).all() and left.sum() > 100
    same = sure & ~inside & ~np.roll(inside | ~sure, (15, 30), (0, 1))
    assert (result[same] == noise_image[same]).all()
    flipped = edited(noise_image, f"copy_20.10.21.31.30.15.-21.31.{outline}")
    box = np.s_[10:41, 20:41]
    expected = np.where((sure & inside)[box][:, ::-1, None], noise_image[box][:, ::-1], flipped[25:56, 50:71])
    assert (flipped[25:56, 50:71] == expected).all() and (
        flipped[25:56, 50:71] != noise_image[25:56, 50:71]
    ).any()
    far = edited(noise_image, "move_0.0.80.60.0.0.80.60.-99999.-99999.99999.99999.99999.99999.-99999.0")
    assert far.shape == noise_image.shape


def test_piece_is_pasted_onto_another_image(noise_image):
    other = np.random.default_rng(2).integers(0, 256, (50, 90, 3), np.uint8)

    def paste(strokes):
        kept = other.copy()
        result = np.asarray(vitviz.edit_image(noise_image, strokes, other))
        assert (other == kept).all()
        return result

    piece = "onto.other_8.16.16.12.24.8"
    expected = other.copy()
    expected[24:36, 32:48] = noise_image[16:28, 8:24]
    assert (paste(piece) == expected).all()
    bright = np.asarray(vitviz.edit_image(noise_image, "brightness_40"))
    expected[24:36, 32:48] = bright[16:28, 8:24]
    assert (paste(f"brightness_40 {piece}") == expected).all(), "earlier strokes are lost"
    erased, far = paste(f"{piece} erase_21.40.30"), np.hypot(*np.mgrid[-30:20, -40:50])
    assert (erased[far < 9] == other[far < 9]).all(), "the eraser does not restore the other image"
    assert (paste(f"{piece} brush.mean_9.5.5")[5, 5] == mean_of(other)).all()
    assert (paste("onto.other_500.0.8.8.0.0") == other).all()
    coffee = np.asarray(vitviz.sample_image("coffee"))
    assert (paste("onto.coffee_0.0.8.8.500.300")[300:308, 500:508] == noise_image[:8, :8]).all()
    assert (paste("onto.coffee_0.0.8.8.500.300")[:300] == coffee[:300]).all()
    for strokes, given, reason in (
        ("onto.nobody_0.0.8.8.0.0", other, "There is no sample 'nobody': expected one of chelsea"),
        (piece, None, "no other image was given"),
        (piece, b"no picture", "not an image"),
        (f"{piece}.4096.4097", other, "up to 4,096"),
    ):
        with pytest.raises(VitvizError, match=reason):
            vitviz.edit_image(noise_image, strokes, given)


def test_shift_fills_with_mean_colour(noise_image):
    result = edited(noise_image, "shift_7.-3")
    assert (result[: HEIGHT - 3, 7:] == noise_image[3:, : WIDTH - 7]).all()
    assert (result[:, :7] == mean_of(noise_image)).all() and (result[-3:] == mean_of(noise_image)).all()


def test_brightness_and_contrast_equal_formula(noise_image):
    values = noise_image.astype(float)
    for number in (-100, -37, 5, 100):
        bright = np.clip(np.floor(values + 2.55 * number + 0.5), 0, 255)
        assert (edited(noise_image, f"brightness_{number}") == bright).all()
        contrast = np.clip(np.floor(128 + (values - 128) * (1 + number / 100) + 0.5), 0, 255)
        assert np.abs(edited(noise_image, f"contrast_{number}") - contrast).max() == 0


def test_hue_rotates_in_hsv_and_keeps_grey(noise_image):
    result = edited(noise_image, "hue_90")
    for y, x in [(3, 4), (30, 40), (50, 70), (11, 60)]:
        hue, saturation, value = colorsys.rgb_to_hsv(*noise_image[y, x] / 255)
        expected = np.array(colorsys.hsv_to_rgb((hue + 0.25) % 1, saturation, value)) * 255
        assert np.abs(expected - result[y, x]).max() < 9, "Pillow’s H has 256 steps, of six levels each"
    grey = np.repeat(noise_image[..., :1], 3, -1)
    assert (edited(grey, "hue_90") == grey).all()


def test_rotation_is_counterclockwise_about_centre(noise_image):
    square = noise_image[:60, :60]
    assert (edited(square, "rotate_90") == np.rot90(square)).all()
    result = edited(square, "rotate_45")
    assert (result[0, 0] == mean_of(square)).all(), "corners have the mean colour"
    smooth = np.repeat(np.add.outer(np.arange(60), 2 * np.arange(60))[..., None], 3, -1).astype(np.uint8)
    turned, angle = edited(smooth, "rotate_30"), np.deg2rad(30)
    y, x = np.mgrid[20:40, 20:40] - 29.5
    source_x, source_y = x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)
    expected = (source_y + 29.5) + 2 * (source_x + 29.5)
    assert np.abs(turned[20:40, 20:40, 0] - expected).max() <= 1


def test_strokes_are_applied_in_order(noise_image):
    expected = edited(edited(noise_image, "copy_0.0.20.20.30.30"), "brightness_20")
    assert (edited(noise_image, "copy_0.0.20.20.30.30 brightness_20") == expected).all()
    assert (edited(noise_image, "") == noise_image).all()


def test_strokes_outside_image_change_nothing(noise_image):
    far = " ".join(["brush.mean_3" + ".99999.99999" * 900, "erase_9999.-99999.-99999"])
    assert (edited(noise_image, far)[:40] == noise_image[:40]).all()


def test_too_many_pixels_of_work_are_rejected(noise_image, monkeypatch):
    monkeypatch.setattr(module, "WORK", 3 * HEIGHT * WIDTH)
    assert edited(noise_image, "hue_1 hue_1 hue_1").shape == noise_image.shape
    with pytest.raises(ImageError, match=r"The strokes cover .* 80 x 60. Undo some"):
        vitviz.edit_image(noise_image, "hue_1 hue_1 hue_1 shift_1.1")
    with pytest.raises(ImageError, match="Undo some"):
        vitviz.edit_image(noise_image, "copy_0.0.1.1.0.0.4096.4096")
    with pytest.raises(VitvizError, match="expected one of"):
        vitviz.edit_image(noise_image, "smudge_1")
    with pytest.raises(ImageError, match="Undo some"):
        vitviz.edit_image(noise_image, "onto.coffee_0.0.1.1.0.0")


def test_view_reports_edits_only_of_edited_images(noise_image, tmp_path):
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    image = vitviz.edit_image(noise_image, "hue_90")
    trace = inspector.trace(image)
    assert trace.view.retouched == ImageEdits.parse("hue_90") and "edited: hue_90" in trace._repr_html_()
    assert "edited: hue_90" in vitviz.figure("rollout", inspector, trace).caption
    cell = vitviz.show("rollout", inspector, trace, image=image, live=[]).page
    assert '"The image was edited: {what}.", "values": {"what": {"text": "hue_90"' in cell
    metadata = PngImagePlugin.PngInfo()
    metadata.add_text("retouched", "hue_90")
    Image.fromarray(noise_image).save(tmp_path / "one.png", pnginfo=metadata)
    plain = inspector.trace(tmp_path / "one.png")
    assert not plain.view.retouched and "edited" not in vitviz.figure("rollout", inspector, plain).caption


def test_moving_whole_patches_moves_patch_embeddings_exactly():
    """On an image of the native size, before positions: the target has the embeddings of the source bit by
    bit, and the source has the embeddings of the fill colour.
    """
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    grid = inspector.grid()
    (height, width), (tall, wide) = grid.pixels, grid.patch
    noise_image = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    image = vitviz.edit_image(
        noise_image, f"move_{2 * wide}.{tall}.{3 * wide}.{2 * tall}.{5 * wide}.{4 * tall}"
    )
    before, after = inspector.trace(noise_image), inspector.trace(image)
    assert (after.view.picture == np.asarray(image)).all(), "the image was scaled or cropped"
    plain = inspector.trace(np.broadcast_to(mean_of(noise_image), noise_image.shape).copy()).patch_embedding
    original, edited_embedding = (
        trace.patch_embedding.unflatten(0, (grid.rows, grid.cols)) for trace in (before, after)
    )
    assert (edited_embedding[5:7, 7:10] == original[1:3, 2:5]).all()
    assert (edited_embedding[1:3, 2:5] == plain[0]).all()
    # a mirrored piece has the embeddings of the mirrored patches in reverse order
    turned = f"copy_{2 * wide}.{tall}.{3 * wide}.{2 * tall}.{5 * wide}.{4 * tall}.{-3 * wide}.{2 * tall}"
    mirrored = inspector.trace(vitviz.edit_image(noise_image, turned)).patch_embedding
    back = inspector.trace(np.ascontiguousarray(noise_image[:, ::-1])).patch_embedding
    across, back = grid.cols - 1, back.unflatten(0, (grid.rows, grid.cols))
    mirrored = mirrored.unflatten(0, (grid.rows, grid.cols))
    assert (mirrored[5:7, 7:10] == back[1:3, across - 4 : across - 1]).all()
    assert (mirrored != original).any(-1).sum() == 6
    changed = (original != edited_embedding).any(-1)
    assert changed.sum() == 12 and not (original[1:3, 2:5] == edited_embedding[1:3, 2:5]).all(-1).any()


def test_pasting_whole_patches_copies_patch_embeddings_exactly():
    """The target has the embeddings of the source bit by bit. All other patches keep those of the other
    image.
    """
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    grid = inspector.grid()
    (height, width), (tall, wide) = grid.pixels, grid.patch
    noise_image, other = np.random.default_rng(3).integers(0, 256, (2, height, width, 3), np.uint8)
    at = f"{2 * wide}.{tall}.{3 * wide}.{2 * tall}.{5 * wide}.{4 * tall}"
    image = vitviz.edit_image(noise_image, f"onto.other_{at}", other)
    source, ground, result = (
        inspector.trace(source_image).patch_embedding.unflatten(0, (grid.rows, grid.cols))
        for source_image in (noise_image, other, image)
    )
    expected = ground.clone()
    expected[5:7, 7:10] = source[1:3, 2:5]
    assert (result == expected).all() and (expected != ground).any(-1).sum() == 6


LONG = [
    "brush.noise7_31.40.30.9.-8.30.5",
    "brush.blur_24.40.30.9.9",
    "brush.mean_15.1.1.60.50 erase_21.40.30",
    "hue_77 contrast_-30 brightness_9 rotate_33 shift_-7.5",
    "move_4.4.50.40.9.9.-70.33.4.4.45.3.-9.30 copy_0.0.80.60.20.11",
]


@pytest.mark.parametrize("text", LONG)
def test_strokes_in_bands_equal_strokes_at_once(noise_image, text, monkeypatch):
    whole = edited(noise_image, text)
    monkeypatch.setattr(module, "BAND", 700)
    assert (edited(noise_image, text) == whole).all() and (whole != noise_image).any()


def test_long_stroke_can_be_cancelled_between_segments(noise_image, monkeypatch):
    monkeypatch.setattr(module, "BAND", HEIGHT * WIDTH)  # as for an image of two million pixels
    text, checks = "brush.mean_60.0.0" + ".1.0.-1.1" * 500, []

    def gone():
        checks.append(1)
        return len(checks) > 200

    with cancellation.when(gone), pytest.raises(Stopped):
        vitviz.edit_image(noise_image, text)
    assert len(checks) == 201, "the path has a thousand segments"


def test_stroke_stops_once_image_is_covered(noise_image, monkeypatch):
    monkeypatch.setattr(module, "BAND", 1)
    segments, draw_polylines = [], module.cv2.polylines
    monkeypatch.setattr(module.cv2, "polylines", lambda *args: (segments.append(1), draw_polylines(*args)))
    assert (edited(noise_image, "brush.ff0000_999.40.30" + ".1.0.-1.0" * 500)[..., 0] == 255).all()
    assert len(segments) == 2, "one segment for each of two edits"


def test_work_limit_counts_passes_over_image(noise_image, monkeypatch):
    monkeypatch.setattr(module, "WORK", 20 * HEIGHT * WIDTH)
    assert edited(noise_image, "brush.mean_999.40.30" + ".1.0" * 300).shape == noise_image.shape
    with pytest.raises(ImageError, match="Undo some"):
        vitviz.edit_image(noise_image, "brush.mean_999.40.30" + ".1.0" * 400)
