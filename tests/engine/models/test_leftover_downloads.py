"""Incomplete downloads left in the hub's cache, which other programs share."""

import os
import time

from filelock import FileLock

from vitviz.engine.hub import downloads


def test_only_abandoned_downloads_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads.constants, "HF_HUB_CACHE", str(tmp_path))
    blobs, locks = tmp_path / "models--a--b" / "blobs", tmp_path / ".locks" / "models--a--b"
    blobs.mkdir(parents=True), locks.mkdir(parents=True)
    names = (
        "old.1f.incomplete",
        "unlocked.2f.incomplete",
        "locked.3f.incomplete",
        "new.4f.incomplete",
        "whole",
    )
    for name in names:
        (blobs / name).write_bytes(b"some")
        age = 1 if name.startswith("new") else 60
        os.utime(blobs / name, (time.time() - age,) * 2)
    (locks / "unlocked.lock").touch()
    with FileLock(locks / "locked.lock"):
        downloads.remove_leftovers()
    left = {path.name for path in blobs.iterdir()}
    assert left == {"locked.3f.incomplete", "new.4f.incomplete", "whole"}
    downloads.remove_leftovers()
    assert {path.name for path in blobs.iterdir()} == {"new.4f.incomplete", "whole"}
    monkeypatch.setattr(downloads.constants, "HF_HUB_CACHE", str(tmp_path / "none"))
    downloads.remove_leftovers()
