"""Videos decoded again: number, order, duration and content of the frames."""

import io
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest
from PIL import Image

import vitviz
from tests.export.helpers import read_gif, read_mp4
from tests.export.reading import cell_centres, image_of, texts, values_of_colours
from tests.tiers import sweep
from vitviz.charts.chart import Chart
from vitviz.charts.mpl.page import FrameRenderer
from vitviz.charts.mpl.spec import FigureSpec, Legend, Map, Scale, TextTable
from vitviz.errors import Stopped, VitvizError
from vitviz.export.animation import HELD
from vitviz.views import VIEWS
from vitviz.views.printing import is_printable

pytestmark = pytest.mark.usefixtures("short_training")
WIDTH, SECONDS = 480, 0.3


@pytest.fixture(scope="module")
def cached_videos(inspector, photo):
    """Return a function that makes videos by view and dimension and caches them."""
    kept = {}

    def film(view: str, over: str, **settings):
        name = (view, over, *settings.items())
        if name not in kept:
            kept[name] = vitviz.animation(view, inspector, photo, over=over, **settings)
        return kept[name]

    return film


def mean_difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean absolute difference of two images, of 255."""
    return float(np.abs(one.astype(float) - other).mean())


def drawn_frames(film) -> list[np.ndarray]:
    """Return every frame as drawn, without encoding."""
    reel = film._reel(WIDTH)  # lays out all frames once; `film.picture` does so for each frame
    return [reel[number] for number in range(len(reel))]


def nearest_frame(seen: np.ndarray, drawn_frames: list[np.ndarray]) -> int:
    """Return the number of the video frame that an image shows."""
    return int(np.argmin([mean_difference(seen, one) for one in drawn_frames]))


@pytest.mark.long
def test_mp4_has_every_frame_in_order_and_duration(cached_videos, tmp_path):
    film = cached_videos("rollout", "layers")
    seen, rate = read_mp4(film.mp4(WIDTH, SECONDS), path := tmp_path / "film.mp4")
    each, expected = round(SECONDS * rate), drawn_frames(film)
    assert len(film.frames) == 8 and len(seen) == each * (7 + HELD)
    for number in range(8):
        assert nearest_frame(seen[number * each + each // 2], expected) == number
        assert mean_difference(seen[number * each], expected[number]) < 2
    other = cv2.VideoCapture(str(path))  # by another library
    assert other.get(cv2.CAP_PROP_FRAME_COUNT) == len(seen) and other.get(cv2.CAP_PROP_FPS) == rate
    assert other.get(cv2.CAP_PROP_FRAME_WIDTH) == WIDTH and other.get(cv2.CAP_PROP_FRAME_HEIGHT) % 2 == 0


@pytest.mark.long
def test_gif_has_every_frame_in_order_and_duration(cached_videos):
    film = cached_videos("evidence", "layers")
    data = film.gif(WIDTH, SECONDS)
    (seen, times), expected = read_gif(data), drawn_frames(film)
    assert times == [300] * 7 + [900] and len(seen) == len(film.frames) == 8
    assert [nearest_frame(one, expected) for one in seen] == list(range(8))
    assert max(map(mean_difference, seen, expected)) < 4  # of 256 colours
    assert Image.open(io.BytesIO(data)).info["loop"] == 0


@pytest.mark.long
def test_training_frames_show_each_step_on_one_scale(cached_videos, photo):
    film = cached_videos("rollout", "training", smooth="off")
    maps = [
        vitviz.rollout(vitviz.load(moment.name, device="cpu").trace(photo)).numpy()
        for moment in vitviz.training_snapshots("vitviz-tiny")
    ]
    low, high = min(map(np.min, maps)), max(map(np.max, maps))
    for frame, expected in zip(film.frames, maps, strict=True):
        svg = frame.svg()
        found = values_of_colours(cell_centres(image_of(svg, "panel-1-values"), *expected.shape), low, high)
        np.testing.assert_allclose(found, expected, atol=(high - low) / 255)
        assert {f"{end:.3g}" for end in (low, high)} <= set(texts(svg))
    assert "Training step 3,000" in film.labels[2] and "accuracy" in film.labels[2]


@pytest.mark.long
def test_rollout_frames_accumulate_layers(cached_videos, trace):
    film = cached_videos("rollout", "layers", smooth="off", fusion="max")
    maps = [vitviz.rollout(trace, fusion="max", layers=(0, last)).numpy() for last in range(8)]
    low, high = min(map(np.min, maps)), max(map(np.max, maps))
    for frame, expected in zip(film.frames, maps, strict=True):
        found = values_of_colours(
            cell_centres(image_of(frame.svg(), "panel-1-values"), *expected.shape), low, high
        )
        np.testing.assert_allclose(found, expected, atol=(high - low) / 255)
    assert [str(label) for label in film.labels][1] == "Layers 1 to 2"


def test_attribution_frames_accumulate_heads_to_full_map(cached_videos, inspector, trace):
    film = cached_videos("evidence", "layers")
    account = vitviz.logit_attribution(inspector, trace, target=int(trace.logits.argmax()))
    so_far = np.zeros(account.patches.shape)
    for layer, frame in enumerate(film.frames):
        heads = account.sources[layer].double().sum(dim=0)[trace.grid.prefix :].numpy()
        so_far += heads.reshape(so_far.shape)
        np.testing.assert_allclose(frame.spec.rows[0][0].values, so_far, atol=1e-5)
    np.testing.assert_allclose(so_far, account.patches.numpy(), atol=1e-4)
    most = max(np.abs(frame.spec.rows[0][0].values).max() for frame in film.frames)
    assert {(one.spec.rows[0][0].scale.low, one.spec.rows[0][0].scale.high) for one in film.frames} == {
        (-most, most)
    }


@pytest.mark.long
@sweep("view", [view.slug for view in VIEWS if is_printable(view)], quick=["rollout", "distance"])
def test_scales_axes_and_layout_are_constant_across_frames(
    inspector, photo, view, fast_faithfulness, fast_perturbation
):
    """Only numbers, notes and labels may differ between frames."""
    film = vitviz.animation(view, inspector, photo, detail=True)
    known = []
    for frame in film.frames:
        panels = [panel for row in frame.spec.rows for panel in row]
        known.append(
            [
                (panel.x, panel.y)
                if isinstance(panel, Chart)
                else panel.scale and replace(panel.scale, label="")
                for panel in panels
                if not isinstance(panel, Legend | TextTable)
            ]
        )
    assert all(one == known[0] for one in known)
    reel = film._reel(WIDTH)
    frames = [reel[number] for number in (0, len(reel) - 1)]
    assert len({frame.shape for frame in frames}) == 1 and all(side % 2 == 0 for side in frames[0].shape[:2])
    sides = ("left", "right", "top", "bottom", "width", "height")
    places = [
        [[getattr(room, side) for side in sides] for row in one.rows for room in row] for one in reel._layouts
    ]
    assert all(np.allclose(one, places[0]) for one in places)


def test_longer_title_or_note_keeps_layout():
    """The colours of the map and its scale lie in equal pixels, for any text above and below."""
    scale = Scale("viridis", 0.0, 1.0, "Share")
    specs = [
        FigureSpec(((Map(title, values=np.eye(3), scale=scale),),), notes=(note,), width=60.0)
        for title, note in (("short", "short"), ("much longer " * 20, "longer still " * 30))
    ]
    frames = list(map(FrameRenderer(specs, ["1", "2"], WIDTH).__getitem__, range(2)))
    coloured = [np.ptp(frame.astype(int), axis=2) > 40 for frame in frames]
    assert coloured[0].any() and (coloured[0] == coloured[1]).all()
    assert mean_difference(*frames) > 1


def test_frame_labels_differ_and_caption_is_translated(inspector, photo):
    cached_videos = {
        tag: vitviz.animation("rollout", inspector, photo, over="layers", language=tag)
        for tag in ("en", "ko")
    }
    assert "A video of 8 frames" in cached_videos["en"].caption and "8프레임" in cached_videos["ko"].caption
    first, second = (cached_videos["en"].picture(number, WIDTH) for number in (0, 1))
    band = first.shape[1] // 86 * 6  # 6 mm: the label alone
    assert mean_difference(first[:band], second[:band]) > 0.1
    plain = replace(cached_videos["en"], labels=cached_videos["en"].labels[:1] * 8)
    assert mean_difference(plain.picture(0, WIDTH)[:band], plain.picture(1, WIDTH)[:band]) == 0


def test_inapplicable_animations_raise(inspector, photo, cached_videos, tmp_path):
    from tests.engine.small_models import save_model, small_vit

    alone = vitviz.load(save_model(small_vit(), tmp_path / "mine.safetensors"), heads=4, device="cpu")
    with pytest.raises(VitvizError, match="mine.safetensors.* has no video of its training"):
        vitviz.animation("rollout", alone, photo)
    for view in ("patches", "filters", "positions", "distance"):
        with pytest.raises(VitvizError, match="no video over the layers"):
            vitviz.animation(view, inspector, photo, over="layers")
    with pytest.raises(VitvizError, match="Only logit attribution can be shown layer by layer"):
        vitviz.animation("evidence", inspector, photo, over="layers", method="frozen")
    with pytest.raises(VitvizError, match="many steps"):
        vitviz.animation("tour", inspector, photo)
    with pytest.raises(VitvizError, match="expected one of training, layers"):
        vitviz.animation("rollout", inspector, photo, over="time")
    film = cached_videos("rollout", "layers")
    for asked in (("avi", 480, 1), ("gif", 481, 1), ("gif", 4000, 1), ("mp4", 480, 0), ("mp4", 480, "1")):
        with pytest.raises(VitvizError, match="expected"):
            film.file(*asked)


@pytest.mark.long
def test_missing_encoder_raises_for_mp4_but_not_gif(cached_videos, monkeypatch, tmp_path):
    film = cached_videos("rollout", "layers")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "imageio_ffmpeg", None)
        with pytest.raises(VitvizError, match="pip install 'vitviz\\[film\\]'"):
            film.mp4(WIDTH)
    with monkeypatch.context() as patched:  # installed for a machine that it brings no encoder for
        patched.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: (_ for _ in ()).throw(RuntimeError))
        with pytest.raises(VitvizError, match="not installed"):
            film.mp4(WIDTH)
    for broken in (tmp_path / "none", "/bin/false"):
        monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(broken))
        with pytest.raises(VitvizError, match="A GIF needs no encoder"):
            film.mp4(WIDTH)
    assert film.save(tmp_path / "film.gif", WIDTH).read_bytes()[:3] == b"GIF"
    assert (tmp_path / "film.txt").read_text(encoding="utf-8") == film.caption


def test_cancelled_video_stops(cached_videos):
    from vitviz.traces import cancellation

    film, told = cached_videos("rollout", "layers"), []
    with pytest.raises(Stopped), cancellation.when(lambda: len(told) == 2):
        film.file("mp4", WIDTH, told=lambda done, of: told.append((done, of)))
    assert told == [(1, 8), (2, 8)]


@pytest.mark.long
def test_equal_videos_are_equal_bytes(cached_videos):
    film = cached_videos("rollout", "layers", layers=(6, 8))
    assert film.mp4(WIDTH) == film.mp4(WIDTH) and film.gif(WIDTH) == film.gif(WIDTH)
