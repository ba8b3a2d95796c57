"""Uploaded videos on the server: frames equal image uploads, are limited, and are deleted."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA

from tests.export.helpers import read_gif
from tests.server.helpers import FRAME_COUNT, moving_gif
from vitviz.errors import ImageError, TooMuch, VitvizError, WrongSetting
from vitviz.server.api import figures, videos
from vitviz.server.page.routes import decode_video, live_page
from vitviz.server.services import frames
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views.printing import ALONE, PrintStyle


@pytest.fixture(autouse=True)
def frames_do_not_expire(monkeypatch):
    """Prevent expiry: slow machines take longer between requests than a page does."""
    monkeypatch.setattr(frames, "LASTS", 3_600.0)


def upload_video(service, **more) -> dict:
    return decode_video(service, {"path": str(moving_gif(**more))})


def request_frame(service, key: str, video: str, at: int, **more) -> dict:
    return live_page(service, key, {"views": ["rollout"], "video": video, "at": at, **more})


def test_frame_gives_the_trace_of_an_upload(service, key):
    video = upload_video(service)
    assert [one["number"] for one in video["frames"]] == list(range(FRAME_COUNT)) and video["step"] == 1
    assert [one["seconds"] for one in video["frames"]] == pytest.approx(np.arange(FRAME_COUNT) / 10)
    response = request_frame(service, key, video["video"], 5)
    upload_key = service.look(
        service.pictures.keep_bytes(service.videos.frame(video["video"], 5)), "vitviz-tiny"
    )
    frame, upload = service.subject(response["key"]).trace, service.subject(upload_key).trace
    assert response["key"] != upload_key and (frame.logits == upload.logits).all()
    # the pixels are those of the file, up to JPEG compression
    pixels = np.asarray(Image.open(io.BytesIO(service.videos.frame(video["video"], 5))), float)
    with Image.open(moving_gif()) as file:
        each = [(file.seek(one), np.asarray(file.convert("RGB"), float))[1] for one in range(FRAME_COUNT)]
    differences = [abs(pixels - one).mean() for one in each]
    assert np.argmin(differences) == 5 and differences[5] < 3
    last = request_frame(service, key, video["video"], 6, last=response["key"])["key"]
    assert service.runs.peek(response["key"]) is None and service.runs.peek(last) is not None
    live_page(service, key, {"video": video["video"], "last": last})
    with pytest.raises(ImageError, match="removed this video"):
        request_frame(service, key, video["video"], 0)
    assert service.runs.peek(last) is None


def test_long_video_is_subsampled_and_too_long_one_rejected(key):
    limits = replace(ServiceSettings().limits, video_frames=3, video_seconds=1.5)
    service = AnalysisService(ServiceSettings(device="cpu", limits=limits))
    video = upload_video(service)
    assert [one["number"] for one in video["frames"]] == [0, 4, 8] and video["step"] == 4
    with pytest.raises(TooMuch, match="is longer than 1.5 s"):
        upload_video(service, count=17)


def test_new_video_replaces_the_old_and_invalid_files_are_rejected(service, key):
    first, second = upload_video(service)["video"], upload_video(service)["video"]
    with pytest.raises(ImageError, match="removed this video"):
        service.videos.of(first)
    for at in (FRAME_COUNT, -1, True, "1", None):
        with pytest.raises(ImageError, match=f"expected 0 to {FRAME_COUNT - 1}"):
            request_frame(service, key, second, at)
    broken = moving_gif()
    broken.write_bytes(broken.read_bytes()[:-999])
    for request in (None, {}, {"path": "/etc/passwd"}, {"path": [1]}, {"path": str(broken)}):
        with pytest.raises(VitvizError, match=r"[a-z ]{9}.*\.$"):
            decode_video(service, request)
    assert service.videos.of(second)  # a rejected file keeps the video


@pytest.mark.long
def test_components_share_one_basis_over_the_video(service, key, inspector):
    """Compare with scikit-learn's PCA of the tokens of all sampled frames."""
    video_info, depth = upload_video(service, count=21), 3
    video = service.videos.of(video_info["video"])
    images = [Image.open(io.BytesIO(data)) for *_, data in video.sampled]
    numbers = [number for number, *_ in video.sampled]
    assert len(images) == 16 and numbers[0] == 0 and numbers[-1] == 20 and len(set(numbers)) == 16
    traces = [inspector.trace(one) for one in images]
    tokens = np.concatenate([one.tokens[depth][one.grid.prefix :].double().numpy() for one in traces])
    pca = PCA(3, svd_solver="full").fit(tokens)
    signs = np.sign(pca.components_[range(3), abs(pca.components_).argmax(axis=1)])
    asked = {"show": "components", "depth": str(depth), "basis": "own", "tint": "plain"}
    scores, last = [], ""
    for at in (0, 10, 20):
        response = request_frame(service, key, video_info["video"], at, views=["tokens"], last=last)
        last, figure = response["key"], response["figures"]["tokens"][0]
        assert figure["basis"] == {"count": 16, "of": 21} and figure["still"]["basis"] == "own"
        with service.frames.in_use(last):  # keeps the frame from expiring
            trace = service.subject(last).trace
            expected = signs * pca.transform(trace.tokens[depth][trace.grid.prefix :].double().numpy())
            scores.append(service.item(last, "tokens", "components", asked))
            np.testing.assert_allclose(scores[-1].reshape(-1, 3), expected, atol=2e-3)
            shares = service.item(last, "tokens", "shares", asked)[depth]
            np.testing.assert_allclose(shares, pca.explained_variance_ratio_, atol=1e-5)
    assert abs(scores[0] - scores[1]).max() > 0.1
    print_figure = figures.figure(service, last, "tokens", {**asked, "opacity": "1"}, PrintStyle(detail=True))
    assert "one basis each for the whole video" in print_figure.svg().decode()
    assert service.subject(key).fitted is None
    assert len(service.frames._standing) == 1, "frames of the basis are kept"


