"""Lessons that are damaged or ask for too much, the same for the same seed."""

import io
import json
import random
import struct
import zipfile
from functools import lru_cache
from pathlib import Path

from tests.attack import hostile_pictures
from tests.attack.stranger import picture


def make(name: str, folder: Path) -> None:
    """Writes the zip of a seed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lesson.zip").write_bytes(lesson(name))


def tried(folder: Path) -> None:
    """What is done with it: read, and its picture opened."""
    from vitviz.engine.pictures.images import open_image
    from vitviz.ui.serving import lessons

    found = lessons.opened(folder, "lesson")
    if found.picture is not None:
        open_image(found.picture)


def lesson(name: str) -> bytes:
    """The bytes of a seed."""
    rng = random.Random(name)
    how = rng.choice(["bytes"] * 3 + ["cut", "told", "picture", "bomb", "many", "end", "names"])
    told, inside, more = _told(), picture(), []
    if how == "told":
        told = _strange(rng)
    if how == "picture":
        inside = hostile_pictures.picture(name)
    if how == "bomb":
        told, inside = rng.choice([(_zeros(), inside), (told, _zeros())])
    if how == "names":
        more = [
            (one, b"x") for one in ("/etc/passwd", "../../settings.json", "x" * 65_000, "upload.jpg\0", "a/")
        ]
    data = _zipped([("settings.json", told), ("upload.jpg", inside), *more])
    if how == "many":
        entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 16)
        data += entry * 400_000 + struct.pack(
            "<4s4H2LH", b"PK\x05\x06", 0, 0, 9, rng.choice([9, 65_535]), 9, 0, 0
        )
    if how == "end":
        at = len(data) - 22 + rng.randrange(4, 20)
        data = data[:at] + rng.choice([b"\xff\xff", b"\0\0", rng.randbytes(2)]) + data[at + 2 :]
    if how == "cut":
        return data[: rng.randrange(len(data))]
    return hostile_pictures.changed(data, rng) if how == "bytes" else data


def _zipped(files: list[tuple[str, bytes]]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return held.getvalue()


def _told() -> bytes:
    return json.dumps(
        {"lesson": {"checkpoint": "vitviz-tiny", "settings": {"rollout": {"fusion": "max"}}}}
    ).encode()


def _strange(rng: random.Random) -> bytes:
    deep = rng.choice([b"[", b'{"lesson":']) * 50_000
    name = json.dumps({"lesson": {"checkpoint": "../../etc/passwd", "tab": [], "settings": 3}}).encode()
    wrong = [b"", b"null", b"\xff\xfe", deep, name, b'{"lesson": {"checkpoint": 1e999, "settings": {}}}']
    return rng.choice([*wrong, b'{"lesson": ' + b"9" * 10_000 + b"}", rng.randbytes(999)])


@lru_cache
def _zeros() -> bytes:
    return bytes(200 * 2**20)
