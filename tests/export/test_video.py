"""Videos: results belong to their frames, a still gives the results of an image, memory stays constant."""

import gc
import tracemalloc

import numpy as np
import pytest
import torch
from imageio_ffmpeg import write_frames
from PIL import Image
from sklearn.decomposition import PCA

import vitviz
from tests.export.helpers import read_gif, read_mp4
from tests.tiers import sweep
from vitviz.charts.mpl.spec import Map
from vitviz.errors import TooMuch, VitvizError
from vitviz.export import video_of_frames

LOSSLESS = {"avi": ("ffv1", "bgr0"), "mov": ("png", "rgb24"), "mkv": ("ffv1", "bgr0")}
LOSSY = {"mp4": ("libx264", "yuv420p"), "webm": ("libvpx-vp9", "yuv420p")}
WIDE, TALL, RATE = 128, 96, 25
OTHERS = ("gif", "webp")


def write_video(path, frames, rate=RATE):
    """Write arrays as a video in the format of the extension; lossless except LOSSY and a GIF's palette."""
    if path.suffix[1:] in OTHERS:
        more = (
            {"lossless": True, "minimize_size": False, "kmin": 0, "kmax": 0} if path.suffix == ".webp" else {}
        )
        first, *rest = map(Image.fromarray, frames)
        first.save(path, save_all=True, append_images=rest, duration=1000 // rate, **more)
        return path
    codec, pixels = (LOSSLESS | LOSSY)[path.suffix[1:]]
    size = frames[0].shape[1::-1]
    more = {"quality": None, "macro_block_size": 1, "ffmpeg_log_level": "error"}
    writer = write_frames(str(path), size, fps=rate, codec=codec, pix_fmt_out=pixels, **more)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()
    return path


def bar_frames(count):
    """Return frames with a white bar of four columns at the position of their number."""
    frames = np.full((count, TALL, WIDE, 3), 30, np.uint8)
    for number in range(count):
        frames[number, :, 4 * number : 4 * number + 4] = 240
    return frames


def frame_number(picture):
    return int(picture[..., 1].mean(axis=0).reshape(-1, 4).mean(axis=1).argmax())


@pytest.fixture(scope="module")
def still(photo):
    return np.asarray(photo.resize((WIDE, TALL)))


@sweep("form", [*LOSSLESS, "gif"], quick=["avi", "gif"])
def test_still_video_gives_results_of_image(inspector, still, tmp_path, form):
    path = tmp_path / f"still.{form}"
    frames = [still] * 3
    if form == "gif":  # Pillow would write equal GIF frames only once
        few = np.asarray(Image.fromarray(still).quantize(64).convert("RGB"))
        frames = [few, few[:, ::-1], few]
    found = list(vitviz.video(write_video(path, frames), inspector))
    assert [one.number for one in found] == [0, 1, 2]
    for one, frame in zip(found, frames, strict=True):
        expected = inspector.trace(Image.fromarray(frame))
        np.testing.assert_array_equal(one.picture, frame)
        torch.testing.assert_close(one.trace.logits, expected.logits, atol=1e-6, rtol=0)
        for layer in range(len(expected.layers)):
            torch.testing.assert_close(
                one.trace.attention(layer), expected.attention(layer), atol=1e-6, rtol=0
            )
        np.testing.assert_allclose(one.map, vitviz.rollout(expected).numpy(), atol=1e-6)
        assert one.answer == expected.top(1)[0][0]
        assert one.probability == pytest.approx(expected.top(1)[0][1], abs=1e-6)
    if form != "gif":
        assert [one.flicker for one in found] == [None, 0.0, 0.0]
        assert len({one.scale for one in found}) == 1


@pytest.mark.long
@sweep("form", [*LOSSLESS, *LOSSY, *OTHERS], quick=["avi", "mp4", "gif"])
def test_results_belong_to_their_frames(inspector, tmp_path, form):
    path = write_video(tmp_path / f"bars.{form}", bar_frames(20))
    asked = [
        ({}, range(20)),
        ({"step": 7}, range(0, 20, 7)),
        ({"start": 0.2, "stop": 0.56, "step": 4}, (5, 9, 13)),
    ]
    for settings, expected in asked[1 if form in LOSSLESS else 0 :]:
        found = list(vitviz.video(path, inspector, size=64, **settings))
        assert [one.number for one in found] == [frame_number(one.picture) for one in found] == list(expected)
        np.testing.assert_allclose([one.seconds for one in found], np.array(expected) / RATE, atol=2e-3)
    before = None
    for one in found:
        own = vitviz.rollout(inspector.trace(one.picture, size=64)).numpy()
        np.testing.assert_allclose(one.map, own, atol=1e-6)
        if before is not None:
            assert (
                one.flicker == pytest.approx(sum(abs(own - before).flat) / own.size, rel=1e-4) and one.flicker
            )
        before = own


def test_scale_only_widens_and_class_comes_from_first_frame(inspector, photo, tmp_path):
    frames = [
        np.asarray(vitviz.sample_image(name).resize((WIDE, TALL))) for name in ("chelsea", "coffee", "rocket")
    ]
    path = write_video(tmp_path / "three.avi", frames)
    found = list(vitviz.video(path, inspector))
    lows = np.minimum.accumulate([one.map.min() for one in found])
    highs = np.maximum.accumulate([one.map.max() for one in found])
    np.testing.assert_allclose([one.scale for one in found], np.stack([lows, highs], axis=1))
    assert len({one.scale for one in found}) > 1
    traces = [inspector.trace(frame) for frame in frames]
    first = int(traces[0].logits.argmax())
    assert int(traces[1].logits.argmax()) != first
    for target, named in ((first, {}), (3, {"target": 3})):
        for one, trace in zip(vitviz.video(path, inspector, "evidence", **named), traces, strict=True):
            account = vitviz.logit_attribution(inspector, trace, target=target)
            np.testing.assert_allclose(one.map, account.patches.numpy(), atol=1e-5)


def test_components_are_fitted_over_all_frames(inspector, tmp_path):
    names = ("chelsea", "coffee", "rocket")
    frames = [np.asarray(vitviz.sample_image(name).resize((WIDE, TALL))) for name in names]
    path, depth = write_video(tmp_path / "three.avi", frames), 5
    asked = {"show": "components", "depth": depth, "detail": True}
    found = list(vitviz.video(path, inspector, "tokens", **asked))
    traces = [inspector.trace(frame) for frame in frames]
    tokens = np.concatenate([one.tokens[depth][one.grid.prefix :].double().numpy() for one in traces])
    other = PCA(3, svd_solver="full").fit(tokens)
    expected = other.transform(tokens).reshape(3, *found[0].map.shape, 3)
    signs = np.sign(other.components_[range(3), abs(other.components_).argmax(axis=1)])
    for one, scores in zip(found, expected * signs, strict=True):
        singles = [panel.values for panel in one.figure.spec.rows[1]]
        np.testing.assert_allclose(np.stack(singles, axis=-1), scores, atol=1e-3)
        shares = [f"{100 * share:.1f} %" for share in other.explained_variance_ratio_]
        assert all(share in one.figure.spec.notes[0] for share in shares)
        deviations = np.sqrt(other.explained_variance_)
        colours = 255 / (1 + np.exp(-2 * scores / deviations))
        assert np.abs(one.figure.spec.rows[0][0].pixels - colours).max() < 0.51
    with pytest.raises(VitvizError, match="one basis for all"):
        next(vitviz.video(path, inspector, "tokens", show="components", basis="all"))


@pytest.mark.sweep
def test_memory_does_not_grow_with_frame_count(inspector, tmp_path):
    path = write_video(tmp_path / "long.avi", bar_frames(32)[[*range(31), *range(31)]])

    def held():
        gc.collect()
        tensors = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
        return sum(one.untyped_storage().nbytes() for one in tensors)

    tensors, peaks = {}, {}
    tracemalloc.start()
    for one in vitviz.video(path, inspector, size=32):
        if one.number in (10, 30, 60):  # by frame 30 everything kept is allocated
            # before the objects are listed, because a growing list allocates an eighth more at once
            peaks[one.number] = tracemalloc.get_traced_memory()[1]
            tensors[one.number] = held()
            tracemalloc.reset_peak()
    tracemalloc.stop()
    assert tensors[60] <= tensors[30] and peaks[60] <= 1.05 * peaks[30] + 1e5, (tensors, peaks)


@pytest.mark.long
def test_video_of_frames_keeps_rate_and_one_scale(inspector, tmp_path):
    path = write_video(tmp_path / "bars.avi", bar_frames(5), rate=8)
    film = video_of_frames(vitviz.video(path, inspector, size=64))
    scales = {(one.spec.rows[0][0].scale.low, one.spec.rows[0][0].scale.high) for one in film.frames}
    assert len(scales) == 1 and str(film.labels[3]) == "Frame 3, 0.38 s"
    seen, rate = read_mp4(film.file("mp4", 320), tmp_path / "film.mp4")
    assert len(seen) == 5 and rate == 8
    frames, times = read_gif(film.file("gif", 320))
    assert len(frames) == 5 and all(abs(one - 125) <= 5 for one in times)
    reel = film._reel(320)  # lays out all frames once; `film.picture` does so for each frame
    drawn = [reel[number] for number in range(5)]
    for number, one in enumerate(seen):
        assert np.argmin([np.abs(one.astype(float) - other).mean() for other in drawn]) == number
    with pytest.raises(VitvizError, match="No frames"):
        video_of_frames([])


def test_video_of_frames_downscales_images_and_boxes(inspector, tmp_path):
    whole = np.asarray(vitviz.sample_image("coffee").resize((1280, 720)))
    (frame,) = vitviz.video(write_video(tmp_path / "wide.avi", [whole]), inspector, size=64)
    own, small = (
        next(panel for row in spec.rows for panel in row if isinstance(panel, Map))
        for spec in (frame.figure.spec, video_of_frames([frame]).frames[0].spec)
    )
    assert own.picture.shape == (720, 1280, 3) and small.picture.shape == (360, 640, 3)
    np.testing.assert_allclose(np.array(small.box) * 2, own.box)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"view": "filters"}, "does not show an image"),
        ({"view": "tour"}, "has many steps"),
        ({"view": "bogus"}, "There is no view"),
        ({"fusion": "bogus"}, "bogus"),
        ({"step": 0}, "from 1"),
        ({"step": 1.5}, "whole number"),
        ({"start": -1}, "from 0"),
        ({"start": 2, "stop": 1}, "after the start"),
        ({"start": 5}, "no frame at or after 5 s"),
    ],
)
def test_invalid_video_arguments_raise(inspector, tmp_path, asked, words):
    path = write_video(tmp_path / "bars.avi", bar_frames(3))
    with pytest.raises(VitvizError, match=words):
        next(vitviz.video(path, inspector, **asked))


def test_too_long_video_raises_before_first_frame(inspector, tmp_path):
    path = write_video(tmp_path / "bars.avi", bar_frames(20))
    for limit in ({"most_frames": 19}, {"most_seconds": 0.75}):
        with pytest.raises(TooMuch, match="is longer than"):
            next(vitviz.video(path, inspector, **limit))
        assert next(vitviz.video(path, inspector, stop=0.7, **limit)).number == 0
    assert next(vitviz.video(path, inspector, most_frames=10, step=2)).number == 0
