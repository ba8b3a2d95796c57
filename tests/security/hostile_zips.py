"""Lesson zips that are damaged, inconsistent or excessive, determined by a seed."""

import io
import json
import random
import struct
import warnings
import zipfile
from functools import lru_cache

from tests.security import hostile_images
from tests.security.client import picture
from tests.security.hostile_calls import VALUES

KINDS = [
    "bytes", "bytes", "cut", "fields", "fields", "paths", "picture", "bomb", "many", "end", "names", "twice",
    "link", "lies", "lies", "form",
]  # fmt: skip
PATHS = [
    "/etc/passwd", "../../etc/passwd", "/proc/self/environ", "/dev/zero", "~/.bashrc", ".", "..", "/",
    "weights", "weights/vitviz-tiny/model.safetensors", "../weights/vitviz-tiny", "local-dir:/etc",
    "hf-hub:x/y", "file:///etc", "http://127.0.0.1:9/x", "C:\\x\\y.pth", "vitviz-tiny@../../x",
    "vitviz-tiny?mapping=/etc/passwd", "vitviz-tiny?heads=3",
]  # fmt: skip
NAMES = ["/etc/passwd", "../../settings.json", "x" * 65_000, "upload.jpg\0", "a/", "..\\..\\x", "CON"]


def lesson(name: str) -> bytes:
    """Return the zip of a seed."""
    rng = random.Random(name)
    kind = rng.choice(KINDS)
    settings, image = lesson_description(), picture()
    if kind == "fields":
        settings = lesson_description(**{rng.choice(FIELDS): rng.choice(VALUES) for _ in range(2)})
    if kind == "paths":
        settings = lesson_description(**{rng.choice(("checkpoint", "second", "sample")): rng.choice(PATHS)})
    if kind == "form":
        settings = _form(rng)
    if kind == "picture":
        image = hostile_images.picture(name)
    if kind == "bomb":
        settings, image = rng.choice([(_zeros(), image), (settings, _zeros())])
    files = [("settings.json", settings), ("upload.jpg", image)]
    if kind == "names":
        files += [(one, b"x") for one in NAMES]
    if kind == "twice":
        files += rng.choices(files, k=rng.choice([1, 1_000]))
    if kind == "link":
        at = rng.randrange(2)
        files[at] = (_link(files[at][0]), rng.choice(PATHS).encode())
    data = write_zip(files)
    if kind == "many":
        entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 16)
        data += entry * 400_000 + struct.pack(
            "<4s4H2LH", b"PK\x05\x06", 0, 0, 9, rng.choice([9, 65_535]), 9, 0, 0
        )
    if kind == "end":
        at = len(data) - 22 + rng.randrange(4, 20)
        data = data[:at] + rng.choice([b"\xff\xff", b"\0\0", rng.randbytes(2)]) + data[at + 2 :]
    if kind == "lies":
        data = _with_false_entry(data, rng)
    if kind == "cut":
        return data[: rng.randrange(len(data))]
    return hostile_images.corrupt(data, rng) if kind == "bytes" else data


def write_zip(files: list[tuple[str | zipfile.ZipInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # duplicate names
        for name, data in files:
            archive.writestr(name, data)
    return buffer.getvalue()


def _link(name: str) -> zipfile.ZipInfo:
    """Return an entry marked as a symbolic link."""
    link = zipfile.ZipInfo(name)
    link.create_system, link.external_attr = 3, 0o120777 << 16
    return link


def _with_false_entry(data: bytes, rng: random.Random) -> bytes:
    """Falsify a field of a central directory entry."""
    entry = data.rindex(rng.choice([b"settings.json", b"upload.jpg"])) - 46
    at = entry + rng.choice(
        [8, 10, 16, 20, 24, 28, 30, 42]
    )  # flags, method, checksum, sizes, lengths, offset
    return data[:at] + rng.choice([b"\0" * 4, b"\xff" * 4, rng.randbytes(4)]) + data[at + 4 :]


VALID_LESSON = {
    "checkpoint": "vitviz-tiny", "second": "", "size": "", "sample": "", "without": "", "tab": "rollout",
    "settings": {"rollout": {"fusion": "max"}},
}  # fmt: skip
FIELDS = [*VALID_LESSON, "more"]


def lesson_description(**other: object) -> bytes:
    """Return the description of a lesson with some fields replaced."""
    return json.dumps({"lesson": {**VALID_LESSON, **other}}).encode("utf-8", "surrogatepass")


def _form(rng: random.Random) -> bytes:
    """Return an invalid description."""
    deep = rng.choice([b"[", b'{"lesson":']) * 50_000
    wrong = [b"", b"null", b"[]", b"\xff\xfe", deep, b'{"lesson": {"checkpoint": 1e999, "settings": {}}}']
    return rng.choice([*wrong, b'{"lesson": ' + b"9" * 10_000 + b"}", rng.randbytes(999)])


@lru_cache
def _zeros() -> bytes:
    return bytes(200 * 2**20)
