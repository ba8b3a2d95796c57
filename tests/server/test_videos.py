"""A video on the server: its frames are looked at as uploads are, bounded, and gone with who leaves it."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA

from tests.export.helpers import of_gif
from tests.server.helpers import FRAME_COUNT, moving_gif
from vitviz.errors import ImageError, TooMuch, VitvizError
from vitviz.server.api import figures, videos
from vitviz.server.page.routes import decode_video, live_page
from vitviz.server.services import frames
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views.printing import ALONE, PrintStyle


@pytest.fixture(autouse=True)
def however_long_a_frame_is_looked_at(monkeypatch):
    """None of these is about a frame that nobody looks at any more, as one of test_live is: a slow machine
    takes longer from one question to the next than a visitor's page does.
    """
    monkeypatch.setattr(frames, "LASTS", 3_600.0)


def opened(service, **more) -> dict:
    return decode_video(service, {"path": str(moving_gif(**more))})


def ask(service, key: str, video: str, at: int, **more) -> dict:
    return live_page(service, key, {"views": ["rollout"], "video": video, "at": at, **more})


def test_a_frame_is_seen_as_an_upload_of_it_would_be(service, key):
    found = opened(service)
    assert [one["number"] for one in found["frames"]] == list(range(FRAME_COUNT)) and found["step"] == 1
    assert [one["seconds"] for one in found["frames"]] == pytest.approx(np.arange(FRAME_COUNT) / 10)
    told = ask(service, key, found["video"], 5)
    kept = service.look(service.pictures.keep_bytes(service.videos.frame(found["video"], 5)), "vitviz-tiny")
    seen, upload = service.subject(told["key"]).trace, service.subject(kept).trace
    assert told["key"] != kept and (seen.logits == upload.logits).all()
    # and it is that frame of the file, but for the JPEG
    pixels = np.asarray(Image.open(io.BytesIO(service.videos.frame(found["video"], 5))), float)
    with Image.open(moving_gif()) as file:
        each = [(file.seek(one), np.asarray(file.convert("RGB"), float))[1] for one in range(FRAME_COUNT)]
    apart = [abs(pixels - one).mean() for one in each]
    assert np.argmin(apart) == 5 and apart[5] < 3
    last = ask(service, key, found["video"], 6, last=told["key"])["key"]
    assert service.runs.peek(told["key"]) is None and service.runs.peek(last) is not None
    live_page(service, key, {"video": found["video"], "last": last})
    with pytest.raises(ImageError, match="removed this video"):
        ask(service, key, found["video"], 0)
    assert service.runs.peek(last) is None


def test_of_more_frames_than_are_kept_every_so_many_is(key):
    limits = replace(ServiceSettings().limits, video_frames=3, video_seconds=1.5)
    service = AnalysisService(ServiceSettings(device="cpu", limits=limits))
    found = opened(service)
    assert [one["number"] for one in found["frames"]] == [0, 4, 8] and found["step"] == 4
    with pytest.raises(TooMuch, match="goes on beyond 1.5 s"):
        opened(service, count=17)


def test_a_visitor_has_one_video_and_no_other_file(service, key):
    first, second = opened(service)["video"], opened(service)["video"]
    with pytest.raises(ImageError, match="removed this video"):
        service.videos.of(first)
    for at in (FRAME_COUNT, -1, True, "1", None):
        with pytest.raises(ImageError, match=f"expected 0 to {FRAME_COUNT - 1}"):
            ask(service, key, second, at)
    broken = moving_gif()
    broken.write_bytes(broken.read_bytes()[:-999])
    for asked in (None, {}, {"path": "/etc/passwd"}, {"path": [1]}, {"path": str(broken)}):
        with pytest.raises(VitvizError, match=r"[a-z ]{9}.*\.$"):
            decode_video(service, asked)
    assert service.videos.of(second)  # what is refused takes nothing away


@pytest.mark.long
def test_components_have_one_basis_for_the_whole_video(service, key, inspector):
    """scikit-learn's, of the tokens of all sampled frames at once; the same for every frame."""
    found, depth = opened(service, count=21), 3
    video = service.videos.of(found["video"])
    each = [Image.open(io.BytesIO(data)) for *_, data in video.sampled]
    numbers = [number for number, *_ in video.sampled]
    assert len(each) == 16 and numbers[0] == 0 and numbers[-1] == 20 and len(set(numbers)) == 16
    traces = [inspector.trace(one) for one in each]
    tokens = np.concatenate([one.tokens[depth][one.grid.prefix :].double().numpy() for one in traces])
    other = PCA(3, svd_solver="full").fit(tokens)
    signs = np.sign(other.components_[range(3), abs(other.components_).argmax(axis=1)])
    asked = {"show": "components", "depth": str(depth), "basis": "own", "tint": "plain"}
    scores, last = [], ""
    for at in (0, 10, 20):
        told = ask(service, key, found["video"], at, views=["tokens"], last=last)
        last, figure = told["key"], told["figures"]["tokens"][0]
        assert figure["basis"] == {"count": 16, "of": 21} and figure["still"]["basis"] == "own"
        with service.frames.looked_at(last):  # however long it takes
            trace = service.subject(last).trace
            expected = signs * other.transform(trace.tokens[depth][trace.grid.prefix :].double().numpy())
            scores.append(service.item(last, "tokens", "components", asked))
            np.testing.assert_allclose(scores[-1].reshape(-1, 3), expected, atol=2e-3)
            shares = service.item(last, "tokens", "shares", asked)[depth]
            np.testing.assert_allclose(shares, other.explained_variance_ratio_, atol=1e-5)
    assert abs(scores[0] - scores[1]).max() > 0.1
    made = figures.figure(service, last, "tokens", {**asked, "opacity": "1"}, PrintStyle(detail=True))
    assert "one basis each for the whole video" in made.svg().decode()
    assert service.subject(key).fitted is None
    assert len(service.frames._standing) == 1, "what was looked at for the basis is gone"


