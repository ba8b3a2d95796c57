"""Read a few files from an untrusted zip, each named in advance and limited in size.

Python's zipfile creates an object for every entry that a directory claims, half a million in 20 MB, before
anything can be counted. The directory size in the end record is not reliable either, since a zip64 record
before it may name another directory. This module walks the directory without storing it, counts bytes while
inflating, and only compares names from the zip, never uses them. The file is read, not memory-mapped: if
overwritten in place, a mapped file would end the process. Format: PKWARE's APPNOTE 6.3, sections 4.3.7,
4.3.12 and 4.3.16; no zip64, multiple disks or encryption, which our own zips never use.
"""

import os
import struct
import zlib
from collections.abc import Mapping
from typing import BinaryIO

from vitviz.errors import VitvizError
from vitviz.traces.localized_text import LocalizedText

MOST_FILES = 2_000  # two checkpoints with every view have fewer than a hundred
DAMAGED = "This zip is damaged or of an unsupported kind. Download it again and do not change it."
TOO_MANY = "This zip has more than {count} files, which is the limit."
TOO_LARGE = "{name} in this zip is larger than {size}, which is the limit."

_END = struct.Struct("<4s4H2LH")  # end of the directory: number of entries, size, offset
_ENTRY = struct.Struct("<4s6H3L5H2L")  # one entry of the directory, before its name
_LOCAL = struct.Struct("<4s5H3L2H")  # local header before the file's bytes
_COMMENT = 65_535  # maximum length of the comment after the end record
STORED, DEFLATED = 0, 8


class NoZip(VitvizError):
    """The file is not a zip, is damaged, or exceeds a limit."""


def read_files(file: BinaryIO, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """Return the `wanted` files (name -> maximum bytes) that the zip contains. Raises NoZip with the reason.

    >>> import io, zipfile
    >>> with zipfile.ZipFile(held := io.BytesIO(), "w") as archive:
    ...     archive.writestr("a.txt", "one"), archive.writestr("b.txt", "two")
    (None, None)
    >>> read_files(held, {"a.txt": 10, "c.txt": 10})
    {'a.txt': b'one'}
    """
    names, contents = {name.encode(): name for name in wanted}, {}
    try:
        last = _read(file, max(0, file.seek(0, os.SEEK_END) - _END.size - _COMMENT), _END.size + _COMMENT)
        end = last.rfind(b"PK\x05\x06")
        if end < 0:
            raise NoZip(DAMAGED)
        *_, count, _, at, _ = _END.unpack_from(last, end)
        if count > MOST_FILES:
            raise NoZip(LocalizedText(TOO_MANY, count=MOST_FILES))
        for _ in range(count):
            entry = _ENTRY.unpack(_read(file, at, _ENTRY.size))
            sign, *about, name_size, extra, comment, _, _, _, start = entry
            name = names.get(file.read(name_size))
            if sign != b"PK\x01\x02" or name in contents:
                raise NoZip(DAMAGED)
            if name is not None:
                _, _, flags, method, _, _, check, packed, size = about
                if size > (most := wanted[name]):
                    written = f"{most / 2**20:g} MB" if most >= 2**20 else f"{most // 2**10} KB"
                    raise NoZip(LocalizedText(TOO_LARGE, name=name, size=written))
                if flags & 1 or method not in (STORED, DEFLATED):
                    raise NoZip(DAMAGED)
                contents[name] = _decompress(_entry_bytes(file, start, packed), method, size, check)
            at += _ENTRY.size + name_size + extra + comment
    except struct.error:
        raise NoZip(DAMAGED) from None
    return contents


def _entry_bytes(file: BinaryIO, start: int, size: int) -> bytes:
    """Return the stored (compressed) bytes of the file whose local header is at `start`."""
    sign, *_, name, extra = _LOCAL.unpack(_read(file, start, _LOCAL.size))
    start += _LOCAL.size + name + extra
    if sign != b"PK\x03\x04" or start + size > file.seek(0, os.SEEK_END):
        raise NoZip(DAMAGED)
    return _read(file, start, size)


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    """Read a number of bytes from a position; fewer at the end of the file."""
    file.seek(start)
    return file.read(size)


def _decompress(packed: bytes, method: int, size: int, check: int) -> bytes:
    """Return a file's decompressed bytes. Raises NoZip if size or checksum differ from those declared."""
    data, ended = packed, True
    if method == DEFLATED:
        inflating = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = inflating.decompress(packed, size + 1)
        except zlib.error:
            raise NoZip(DAMAGED) from None
        ended = inflating.eof
    if len(data) != size or not ended or zlib.crc32(data) != check:
        raise NoZip(DAMAGED)
    return data
