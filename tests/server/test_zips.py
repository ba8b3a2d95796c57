"""What is read out of a stranger's zip: as Python's own zipfile reads it, and never more than it may be."""

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


def made(*inside: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        archive.comment = comment
        for name, data in inside:
            archive.writestr(name, data)
    return held.getvalue()


USUAL = (("a/b.npz", b"0" * 999), ("settings.json", b'{"a": 1}' * 9), ("upload.jpg", bytes(range(256)) * 300))


def changed(data: bytes, at: int, form: str, value: int) -> bytes:
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def entry_of(data: bytes, name: str) -> int:
    """Where the directory speaks of a file."""
    return data.rindex(name.encode()) - 46


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"PK\x05\x06 or not", b"x" * 65_535])
def test_it_is_what_pythons_zipfile_reads(method, comment):
    data = made(*USUAL, ("second/settings.json", b"another"), method=method, comment=comment)
    if b"PK" in comment:  # a sign of the end behind the end: which is meant cannot be known
        with pytest.raises(NoZip, match="damaged"):
            files(data, WANTED)
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert files(data, WANTED) == {name: archive.read(name) for name in WANTED}
    assert files(data, {"second/settings.json": 7, "nothing": 9}) == {"second/settings.json": b"another"}


def test_a_file_on_the_disk_is_read_as_well(tmp_path):
    (tmp_path / "a.zip").write_bytes(made(*USUAL))
    with (tmp_path / "a.zip").open("rb") as file:
        assert zips.read_files(file, WANTED) == files(made(*USUAL), WANTED)


def test_no_more_than_is_wanted_is_inflated_whatever_a_zip_says_of_itself():
    bomb = made(("settings.json", bytes(300 * 2**20)))
    small = changed(bomb, entry_of(bomb, "settings.json") + 24, "<L", 900)  # 900 bytes, it says
    tracemalloc.start()
    with pytest.raises(NoZip, match="larger than 0 KB"):
        files(bomb, WANTED)
    with pytest.raises(NoZip, match="damaged"):
        files(small, WANTED)
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()
    assert files(bomb, {"other": 1}) == {}, "and nothing at all of what is not wanted"


def test_of_many_entries_none_is_kept():
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
        (20, "<L", 3),  # breaks off
        (20, "<L", 2**32 - 1),
        (24, "<L", 5),  # is longer than it says
        (42, "<L", 7),  # lies elsewhere
        (42, "<L", 2**32 - 1),
        (0, "<L", 0),  # no entry
        (28, "<H", 65_535),  # a name beyond the end
    ],
)
def test_what_does_not_fit_together_is_refused(at, form, value):
    data = made(*USUAL)
    with pytest.raises(NoZip):
        files(changed(data, entry_of(data, "settings.json") + at, form, value), WANTED)


def test_a_name_counts_only_letter_by_letter_and_only_once():
    paths = ("../settings.json", "/settings.json", "./settings.json", "a/settings.json", "SETTINGS.JSON")
    assert files(made(*[(path, b"x") for path in paths]), WANTED) == {}
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = made(("settings.json", b"one"), ("settings.json", b"two"))
    with pytest.raises(NoZip):
        files(twice, WANTED)


@pytest.mark.parametrize("data", [b"", b"PK", b"\xff\xd8\xff\xe0", b"PK\x05\x06", b"Dear diary" * 9_999])
def test_what_is_no_zip_is_a_sentence(data):
    with pytest.raises(NoZip, match="damaged or of an unsupported kind"):
        files(data, WANTED)


def test_a_damaged_zip_is_read_right_or_refused():
    data, rng = made(*USUAL), random.Random(0)
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
