"""How often a JPEG file goes over its picture: a progressive one in scans, each at the whole's cost.

A file of 2.6 MB can ask for 20,000 of them, which keeps a core busy for an hour. Progressive files have about
ten (10 for colour and 6 for grey by libjpeg's own script, 9 to 12 by mozjpeg's), baseline ones one to four.
"""

import re

from vitviz.errors import ImageError

MAX_SCANS = 100  # what libtiff allows, too
MAX_WORK = 1_200_000_000  # scans x pixels: 15 scans of the largest picture, 100 of one of 12 million pixels

_MARKER = re.compile(rb"\xff+([^\x00\xff])")  # fill bytes may stand before one; a zero behind 0xff is data
_SCAN, _END, _ALONE = 0xDA, 0xD9, {0x01, *range(0xD0, 0xD9)}  # T.81, table B.1: these have no length


def scans(data: bytes) -> int:
    """How many scans a JPEG file's first picture has by its markers (T.81, annex B), up to `MAX_SCANS` + 1.

    >>> scans(bytes.fromhex("ffd8 ffda0002 00ff00 ffd0 12 ffda0002 34 ffd9 ffda0002"))
    2
    """
    found, place = 0, 0
    while found <= MAX_SCANS:
        marker = _MARKER.search(data, place)
        if marker is None or marker[1][0] == _END:
            break
        place = marker.end()
        if marker[1][0] in _ALONE:
            continue
        found += marker[1][0] == _SCAN
        length = int.from_bytes(data[place : place + 2], "big")
        place += max(length, 2)  # of a thumbnail within a segment nothing is counted
    return found


def require_few_scans(name: str, data: bytes, size: tuple[int, int]) -> None:
    """ImageError where decoding a JPEG of this (width, height) would go over the picture too often."""
    found, pixels = scans(data), size[0] * size[1]
    if found > MAX_SCANS or found * pixels > MAX_WORK:
        count = f"more than {MAX_SCANS}" if found > MAX_SCANS else str(found)
        raise ImageError(
            f"{name} is a JPEG in {count} scans of {pixels / 1e6:.3g} million pixels: at most {MAX_SCANS}"
            f" scans, and {MAX_WORK // 10**6} million pixels in all of them, are decoded. Save it again, as a"
            " baseline JPEG or PNG."
        )