@pytest.mark.long
def test_what_a_view_shows_of_a_video_is_a_film(service, key):
    """Frame by frame the figure of that frame, at its own pace; how far it is, is told under its ticket."""
    video, counted = opened(service)["video"], service.counted(key, "abc")
    asked = {
        "film.over": "video",
        "film.video": video,
        "film.first": "2",
        "film.last": "6",
        "film.ticket": "abc",
    }
    data, name = videos.video_file(service, key, "rollout", "gif", {**asked, "film.width": "320"})
    drawn, times = of_gif(data)
    assert len(drawn) == 5 and name.endswith("over-video.gif") and counted == [10, 10]
    assert all(abs(one - 100) <= 5 for one in times)
    made = videos.upload_video(service, key, "rollout", {}, video, slice(2, 7), ALONE, lambda done, of: None)
    assert str(made.labels[1]) == "Frame 3, 0.30 s"
    for at, frame in zip(range(2, 7), made.frames, strict=True):
        told = ask(service, key, video, at)
        map_ = service.item(told["key"], "rollout", "map", {})
        np.testing.assert_allclose(frame.spec.rows[0][0].values, map_, atol=1e-6)
    for slug, more in (
        ("rollout", {"film.first": "7", "film.last": "6"}),
        ("rollout", {"film.video": "x"}),
        ("filters", {}),
    ):
        with pytest.raises(VitvizError, match=r"[a-z ]{9}.*\.$"):
            videos.video_file(service, key, slug, "gif", {**asked, **more})


def test_a_frame_brings_its_numbers_and_how_much_the_map_has_changed(service, key):
    video = opened(service)["video"]
    asked = {"views": ["evidence", "tokens"], "flickers": ["rollout", {"discard": "0.5"}]}
    rows, maps, last = [], [], ""
    for at, heads in enumerate(("distance", "entropy", "share")):
        told = ask(service, key, video, at, heads=heads, last=last, **asked)
        rows, last = [*rows, told["row"]], told["key"]
        maps.append(np.asarray(service.item(last, "rollout", "map", {"discard": "0.5"}), float))
    target = {"target": told["figures"]["evidence"][0]["still"]["target"]}
    shares = service.item(last, "evidence", "heads", target)
    assert rows[2]["heads"] == pytest.approx(shares.ravel()) and rows[0]["flicker"] is None
    for at in (1, 2):  # patch by patch
        cells = [abs(float(a) - float(b)) for a, b in zip(maps[at].flat, maps[at - 1].flat, strict=True)]
        assert rows[at]["flicker"] == pytest.approx(sum(cells) / len(cells), rel=1e-4)
    still = {slug: figures[0]["still"] for slug, figures in told["figures"].items()}
    first = ask(service, key, video, 0, last=last)
    assert still["tokens"]["tint"] == "plain"
    assert still["evidence"]["target"] == str(int(service.subject(first["key"]).trace.logits.argmax()))
    for odd in (
        {"heads": []},
        {"flickers": "abc"},
        {"flickers": [1, 2]},
        {"flickers": ["rollout", {"x": 1}]},
    ):
        row = ask(service, key, video, 1, last=first["key"], **odd)["row"]
        assert row["flicker"] is None and "heads" not in row
