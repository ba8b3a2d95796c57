"""Video export by URL and endpoint: contents, limits, progress and scheduling."""

import base64
import io
import threading

import pytest
from PIL import Image

import vitviz
from vitviz.errors import TooMuch, Unknown, VitvizError
from vitviz.server.api import videos
from vitviz.server.api.endpoints import Endpoints

pytestmark = pytest.mark.usefixtures("short_training")
LAYER_VIDEO = {"film.width": "320", "film.over": "layers"}


@pytest.fixture(scope="module")
def expected(inspector, photo):
    return vitviz.animation("rollout", inspector, photo, over="layers", fusion="max")


@pytest.mark.long
def test_video_route_and_endpoint_match_python(service, key, expected):
    asked = {**LAYER_VIDEO, "fusion": "max", "film.seconds": "0.4"}
    data, name = videos.video_file(service, key, "rollout", "gif", asked)
    assert data == expected.gif(width=320, seconds=0.4)
    assert name == "vitviz-rollout_vitviz-tiny_fusion-max_over-layers.gif"
    data, _ = videos.video_file(service, key, "rollout", "mp4", asked)
    assert data == expected.mp4(width=320, seconds=0.4)
    response = Endpoints(service).film(
        "coffee", settings="fusion=max", over="layers", format="gif", width=320, seconds=0.4
    )
    assert base64.b64decode(response["data"]) == expected.gif(width=320, seconds=0.4)
    # only the name of the sample reveals the credit
    credit = "Coffee cup (Rachel Michetti, courtesy of Pikolo Espresso Bar, CC0), "
    assert credit in response["caption"] and response["caption"].replace(credit, "") == expected.caption
    assert response["name"] == name
    assert response["frames"] == [str(label) for label in expected.labels]


@pytest.mark.long
def test_training_video_keeps_dropped_patches(service):
    without = vitviz.Ablation(patches=[0, 17], patches_as="dropped")
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny", without=without)
    video = videos.page_video(service, key, "tokens", {})
    assert len(video.frames) == len(vitviz.training_snapshots("vitviz-tiny"))
    for frame in video.frames:
        values = frame.spec.rows[0][0].values.ravel()
        assert [i for i, value in enumerate(values) if value != value] == [0, 17]


@pytest.mark.long
def test_training_video_keeps_the_explained_class(service, inspector, photo):
    """The class is the prediction in view, not that of the untrained model."""
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    steps = [one.name for one in vitviz.training_snapshots("vitviz-tiny")]
    likeliest = service.subject(key).trace.top(1)[0][0]
    first = service.subject(service.look(service.pictures.sample("coffee"), steps[0])).trace.top(1)[0][0]
    assert first != likeliest
    for video in (
        videos.page_video(service, key, "evidence", {}),
        vitviz.animation("evidence", inspector, photo),
    ):
        titles = {video.frames[at].spec.rows[0][0].title for at in range(len(video.frames))}
        assert len(titles) == 1 and likeliest in str(*titles)
    chosen = videos.page_video(service, key, "evidence", {"target": "3"})
    assert service.subject(key).trace.named(3) in str(chosen.frames[0].spec.rows[0][0].title)


def test_video_length_is_known_and_progress_counted(service, key):
    steps = len(vitviz.training_snapshots("vitviz-tiny"))
    assert videos.video_lengths(service, key, "rollout", {}) == {"training": steps, "layers": 8}
    assert videos.video_lengths(service, key, "rollout", {"layers": "3-5"})["layers"] == 3
    for slow in ("trial", "experiment"):  # each snapshot needs hundreds of passes
        assert videos.video_lengths(service, key, slow, {})["training"]["text"] == videos.TOO_LONG
        with pytest.raises(VitvizError, match="In Python, vitviz.animation"):
            videos.page_video(service, key, slow, {})
    reason = videos.video_lengths(service, key, "distance", {})["layers"]
    assert reason["text"].startswith("{view} has no video over the layers")
    counts = []

    class Counted(list):
        def __setitem__(self, place, value):
            counts.append(value)
            super().__setitem__(place, value)

    service._counts.get((key, "mine"), lambda: Counted([0, 0]))
    videos.video_file(service, key, "filters", "gif", {"film.width": "320", "film.ticket": "mine"})
    assert counts == [[done, 2 * steps] for done in range(1, 2 * steps + 1)]
    assert [service.progress(key, one) for one in ("mine", "another")] == [(2 * steps,) * 2, (0, 0)]
    with pytest.raises(Unknown):
        service.progress("no such key", "mine")


