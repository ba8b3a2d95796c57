"""The zip reader for untrusted files equals Python's zipfile and respects size limits."""

import io
import random
import struct
import tracemalloc
import zipfile

import pytest

from vitviz.server.security import zips
from vitviz.server.security.zips import NoZip

WANTED = {"settings.json": 1_000, "upload.jpg": 100_000}


def files(data: bytes, wanted: dict[str, int]) -> dict[str, bytes]:
    return zips.read_files(io.BytesIO(data), wanted)


def make_zip(*inside: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        archive.comment = comment
        for name, data in inside:
            archive.writestr(name, data)
    return held.getvalue()


CONTENT = (
    ("a/b.npz", b"0" * 999),
    ("settings.json", b'{"a": 1}' * 9),
    ("upload.jpg", bytes(range(256)) * 300),
)


def patch_bytes(data: bytes, at: int, form: str, value: int) -> bytes:
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def entry_of(data: bytes, name: str) -> int:
    """Return the offset of a file's entry in the central directory."""
    return data.rindex(name.encode()) - 46


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"PK\x05\x06 or not", b"x" * 65_535])
def test_contents_match_python_zipfile(method, comment):
    data = make_zip(*CONTENT, ("second/settings.json", b"another"), method=method, comment=comment)
    if b"PK" in comment:  # an ambiguous end-of-directory signature
        with pytest.raises(NoZip, match="damaged"):
            files(data, WANTED)
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert files(data, WANTED) == {name: archive.read(name) for name in WANTED}
    assert files(data, {"second/settings.json": 7, "nothing": 9}) == {"second/settings.json": b"another"}


def test_file_on_disk_is_read(tmp_path):
    (tmp_path / "a.zip").write_bytes(make_zip(*CONTENT))
    with (tmp_path / "a.zip").open("rb") as file:
        assert zips.read_files(file, WANTED) == files(make_zip(*CONTENT), WANTED)


def test_zip_bomb_is_rejected_within_memory_limit():
    bomb = make_zip(("settings.json", bytes(300 * 2**20)))
    small = patch_bytes(bomb, entry_of(bomb, "settings.json") + 24, "<L", 900)  # claims 900 bytes
    tracemalloc.start()
    with pytest.raises(NoZip, match="larger than 0 KB"):
        files(bomb, WANTED)
    with pytest.raises(NoZip, match="damaged"):
        files(small, WANTED)
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()
    assert files(bomb, {"other": 1}) == {}, "an unrequested file was read"


def test_many_entries_are_rejected_within_memory_limit():
    one = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 16)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_535, 65_535, 65_535 * len(one), 0, 0)
    tracemalloc.start()
    with pytest.raises(NoZip, match="more than 2000 files"):
        files(one * 65_535 + end, WANTED)
    few = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2_000, 2_000, 2_000 * len(one), 0, 0)
    assert files(one * 65_535 + few, WANTED) == {}
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (8, "<H", 1),  # encrypted
        (10, "<H", 12),  # bzip2
        (16, "<L", 0),  # another checksum
        (20, "<L", 3),  # truncated
        (20, "<L", 2**32 - 1),
        (24, "<L", 5),  # longer than declared
        (42, "<L", 7),  # wrong offset
        (42, "<L", 2**32 - 1),
        (0, "<L", 0),  # no entry
        (28, "<H", 65_535),  # a name beyond the end
    ],
)
def test_inconsistent_zip_is_rejected(at, form, value):
    data = make_zip(*CONTENT)
    with pytest.raises(NoZip):
        files(patch_bytes(data, entry_of(data, "settings.json") + at, form, value), WANTED)


def test_names_must_match_exactly_and_be_unique():
    paths = ("../settings.json", "/settings.json", "./settings.json", "a/settings.json", "SETTINGS.JSON")
    assert files(make_zip(*[(path, b"x") for path in paths]), WANTED) == {}
    with pytest.warns(UserWarning, match="Duplicate"):
        duplicate = make_zip(("settings.json", b"one"), ("settings.json", b"two"))
    with pytest.raises(NoZip):
        files(duplicate, WANTED)


@pytest.mark.parametrize("data", [b"", b"PK", b"\xff\xd8\xff\xe0", b"PK\x05\x06", b"Dear diary" * 9_999])
def test_non_zip_data_is_rejected_with_message(data):
    with pytest.raises(NoZip, match="damaged or of an unsupported kind"):
        files(data, WANTED)


def test_damaged_zip_is_read_correctly_or_rejected():
    data, rng = make_zip(*CONTENT), random.Random(0)
    right, outcomes = files(data, WANTED), set()
    for cut in range(0, len(data), 7):
        with pytest.raises(NoZip):
            files(data[:cut], WANTED)
    for _ in range(3_000):
        other = bytearray(data)
        for _ in range(rng.choice([1, 2, 9])):
            other[
                rng.randrange(len(other) - 400, len(other))
                if rng.random() < 0.7
                else rng.randrange(len(other))
            ] = rng.randrange(256)
        try:
            found = files(bytes(other), WANTED)
        except NoZip:
            outcomes.add("refused")
            continue
        outcomes.add("read")
        assert all(found[name] == right[name] for name in found)
    assert outcomes == {"refused", "read"}
