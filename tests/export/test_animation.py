"""Films read back: as many frames as there are moments, each as long as it should be, each its figure."""

import io
import sys
from dataclasses import replace

import cv2
import numpy as np
import pytest
from PIL import Image

import vitviz
from tests.export.helpers import of_gif, of_mp4
from tests.export.reading import middles, picture, texts, values
from tests.tiers import sweep
from vitviz.charts.chart import Chart
from vitviz.charts.mpl.page import FrameRenderer
from vitviz.charts.mpl.spec import FigureSpec, Legend, Map, Scale, TextTable
from vitviz.errors import Stopped, VitvizError
from vitviz.export.animation import HELD
from vitviz.views import VIEWS

pytestmark = pytest.mark.usefixtures("short_training")
WIDTH, SECONDS = 480, 0.3


@pytest.fixture(scope="module")
def films(inspector, photo):
    """Films by view and what they go over, each made once."""
    kept = {}

    def film(view: str, over: str, **settings):
        name = (view, over, *settings.items())
        if name not in kept:
            kept[name] = vitviz.animation(view, inspector, photo, over=over, **settings)
        return kept[name]

    return film


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """How far two pictures lie from each other, on average, of 255."""
    return float(np.abs(one.astype(float) - other).mean())


def drawn(film) -> list[np.ndarray]:
    """Every frame as it is drawn, which takes longer than all that is asked of it."""
    return [film.picture(number, WIDTH) for number in range(len(film.frames))]


def nearest(seen: np.ndarray, drawn: list[np.ndarray]) -> int:
    """Which frame of the film a picture shows."""
    return int(np.argmin([apart(seen, one) for one in drawn]))


