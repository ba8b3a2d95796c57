"""Weights files that are replaced, overwritten or unreadable while the program runs."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file

import vitviz.server.services.analysis_service as service_module
from tests.engine.models.hostile import random_weights, save_valid_checkpoint
from tests.engine.models.hub_server import ROOT
from vitviz.engine import files_unchanged, load
from vitviz.errors import CheckpointError, OutOfMemory
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


@pytest.fixture
def folder(tmp_path):
    save_valid_checkpoint(tmp_path / "weights" / "mine")
    return tmp_path / "weights"


def replace_weights(folder, seed):
    """Replace the weights by others of the same size and modification time, as a careless copy does."""
    path = folder / "mine" / "model.safetensors"
    before = path.stat()
    save_file(random_weights(seed), path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_replaced_weights_are_noticed_and_equal_ones_are_not(folder):
    checkpoint = load(str(folder / "mine"), device="cpu").checkpoint
    assert files_unchanged(checkpoint)
    replace_weights(folder, 0)  # rewritten with the same content
    assert files_unchanged(checkpoint)
    replace_weights(folder, 1)
    assert not files_unchanged(checkpoint)
    assert load(str(folder / "mine"), device="cpu").checkpoint.identity != checkpoint.identity


def test_changed_config_counts_as_changed_checkpoint(folder):
    checkpoint = load(str(folder / "mine"), device="cpu").checkpoint
    config = folder / "mine" / "config.json"
    config.write_text(config.read_text().replace("0.5", "0.4"))
    assert not files_unchanged(checkpoint)


def test_deleted_weights_do_not_count_as_changed(folder):
    checkpoint = load(str(folder / "mine"), device="cpu").checkpoint
    (folder / "mine" / "model.safetensors").unlink()
    assert files_unchanged(checkpoint)


@pytest.fixture
def service(folder):
    return AnalysisService(ServiceSettings(checkpoint="mine", weights=folder, device="cpu"))


def test_page_uses_new_weights_and_says_so(service, folder):
    from vitviz.server.page.facts import prediction_facts

    image = service.pictures.sample("chelsea")
    old = service.look(image, "mine")
    logits = service.subject(old).trace.logits
    assert service.look(image, "mine") == old
    replace_weights(folder, 1)
    new = service.look(image, "mine")
    assert new != old and abs(service.subject(new).trace.logits - logits).max() > 0.01
    expected = load(str(folder / "mine"), device="cpu").trace(service.pictures.opened(image)).logits
    assert abs(service.subject(new).trace.logits - expected).max() < 1e-5
    notes = [note["text"] for note in prediction_facts(service.subject(new))["notes"]]
    assert (
        "The checkpoint’s files changed while the server was running. The page now uses the new weights."
    ) in notes


@pytest.mark.parametrize("evicted", [False, True])
def test_key_of_old_weights_never_gives_new_weights(service, folder, evicted):
    old = service.look(service.pictures.sample("chelsea"), "mine")
    replace_weights(folder, 1)
    if evicted:
        service.checkpoints._inspectors = service_module.Cache(10**9, lambda inspector: 1)
    logits = service.subject(old).trace.logits  # the trace still belongs to the old weights
    with pytest.raises(CheckpointError, match="have been replaced on the server.*Analyse it again"):
        _ = service.subject(old).inspector
    assert torch.equal(service.subject(old).trace.logits, logits)
    service._traces = service_module.Cache(10**9, lambda trace: 1)
    with pytest.raises(CheckpointError, match="have been replaced on the server.*Analyse it again"):
        service.subject(old)
    with pytest.raises(CheckpointError, match="have been replaced"):
        list(service.sets.surveying(old, []))


@pytest.mark.processes
@pytest.mark.parametrize("ending", ["safetensors", "pth", "npz"])
def test_file_truncated_during_load_does_not_end_process(ending, tmp_path):
    """The load runs in a process of its own: if part of a memory-mapped file is gone, the operating system
    ends the process.
    """
    path = save_valid_checkpoint(tmp_path / "mine", ending)
    code = f"""
    import os
    from pathlib import Path
    from vitviz.engine.adapters import load
    from vitviz.engine.hub.catalogue import find_checkpoint as find
    from vitviz.errors import VitvizError
    own = load.load_weights_into
    def cut(*given):
        os.truncate({str(path)!r}, 100)  # as `cp` does before it writes
        return own(*given)
    load.load_weights_into = cut
    load.files_unchanged = lambda checkpoint: True  # skips the check that would raise
    try:
        found = load.load(find({str(path.parent)!r}))
        print("loaded", bool(found.model.head.weight.isfinite().all()))
    except VitvizError as error:
        print("refused", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("loaded True"), (
        done.returncode,
        done.stdout,
        done.stderr[-500:],
    )


def test_file_changed_during_load_is_rejected(folder, monkeypatch):
    from vitviz.engine.adapters import load as loading

    original = loading.read_tensors

    def read_and_replace(path, *chosen):
        tensors = original(path, *chosen)
        replace_weights(folder, 1)
        return tensors

    monkeypatch.setattr(loading, "read_tensors", read_and_replace)
    with pytest.raises(
        CheckpointError, match="mine was overwritten while it was being read, and nothing was loaded. Wait"
    ):
        load(str(folder / "mine"), device="cpu")


@pytest.mark.parametrize("path", ["", "model.safetensors"])
def test_missing_permission_is_reported_without_server_path(path, folder, monkeypatch):
    where = folder / "mine" / path

    def deny(method):
        def denied(self, *args, **options):
            if self.is_relative_to(folder):
                raise PermissionError(13, "Permission denied", str(self))
            return method(self, *args, **options)

        return denied

    for name in ("stat", "iterdir", "open"):
        monkeypatch.setattr(type(where), name, deny(getattr(type(where), name)))
    with pytest.raises(CheckpointError, match="permission denied") as error:
        load(str(where), device="cpu")
    assert str(folder) not in str(error.value)


def test_out_of_memory_message_never_quotes_allocator(folder, monkeypatch):
    from vitviz.engine.formats import weights as reading

    def raise_out_of_memory(data):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"
        )

    monkeypatch.setattr(reading, "tensors_in", raise_out_of_memory)
    with pytest.raises(OutOfMemory, match="model.safetensors needs more memory than is free") as error:
        load(str(folder / "mine"), device="cpu")
    assert "alloc" not in str(error.value)


