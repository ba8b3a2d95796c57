"""Routes return only images, numbers and Gradio's own files, whatever is requested."""

import hashlib
import json
import uuid
from pathlib import Path

import httpx
import numpy as np
import pytest
from gradio.utils import get_upload_folder

from tests.browser.running_app import RunningApp
from tests.server.raw_http import SECRET, expect_rejected, folder_with_symlinks, raw_client
from tests.tiers import sweep
from vitviz.charts.encode import encode_image
from vitviz.errors import CheckpointError
from vitviz.server.api import modules
from vitviz.traces import samples
from vitviz.views import VIEWS

ROOT = Path(__file__).parents[2]
HUGE = "9" * 30
PICTURE = encode_image(np.asarray(samples.sample_image("rocket").resize((30, 20))), ".png")

QUICK = [view for view in VIEWS if view.slug in ("rollout", "distance")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return folder_with_symlinks(tmp_path_factory.mktemp("weights"), tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="module")
def app(folders):
    running = RunningApp("--weights", str(folders[0]))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def key(app):
    return app.service.look(app.service.pictures.sample("chelsea"), "vitviz-tiny")


@pytest.fixture(scope="module")
def get(app):
    with raw_client(app.url) as get:
        yield get


def test_unknown_key_is_rejected_by_all_routes(get, key):
    views = (
        "picture/upload",
        "everything.zip",
        "distance/figure.html",
        "distance/numbers.csv",
        "rollout/numbers.npz",
        "rollout/map",
    )
    views += tuple(f"{view.slug}/{item.name}" for view in VIEWS for item in view.items)
    for wrong in (
        "nokey",
        key[:-1],
        key.upper(),
        "..",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "%ff",
        "*",
        "x" * 4000,
    ):
        for rest in views:
            expect_rejected(get(path := f"/gradio_api/vitviz/{wrong}/{rest}"), path)


def test_known_key_does_not_open_other_paths(get, key):
    for rest in (
        *(
            "picture/../upload",
            "picture/%2e%2e",
            "picture/..%2f..%2f..%2fetc%2fpasswd",
            "picture/secret",
            "picture//etc/passwd",
        ),
        *(
            "nopanel/map",
            "nopanel/numbers.npz",
            "../numbers.npz",
            "%2e%2e/numbers.npz",
            "rollout/..%2f..%2fetc",
            "rollout/",
            "",
            "a/b/c/d",
        ),
        *(
            "vitviz/server/page.py",
            "weights/vitviz-tiny/config.json",
            "%2fetc%2fpasswd/map",
            "explorer/map",
            "explorer/row",
            "rollout/layer",
            "film/1",
        ),
        *(
            "everything.zip?survey.distance=x",
            "everything.zip?../x.y=1",
            "everything.zip?nosuch.setting=1",
            "distance/figure.html?form=../x",
        ),
    ):
        expect_rejected(get(path := f"/gradio_api/vitviz/{key}/{rest}"), path)


def test_invalid_numbers_are_rejected_by_routes(get, key):
    wrong = (HUGE, "9" * 5000, "-1", "1e3", "²", "nan", "..", "0x1", "1 2", "<script>")
    parameters = {
        "rollout/map": ("query", "layers", "discard", "residual"),
        **{f"explorer/{name}": ("layer", "token", "pins", "head") for name in ("line", "pinned")},
        "explorer/wall": ("token",),
        "explorer/numbers.npz": ("layer", "token", "pins"),
        "tour/filter": ("number",),
        "tour/keys": ("layer", "head"),
        "tour/worked": ("layer", "head", "token"),
        "tour/experiment": ("seed",),
        "tour/numbers.npz": ("layer", "head", "token"),
    }
    for view, names in parameters.items():
        for name in names:
            for value in wrong:
                expect_rejected(get(path := f"/gradio_api/vitviz/{key}/{view}?{name}={value}"), path)


@sweep("view", VIEWS, quick=QUICK, ids=lambda view: view.slug)
def test_every_item_rejects_invalid_numbers(get, key, view):
    numbers = [control for control in view.controls if control.kind not in ("choice", "text")]
    for item in (*(item.name for item in view.items), "numbers.npz"):
        for control in numbers:
            for value in (HUGE, "-2", "nan", "<script>"):
                expect_rejected(
                    get(path := f"/gradio_api/vitviz/{key}/{view.slug}/{item}?{control.name}={value}"), path
                )


def test_module_route_serves_frontend_scripts_only(get):
    base = "/" + modules.modules_base()
    outside = ("../pyproject.toml", "%2e%2e/app.py", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "%00")
    others = (
        "server/page/build.py", "frontend/style/base.css", "views/rollout/ko.json", "canvas", "", "frontend/"
    )  # fmt: skip
    for path in (*outside, *others, "frontend/mount.js/../../ui/page/build.py"):
        expect_rejected(get(base + path), path)
    status, kind, body = get(base + "frontend/mount.js")
    assert (status, kind.partition(";")[0]) == (200, "text/javascript") and b"export function mount" in body


def test_symlinks_out_of_the_weights_folder_are_rejected(app, folders):
    offered = [one.name for one in app.service.checkpoints.selectable()]
    assert [name for name in offered if "." not in name and "_" not in name] == ["vitviz-tiny"]
    _, outside = folders
    names = (
        "whole",
        "half",
        "other half",
        "file",
        "file.safetensors",
        "secret.txt",
        "whole/model.safetensors",
    )
    for name in (*names, "../outside0/theirs", str(outside / "theirs")):
        with pytest.raises(CheckpointError) as refusal:
            app.service.checkpoints.inspector(name)
        assert SECRET not in str(refusal.value)


def test_gradio_file_routes_return_no_server_files(get, folders):
    weights, outside = folders
    uploads = get_upload_folder()
    for path in (
        *(
            "/etc/passwd",
            "../../../../../../etc/passwd",
            "%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
            "..%2f..%2f..%2f..%2fetc%2fpasswd",
        ),
        *(
            "file:///etc/passwd",
            "//etc/passwd",
            "/proc/self/environ",
            "/dev/null",
            "~/.profile",
            "%00",
            "http://127.0.0.1:9/x",
        ),
        *("app.py", "vitviz/server/page.py", "weights/vitviz-tiny/config.json", str(ROOT / "app.py")),
        *(str(weights / "vitviz-tiny/config.json"), str(weights / "secret.txt"), str(outside / "secret.txt")),
        *(uploads, f"{uploads}/", f"{uploads}/../../etc/passwd", f"{uploads}/%2e%2e/%2e%2e/etc/passwd"),
    ):
        for route in ("/gradio_api/file=", "/gradio_api/file/", "/file=", "/static/", "/assets/", "/svelte/"):
            expect_rejected(get(route + path), route + path)


def test_upload_path_is_unguessable_and_unlisted(app, get):
    (path,) = httpx.post(app.url + "gradio_api/upload", files={"files": ("mine.png", PICTURE)}).json()
    folder = Path(path).parent
    assert len(folder.name) == 64 and folder.name != hashlib.sha256(PICTURE).hexdigest(), (
        "the path can be computed from the image"
    )
    assert get(f"/gradio_api/file={path}")[2] == PICTURE, "the upload is not served under its path"
    for near in (folder, folder.parent, folder / "other.png", folder.with_name("0" * 64) / "mine.png"):
        expect_rejected(get(f"/gradio_api/file={near}"), str(near))


@pytest.mark.parametrize(
    "trigger, data",
    [
        ("vitviz-upload", [None, "{file}"]),
        ("vitviz-set-files", [None, ["{file}"]]),
    ],
)
def test_server_file_is_rejected_as_upload(app, folders, trigger, data):
    config = app.demo.config
    component = next(one["id"] for one in config["components"] if one["props"].get("elem_id") == trigger)
    listeners = [
        one
        for one in config["dependencies"]
        if one["backend_fn"] and component in [target for target, _ in one["targets"]]
    ]
    function = listeners[0]["id"]
    server_files = ("/etc/passwd", str(folders[1] / "secret.txt"), f"{get_upload_folder()}/../../etc/passwd")
    uploaded = httpx.post(app.url + "gradio_api/upload", files={"files": ("mine.png", PICTURE)}).json()[0]
    for path in (*server_files, uploaded):
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        given = json.loads(json.dumps(data).replace('"{file}"', json.dumps(file)))
        body = {"fn_index": function, "data": given, "session_hash": uuid.uuid4().hex}
        joined = httpx.post(app.url + "gradio_api/queue/join", json=body)
        assert joined.status_code == (200 if path == uploaded else 422), (
            "a request with a foreign file entered the queue"
        )
        if path != uploaded:
            continue
        events = httpx.get(
            app.url + "gradio_api/queue/data", params={"session_hash": body["session_hash"]}
        ).text
        done = next(json.loads(line[5:]) for line in events.splitlines() if "process_completed" in line)
        assert done["success"] and SECRET not in events and "root:" not in events