@pytest.mark.long
def test_an_mp4_has_every_frame_in_its_order_and_its_time(films, tmp_path):
    film = films("rollout", "layers")
    seen, rate = of_mp4(film.mp4(WIDTH, SECONDS), path := tmp_path / "film.mp4")
    each, expected = round(SECONDS * rate), drawn(film)
    assert len(film.frames) == 8 and len(seen) == each * (7 + HELD)
    for number in range(8):
        assert nearest(seen[number * each + each // 2], expected) == number
        assert apart(seen[number * each], expected[number]) < 2
    other = cv2.VideoCapture(str(path))  # by another library
    assert other.get(cv2.CAP_PROP_FRAME_COUNT) == len(seen) and other.get(cv2.CAP_PROP_FPS) == rate
    assert other.get(cv2.CAP_PROP_FRAME_WIDTH) == WIDTH and other.get(cv2.CAP_PROP_FRAME_HEIGHT) % 2 == 0


@pytest.mark.long
def test_a_gif_has_every_frame_in_its_order_and_its_time(films):
    film = films("evidence", "layers")
    data = film.gif(WIDTH, SECONDS)
    (seen, times), expected = of_gif(data), drawn(film)
    assert times == [300] * 7 + [900] and len(seen) == len(film.frames) == 8
    assert [nearest(one, expected) for one in seen] == list(range(8))
    assert max(map(apart, seen, expected)) < 4  # of 256 colours
    assert Image.open(io.BytesIO(data)).info["loop"] == 0


@pytest.mark.long
def test_each_frame_of_a_training_is_that_steps_figure_under_one_scale(films, photo):
    film = films("rollout", "training", smooth="off")
    maps = [
        vitviz.rollout(vitviz.load(moment.name, device="cpu").trace(photo)).numpy()
        for moment in vitviz.training_snapshots("vitviz-tiny")
    ]
    low, high = min(map(np.min, maps)), max(map(np.max, maps))
    for frame, expected in zip(film.frames, maps, strict=True):
        svg = frame.svg()
        found = values(middles(picture(svg, "panel-1-values"), *expected.shape), low, high)
        np.testing.assert_allclose(found, expected, atol=(high - low) / 255)
        assert {f"{end:.3g}" for end in (low, high)} <= set(texts(svg))
    assert "Training step 3,000" in film.labels[2] and "accuracy" in film.labels[2]


@pytest.mark.long
def test_rollout_grows_to_the_whole(films, trace):
    film = films("rollout", "layers", smooth="off", fusion="max")
    maps = [vitviz.rollout(trace, fusion="max", layers=(0, last)).numpy() for last in range(8)]
    low, high = min(map(np.min, maps)), max(map(np.max, maps))
    for frame, expected in zip(film.frames, maps, strict=True):
        found = values(middles(picture(frame.svg(), "panel-1-values"), *expected.shape), low, high)
        np.testing.assert_allclose(found, expected, atol=(high - low) / 255)
    assert [str(label) for label in film.labels][1] == "Layers 1 to 2"


def test_evidence_grows_by_each_layers_heads_to_the_whole_account(films, inspector, trace):
    film = films("evidence", "layers")
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
@sweep("view", [view.slug for view in VIEWS if view.printable], quick=["rollout", "distance"])
def test_scales_axes_and_places_stand_still_in_every_view(inspector, photo, view, fast_faithfulness):
    """What lies in all frames alike is found there: nothing but numbers, notes and labels has moved."""
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
    frames = [film.picture(number, WIDTH) for number in range(len(film.frames))]
    assert len({frame.shape for frame in frames}) == 1 and all(side % 2 == 0 for side in frames[0].shape[:2])
    reel = film._reel(WIDTH)
    sides = ("left", "right", "top", "bottom", "width", "height")
    places = [
        [[getattr(room, side) for side in sides] for row in one.rows for room in row] for one in reel._layouts
    ]
    assert all(np.allclose(one, places[0]) for one in places)


def test_a_longer_title_or_note_moves_nothing():
    """The colours of the map and of its scale lie in the same pixels, whatever is said above and below."""
    scale = Scale("viridis", 0.0, 1.0, "Share")
    specs = [
        FigureSpec(((Map(title, values=np.eye(3), scale=scale),),), notes=(note,), width=60.0)
        for title, note in (("short", "short"), ("much longer " * 20, "longer still " * 30))
    ]
    frames = list(map(FrameRenderer(specs, ["1", "2"], WIDTH).__getitem__, range(2)))
    coloured = [np.ptp(frame.astype(int), axis=2) > 40 for frame in frames]
    assert coloured[0].any() and (coloured[0] == coloured[1]).all()
    assert apart(*frames) > 1


def test_the_label_stands_in_its_frame_in_the_films_language(inspector, photo):
    films = {
        tag: vitviz.animation("rollout", inspector, photo, over="layers", language=tag)
        for tag in ("en", "ko")
    }
    assert "A film of 8 frames" in films["en"].caption and "8프레임" in films["ko"].caption
    first, second = (films["en"].picture(number, WIDTH) for number in (0, 1))
    band = first.shape[1] // 86 * 6  # 6 mm: the label alone
    assert apart(first[:band], second[:band]) > 0.1
    plain = replace(films["en"], labels=films["en"].labels[:1] * 8)
    assert apart(plain.picture(0, WIDTH)[:band], plain.picture(1, WIDTH)[:band]) == 0


def test_what_does_not_apply_is_a_sentence(inspector, photo, films, tmp_path):
    from tests.engine.small_models import save_model, small_vit

    alone = vitviz.load(save_model(small_vit(), tmp_path / "mine.safetensors"), heads=4, device="cpu")
    with pytest.raises(VitvizError, match="mine.safetensors.* has no film of its training"):
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
    film = films("rollout", "layers")
    for asked in (("avi", 480, 1), ("gif", 481, 1), ("gif", 4000, 1), ("mp4", 480, 0), ("mp4", 480, "1")):
        with pytest.raises(VitvizError, match="expected"):
            film.file(*asked)


@pytest.mark.long
def test_without_an_encoder_mp4_is_a_sentence_and_gif_goes_on(films, monkeypatch, tmp_path):
    film = films("rollout", "layers")
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
        with pytest.raises(VitvizError, match="A GIF needs none"):
            film.mp4(WIDTH)
    assert film.save(tmp_path / "film.gif", WIDTH).read_bytes()[:3] == b"GIF"
    assert (tmp_path / "film.txt").read_text(encoding="utf-8") == film.caption


def test_a_film_that_nobody_waits_for_ends(films):
    from vitviz.traces import cancellation

    film, told = films("rollout", "layers"), []
    with pytest.raises(Stopped), cancellation.when(lambda: len(told) == 2):
        film.file("mp4", WIDTH, told=lambda done, of: told.append((done, of)))
    assert told == [(1, 8), (2, 8)]


@pytest.mark.long
def test_the_same_film_is_the_same_bytes(films):
    film = films("rollout", "layers", layers=(6, 8))
    assert film.mp4(WIDTH) == film.mp4(WIDTH) and film.gif(WIDTH) == film.gif(WIDTH)