def test_pipe_in_weights_folder_is_ignored(service, folder):
    os.mkfifo(folder / "endless.safetensors")
    names = [one.name for one in service.checkpoints.selectable()]  # must not block
    assert "endless.safetensors" not in names


@pytest.mark.processes
def test_means_truncated_after_loading_do_not_end_process(tmp_path):
    """A memory-mapped file of float32 means would be used in place."""
    home = tmp_path / "weights" / "vitviz-mine"
    save_valid_checkpoint(home)
    code = f"""
    import os, torch, vitviz
    from hashlib import sha256
    from pathlib import Path
    from safetensors.torch import save_file
    from vitviz.engine.forward import mean_ablation
    home = Path({str(home)!r})
    inspector = vitviz.load("vitviz-mine", device="cpu", folder=home.parent)
    digest = sha256((home / "model.safetensors").read_bytes()).hexdigest()
    about = dict(prefix="1", pictures="3", source="x", weights=digest)
    path = home / mean_ablation.FILE
    save_file(dict(heads=torch.ones(2, 2, 17, 32), mlps=torch.ones(2, 17, 64)), path, about)
    found = inspector.reference()
    os.truncate(path, 100)
    assert found.pictures == 3 and sum(part.sum() for part in found.heads) == 2 * 2 * 17 * 32
    assert mean_ablation.shipped_with(inspector.checkpoint) is None  # the file is damaged
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
