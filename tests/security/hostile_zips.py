"""Lessons that are damaged, lie or ask for too much, the same for the same seed."""

import io
import json
import random
import struct
import warnings
import zipfile
from functools import lru_cache

from tests.security import hostile_pictures
from tests.security.hostile_calls import VALUES
from tests.security.stranger import picture

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
    """The bytes of a seed."""
    rng = random.Random(name)
    how = rng.choice(KINDS)
    told, inside = said(), picture()
    if how == "fields":
        told = said(**{rng.choice(FIELDS): rng.choice(VALUES) for _ in range(2)})
    if how == "paths":
        told = said(**{rng.choice(("checkpoint", "second", "sample")): rng.choice(PATHS)})
    if how == "form":
        told = _form(rng)
    if how == "picture":
        inside = hostile_pictures.picture(name)
    if how == "bomb":
        told, inside = rng.choice([(_zeros(), inside), (told, _zeros())])
    files = [("settings.json", told), ("upload.jpg", inside)]
    if how == "names":
        files += [(one, b"x") for one in NAMES]
    if how == "twice":
        files += rng.choices(files, k=rng.choice([1, 1_000]))
    if how == "link":
        at = rng.randrange(2)
        files[at] = (_link(files[at][0]), rng.choice(PATHS).encode())
    data = zipped(files)
    if how == "many":
        entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 16)
        data += entry * 400_000 + struct.pack(
            "<4s4H2LH", b"PK\x05\x06", 0, 0, 9, rng.choice([9, 65_535]), 9, 0, 0
        )
    if how == "end":
        at = len(data) - 22 + rng.randrange(4, 20)
        data = data[:at] + rng.choice([b"\xff\xff", b"\0\0", rng.randbytes(2)]) + data[at + 2 :]
    if how == "lies":
        data = _lying(data, rng)
    if how == "cut":
        return data[: rng.randrange(len(data))]
    return hostile_pictures.changed(data, rng) if how == "bytes" else data


def zipped(files: list[tuple[str | zipfile.ZipInfo, bytes]]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a name that is there twice
        for name, data in files:
            archive.writestr(name, data)
    return held.getvalue()


def _link(name: str) -> zipfile.ZipInfo:
    """A file that says that it is a symbolic link."""
    link = zipfile.ZipInfo(name)
    link.create_system, link.external_attr = 3, 0o120777 << 16
    return link


def _lying(data: bytes, rng: random.Random) -> bytes:
    """What the directory says of one of the two files is not so."""
    entry = data.rindex(rng.choice([b"settings.json", b"upload.jpg"])) - 46
    at = entry + rng.choice([8, 10, 16, 20, 24, 28, 30, 42])  # flags, method, checksum, sizes, lengths, place
    return data[:at] + rng.choice([b"\0" * 4, b"\xff" * 4, rng.randbytes(4)]) + data[at + 4 :]


SEEN = {
    "checkpoint": "vitviz-tiny", "second": "", "size": "", "sample": "", "without": "", "tab": "rollout",
    "settings": {"rollout": {"fusion": "max"}},
}  # fmt: skip
FIELDS = [*SEEN, "more"]


def said(**other: object) -> bytes:
    """A lesson's description, in which something is `other`."""
    return json.dumps({"lesson": {**SEEN, **other}}).encode("utf-8", "surrogatepass")


def _form(rng: random.Random) -> bytes:
    """A description that is none."""
    deep = rng.choice([b"[", b'{"lesson":']) * 50_000
    wrong = [b"", b"null", b"[]", b"\xff\xfe", deep, b'{"lesson": {"checkpoint": 1e999, "settings": {}}}']
    return rng.choice([*wrong, b'{"lesson": ' + b"9" * 10_000 + b"}", rng.randbytes(999)])


@lru_cache
def _zeros() -> bytes:
    return bytes(200 * 2**20)