def test_video_is_drawn_in_an_expensive_turn(service, key, expected):
    """No frame is drawn while another client holds the only expensive turn."""
    inside, done, files = threading.Event(), threading.Event(), []

    def hold():
        with service.work.drawing(1):
            inside.set()
            done.wait(60)

    def ask():
        files.append(
            videos.encode_video(service, expected, "gif", 320, 0.4, lambda one, of: drawn.append(one))
        )

    drawn = []
    holder, asker = threading.Thread(target=hold), threading.Thread(target=ask)
    holder.start()
    assert inside.wait(60)
    asker.start()
    line = service.work.turns._lines["expensive"]
    with service.work.turns._changed:
        assert service.work.turns._changed.wait_for(lambda: line.waiting, 60)
    assert drawn == []
    done.set()
    asker.join(60)
    holder.join(60)
    assert drawn == list(range(1, 9)) and Image.open(io.BytesIO(files[0])).n_frames == 8


def test_full_queue_rejects_a_video(service, expected):
    limit, service.work.turns._most = service.work.turns._most, 0
    try:
        with service.work.drawing(1):
            errors = []

            def ask():
                try:
                    videos.encode_video(service, expected, "gif", 320, 0.4)
                except TooMuch as error:
                    errors.append(error)

            asker = threading.Thread(target=ask)
            asker.start()
            asker.join(60)
        assert len(errors) == 1
    finally:
        service.work.turns._most = limit


def test_training_video_is_limited_to_maximum_frames(service, key, monkeypatch):
    monkeypatch.setattr(videos, "MOST", 3)
    video = videos.page_video(service, key, "filters", {})
    steps = [moment.step for moment in vitviz.training_snapshots("vitviz-tiny")]
    expected = [f"{steps[at]:,}" for at in (0, round((len(steps) - 1) / 2), -1)]
    assert all(f"Training step {step}" in label for step, label in zip(expected, video.labels, strict=True))


@pytest.mark.parametrize(
    "asked",
    [
        {"film.width": "9999"},
        {"film.width": "1400"},  # valid in Python
        {"film.width": "481"},
        {"film.width": "1e2"},
        {"film.seconds": "9"},
        {"film.seconds": "0"},
        {"film.seconds": "1e9"},
        {"film.over": "time"},
        {"film.detail": "yes"},
        {"film.colour": "red"},
        {"film.lang": "../../x"},
        {"film.ticket": "../x"},
        {"fusion": "sum"},
    ],
)
def test_invalid_video_setting_is_rejected(service, key, asked):
    with pytest.raises(VitvizError):
        videos.video_file(service, key, "rollout", "gif", {**LAYER_VIDEO, **asked})


@pytest.mark.parametrize(
    "asked", [{"width": "9999"}, {"width": "481"}, {"width": "3"}, {"seconds": "9"}, {"seconds": "0"}]
)
def test_invalid_video_setting_is_rejected_before_computing(service, key, asked, monkeypatch):
    monkeypatch.setattr(videos, "page_video", lambda *given, **named: pytest.fail("figures were computed"))
    with pytest.raises(VitvizError, match="expected|no whole number"):
        videos.video_file(
            service, key, "rollout", "gif", {f"film.{name}": one for name, one in asked.items()}
        )
    monkeypatch.setattr(service, "look", lambda *given, **named: pytest.fail("the image was analysed"))
    with pytest.raises(VitvizError, match="expected|no whole number"):
        Endpoints(service).film("coffee", **{name: int(one) for name, one in asked.items()})


def test_unknown_format_view_or_key_raises(service, key):
    for wrong in (("no such key", "rollout", "gif"), (key, "cls", "gif"), (key, "rollout", "avi")):
        with pytest.raises(Unknown):
            videos.video_file(service, *wrong, LAYER_VIDEO)
    with pytest.raises(VitvizError, match="no figure for print"):
        videos.video_file(service, key, "tour", "gif", {})


def test_average_over_image_set_has_no_video(service, key, tmp_path):
    vitviz.sample_image("rocket").save(path := tmp_path / "rocket.png")
    survey, _ = list(service.sets.surveying(key, [str(path)]))[-1]
    with pytest.raises(Unknown, match="one image"):
        videos.video_file(service, survey, "distance", "gif", {})
    assert "one image" in videos.video_lengths(service, survey, "distance", {})["training"]["text"]
