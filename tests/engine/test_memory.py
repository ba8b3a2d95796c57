"""A checkpoint that does not fit into memory is rejected before download, reading and building, with both
sizes.
"""

import subprocess
import sys

import pytest
import timm
import torch

from tests.engine.small_models import save_model, small_vit
from vitviz.engine import memory
from vitviz.engine.adapters import load as loading
from vitviz.engine.hub import downloads
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import OutOfMemory
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


@pytest.fixture
def forbid_loading(monkeypatch):
    """Make any download, read of tensors or building of a model fail the test."""

    def fail(*args, **kwargs):
        raise AssertionError(f"was called: {args[:2]}")

    monkeypatch.setattr(downloads, "fetch", fail)
    monkeypatch.setattr(downloads, "cached_weights", lambda location: None)
    monkeypatch.setattr(loading, "read_tensors", fail)
    monkeypatch.setattr(timm, "create_model", fail)


def set_free_memory(monkeypatch, machine, device=None):
    monkeypatch.setattr(memory, "free_bytes", lambda where: machine if where.type == "cpu" else device)


def test_hub_checkpoint_is_rejected_before_download(monkeypatch, forbid_loading):
    set_free_memory(monkeypatch, 2 * 10**9)
    with pytest.raises(
        OutOfMemory, match=r"needs about 2\.4 GB, but only 2\.0 GB are free\. Nothing was loaded"
    ) as error:
        loading.load(find_checkpoint("vit_large_patch16_224.augreg_in21k"))
    assert str(error.value).startswith(
        "Loading vit_large_patch16_224.augreg_in21k with 304 million parameters"
    )


def test_memory_message_explains_reserve(monkeypatch, forbid_loading):
    set_free_memory(monkeypatch, 2_600_000_000)
    with pytest.raises(
        OutOfMemory, match=r"needs about 2\.4 GB, but only 2\.6 GB are free, a fifth of which is kept"
    ):
        loading.load(find_checkpoint("vit_large_patch16_224.augreg_in21k"))


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_file_is_rejected_before_reading(ending, monkeypatch, tmp_path, request):
    model, path = small_vit(), tmp_path / f"mine.{ending}"
    save_model(model, path) if ending == "safetensors" else torch.save(model.state_dict(), path)
    request.getfixturevalue("forbid_loading")
    count = sum(tensor.numel() for tensor in model.state_dict().values())
    set_free_memory(monkeypatch, 8 * count)  # without the fifth that is kept free
    with pytest.raises(OutOfMemory, match=r"mine\.\w+ with 0\.4\d+ million"):
        loading.load(find_checkpoint(str(path)))
    set_free_memory(monkeypatch, int(11 * count))
    with pytest.raises(AssertionError, match="was called"):
        loading.load(find_checkpoint(str(path)))


def test_unknown_repository_is_rejected_at_first_bytes(monkeypatch, forbid_loading):
    set_free_memory(monkeypatch, 10**9)
    events = []

    def report_progress(checkpoint, progress):
        progress(1, 700_000_000)
        events.append("all of it")

    monkeypatch.setattr(loading, "files_of", report_progress)
    with pytest.raises(
        OutOfMemory, match=r"somebody/something with 175 million parameters needs about 1\.4 GB"
    ):
        loading.load(
            find_checkpoint("somebody/something"), progress=lambda done, total: events.append((done, total))
        )
    assert events == []


def test_device_memory_must_hold_model_once(monkeypatch, forbid_loading):
    checkpoint, cuda = find_checkpoint("vit_large_patch16_224.augreg_in21k"), torch.device("cuda:0")
    set_free_memory(monkeypatch, 64 * 10**9, 10**9)
    with pytest.raises(
        OutOfMemory, match=r"to cuda:0 needs about 1\.2 GB, but only 1\.0 GB are free.*--device cpu"
    ):
        loading.load(checkpoint, device=cuda)
    with pytest.raises(AssertionError, match="was called"):
        loading.load(checkpoint, device=cuda, dtype=torch.bfloat16)


def test_page_keeps_current_model_after_memory_error(monkeypatch):
    service = AnalysisService(ServiceSettings(device="cpu"))
    image = service.pictures.sample("chelsea")
    key = service.look(image, "vitviz-tiny")
    before = service.subject(key).trace
    set_free_memory(monkeypatch, 10**9)
    with pytest.raises(OutOfMemory, match="needs about 2.4 GB, but only 1.0 GB are free"):
        service.look(image, "vit_large_patch16_224.augreg_in21k")
    assert service.subject(key).trace is before


def test_container_limit_counts_without_reclaimable_pages(tmp_path, monkeypatch):
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


def test_container_limit_of_cgroup_v1_is_read(tmp_path):
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
def test_loading_uses_predicted_memory(tmp_path):
    """The peak of a separate process above its initial memory, relative to `bytes_to_load`."""
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
    predicted = memory.bytes_to_load(sum(parameter.numel() for parameter in model.parameters()))
    assert 0.9 * predicted < int(printed) < 1.15 * predicted, (
        f"{int(printed) / predicted:.2f} of the prediction"
    )


MEASURE_PEAKS = """
import ctypes, gc, re, vitviz
from vitviz.server.services.work import DRAWN
def kib(name): return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
def shares(make, predicted):
    gc.collect(), ctypes.CDLL(None).malloc_trim(0)  # freed memory kept by the allocator would be reused
    open("/proc/self/clear_refs", "w").write("5")  # resets the peak
    before = kib("VmRSS")
    kept.append(make())  # freed memory would be reused
    return (kib("VmHWM") - before) * 1024 / predicted
inspector, photo, kept = vitviz.load("vitviz-tiny", device="cpu"), vitviz.sample_image("chelsea"), []
figure = vitviz.figure("tokens", inspector, inspector.trace(photo), detail=True)
figure.file("png", 40, 150)
for size in (384, 512):
    print(shares(lambda: inspector.trace(photo, size=size), inspector.demand(size).nbytes))
print(shares(lambda: figure.file("png", 250, 300), DRAWN * figure.pixels(250, 300)))
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_pass_and_drawing_use_predicted_memory():
    printed = subprocess.run(
        [sys.executable, "-c", MEASURE_PEAKS], capture_output=True, text=True, check=True
    ).stdout
    shares = [float(line) for line in printed.split()]
    assert all(0.5 < share < 1.25 for share in shares), f"{shares} of the prediction"
