"""A checkpoint that does not fit is refused before anything of it is fetched, read or built, with both
figures.
"""

import subprocess
import sys

import pytest
import timm
import torch

from tests.engine.small import saved, small
from vitviz.engine import memory
from vitviz.engine.adapters import load as loading
from vitviz.engine.hub import downloads
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import OutOfMemory
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


@pytest.fixture
def nothing_is_touched(monkeypatch):
    """Fails a test that downloads, reads a file's tensors or builds a model."""

    def touched(*args, **kwargs):
        raise AssertionError(f"was called: {args[:2]}")

    monkeypatch.setattr(downloads, "fetch", touched)
    monkeypatch.setattr(downloads, "cached_weights", lambda location: None)
    monkeypatch.setattr(loading, "read_tensors", touched)
    monkeypatch.setattr(timm, "create_model", touched)


def free(monkeypatch, machine, device=None):
    monkeypatch.setattr(memory, "free_bytes", lambda where: machine if where.type == "cpu" else device)


def test_a_checkpoint_of_the_hub_is_refused_before_its_download(monkeypatch, nothing_is_touched):
    free(monkeypatch, 2 * 10**9)
    with pytest.raises(
        OutOfMemory, match=r"needs about 2\.4 GB, but only 2\.0 GB are free\. Nothing was loaded"
    ) as error:
        loading.load(find_checkpoint("vit_large_patch16_224.augreg_in21k"))
    assert str(error.value).startswith(
        "Loading vit_large_patch16_224.augreg_in21k with 304 million parameters"
    )


def test_figures_that_seem_to_fit_are_explained(monkeypatch, nothing_is_touched):
    free(monkeypatch, 2_600_000_000)
    with pytest.raises(
        OutOfMemory, match=r"needs about 2\.4 GB, but only 2\.6 GB are free, a fifth of which is kept"
    ):
        loading.load(find_checkpoint("vit_large_patch16_224.augreg_in21k"))


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_a_file_is_refused_before_it_is_read(ending, monkeypatch, tmp_path, request):
    model, path = small(), tmp_path / f"mine.{ending}"
    saved(model, path) if ending == "safetensors" else torch.save(model.state_dict(), path)
    request.getfixturevalue("nothing_is_touched")
    count = sum(tensor.numel() for tensor in model.state_dict().values())
    free(monkeypatch, 8 * count)  # without the fifth that is kept
    with pytest.raises(OutOfMemory, match=r"mine\.\w+ with 0\.4\d+ million"):
        loading.load(find_checkpoint(str(path)))
    free(monkeypatch, int(11 * count))
    with pytest.raises(AssertionError, match="was called"):
        loading.load(find_checkpoint(str(path)))


def test_a_repository_of_which_nothing_is_known_is_refused_at_its_first_bytes(
    monkeypatch, nothing_is_touched
):
    free(monkeypatch, 10**9)
    told = []

    def arriving(checkpoint, progress):
        progress(1, 700_000_000)
        told.append("all of it")

    monkeypatch.setattr(loading, "files_of", arriving)
    with pytest.raises(
        OutOfMemory, match=r"somebody/something with 175 million parameters needs about 1\.4 GB"
    ):
        loading.load(
            find_checkpoint("somebody/something"), progress=lambda done, total: told.append((done, total))
        )
    assert told == []


def test_a_device_with_memory_of_its_own_has_to_hold_the_model_once(monkeypatch, nothing_is_touched):
    checkpoint, cuda = find_checkpoint("vit_large_patch16_224.augreg_in21k"), torch.device("cuda:0")
    free(monkeypatch, 64 * 10**9, 10**9)
    with pytest.raises(
        OutOfMemory, match=r"on cuda:0 needs about 1\.2 GB, but only 1\.0 GB are free.*--device cpu"
    ):
        loading.load(checkpoint, device=cuda)
    with pytest.raises(AssertionError, match="was called"):
        loading.load(checkpoint, device=cuda, dtype=torch.bfloat16)


def test_the_page_keeps_what_it_shows(monkeypatch):
    service = AnalysisService(ServiceSettings(device="cpu"))
    picture = service.pictures.sample("chelsea")
    key = service.look(picture, "vitviz-tiny")
    before = service.subject(key).trace
    free(monkeypatch, 10**9)
    with pytest.raises(OutOfMemory, match="needs about 2.4 GB, but only 1.0 GB are free"):
        service.look(picture, "vit_large_patch16_224.augreg_in21k")
    assert service.subject(key).trace is before


def test_a_containers_limit_counts_and_pages_that_can_be_dropped_do_not(tmp_path, monkeypatch):
    assert memory.free_in_the_container(tmp_path) is None
    for name, text in (
        ("max", "max\n"),
        ("current", "6000\n"),
        ("stat", "anon 5000\ninactive_file 1500\nactive_file 7\n"),
    ):
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.free_in_the_container(tmp_path) is None
    (tmp_path / "memory.max").write_text("16000\n")
    assert memory.free_in_the_container(tmp_path) == 16000 - 6000 + 1500
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", tmp_path)
    assert memory.free_bytes(torch.device("cpu")) == 11500


def test_an_older_container_says_it_in_other_files(tmp_path):
    (tmp_path / "memory").mkdir()
    for name, text in (
        ("limit_in_bytes", "16000"),
        ("usage_in_bytes", "6000"),
        ("stat", "inactive_file 1\ntotal_inactive_file 500\n"),
    ):
        (tmp_path / "memory" / f"memory.{name}").write_text(text)
    assert memory.free_in_the_container(tmp_path) == 10500


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_loading_takes_what_is_said(tmp_path):
    """The peak of a process of its own over what it held before, in units of what `bytes_to_load` says."""
    model, path = (
        timm.create_model("vit_small_patch16_224", pretrained=False, depth=36),
        tmp_path / "mine.pth",
    )
    torch.save(model.state_dict(), path)
    code = f"""
import re
from vitviz.engine.hub import catalogue
from vitviz.engine.adapters import load
def kib(name): return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
checkpoint, before = catalogue.find_checkpoint({str(path)!r}), kib("VmRSS")
load.load(checkpoint)
print((kib("VmHWM") - before) * 1024)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    said = memory.bytes_to_load(sum(parameter.numel() for parameter in model.parameters()))
    assert 0.9 * said < int(printed) < 1.15 * said, f"{int(printed) / said:.2f} of what is said"


TAKEN = """
import ctypes, gc, re, vitviz
from vitviz.server.services.work import DRAWN
def kib(name): return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
def shares(made, said):
    gc.collect(), ctypes.CDLL(None).malloc_trim(0)  # freed memory kept by the allocator would be taken again
    open("/proc/self/clear_refs", "w").write("5")  # the peak is that of now
    before = kib("VmRSS")
    kept.append(made())  # what is given back would be taken again
    return (kib("VmHWM") - before) * 1024 / said
inspector, photo, kept = vitviz.load("vitviz-tiny", device="cpu"), vitviz.sample_image("chelsea"), []
figure = vitviz.figure("tokens", inspector, inspector.trace(photo), detail=True)
figure.file("png", 40, 150)
for size in (384, 512):
    print(shares(lambda: inspector.trace(photo, size=size), inspector.demand(size).nbytes))
print(shares(lambda: figure.file("png", 250, 300), DRAWN * figure.pixels(250, 300)))
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_a_pass_and_a_drawing_take_what_the_room_for_all_counts_them_as():
    printed = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, check=True).stdout
    shares = [float(line) for line in printed.split()]
    assert all(0.5 < share < 1.25 for share in shares), f"{shares} of what is said"