def test_components_of_a_frame_do_not_depend_on_request_order(service, key):
    """The page requests scores without the tint, and they may be computed before the colours."""
    video = upload_video(service, count=4)["video"]
    frame = request_frame(service, key, video, 1, views=["tokens"])["key"]
    with service.frames.in_use(frame):
        scores = service.item(frame, "tokens", "components", {"depth": "3"})
        assert np.ptp(scores) > 0
        assert service.item(frame, "tokens", "tints", {"tint": "plain"}).any()
        for refused in ({"tint": "steady"}, {"tint": "plain", "basis": "all"}):
            with pytest.raises(WrongSetting, match="one basis for all frames"):
                service.item(frame, "tokens", "tints", refused)


@pytest.mark.long
def test_view_of_a_video_is_exported_as_video(service, key):
    """Frames, timing and progress match the uploaded video."""
    video, counted = upload_video(service)["video"], service.progress_counter(key, "abc")
    asked = {
        "film.over": "video",
        "film.video": video,
        "film.first": "2",
        "film.last": "6",
        "film.ticket": "abc",
    }
    data, name = videos.video_file(service, key, "rollout", "gif", {**asked, "film.width": "320"})
    drawn, times = read_gif(data)
    assert len(drawn) == 5 and name.endswith("over-video.gif") and counted == [10, 10]
    assert all(abs(one - 100) <= 5 for one in times)
    exported = videos.upload_video(
        service, key, "rollout", {}, video, slice(2, 7), ALONE, lambda done, of: None
    )
    assert str(exported.labels[1]) == "Frame 3, 0.30 s"
    for at, frame in zip(range(2, 7), exported.frames, strict=True):
        response = request_frame(service, key, video, at)
        map_ = service.item(response["key"], "rollout", "map", {})
        np.testing.assert_allclose(frame.spec.rows[0][0].values, map_, atol=1e-6)
    for slug, more in (
        ("rollout", {"film.first": "7", "film.last": "6"}),
        ("rollout", {"film.video": "x"}),
        ("filters", {}),
    ):
        with pytest.raises(VitvizError, match=r"[a-z ]{9}.*\.$"):
            videos.video_file(service, key, slug, "gif", {**asked, **more})


def test_frame_response_contains_head_values_and_map_change(service, key):
    video = upload_video(service)["video"]
    asked = {"views": ["evidence", "tokens"], "flickers": ["rollout", {"discard": "0.5"}]}
    rows, maps, last = [], [], ""
    for at, heads in enumerate(("distance", "entropy", "share")):
        response = request_frame(service, key, video, at, heads=heads, last=last, **asked)
        rows, last = [*rows, response["row"]], response["key"]
        maps.append(np.asarray(service.item(last, "rollout", "map", {"discard": "0.5"}), float))
    target = {"target": response["figures"]["evidence"][0]["still"]["target"]}
    shares = service.item(last, "evidence", "heads", target)
    assert rows[2]["heads"] == pytest.approx(shares.ravel()) and rows[0]["flicker"] is None
    for at in (1, 2):  # mean over patches
        cells = [abs(float(a) - float(b)) for a, b in zip(maps[at].flat, maps[at - 1].flat, strict=True)]
        assert rows[at]["flicker"] == pytest.approx(sum(cells) / len(cells), rel=1e-4)
    defaults = {slug: figures[0]["still"] for slug, figures in response["figures"].items()}
    first = request_frame(service, key, video, 0, last=last)
    assert defaults["tokens"]["tint"] == "plain"
    assert defaults["evidence"]["target"] == str(int(service.subject(first["key"]).trace.logits.argmax()))
    for odd in (
        {"heads": []},
        {"flickers": "abc"},
        {"flickers": [1, 2]},
        {"flickers": ["rollout", {"x": 1}]},
    ):
        row = request_frame(service, key, video, 1, last=first["key"], **odd)["row"]
        assert row["flicker"] is None and "heads" not in row
