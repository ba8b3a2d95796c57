"""Damaged or excessive images, determined by a seed."""

import io
import random
import struct
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

KINDS = [
    ("JPEG", {}), ("JPEG", {"progressive": True}), ("JPEG", {"exif": True}), ("MPO", {"frames": 2}), ("PNG",
    {}),
    ("PNG", {"mode": "I;16"}), ("PNG", {"mode": "P"}), ("PNG", {"mode": "RGBA", "frames": 3}), ("WEBP", {}),
    ("WEBP", {"lossless": True}), ("WEBP", {"frames": 3}), ("GIF", {}), ("GIF", {"frames": 5}), ("BMP", {}),
    ("AVIF", {}), ("TIFF", {}), ("TIFF", {"mode": "I;16"}), ("TIFF", {"mode": "F"}), ("TIFF",
    {"mode": "CMYK"}),
    ("TIFF", {"compression": "tiff_lzw"}), ("TIFF", {"compression": "jpeg"}), ("TIFF", {"mode": "1",
    "compression": "group4"}),
]  # fmt: skip


def make(name: str, folder: Path) -> None:
    """Write the image of a seed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "picture").write_bytes(picture(name))


def tried(folder: Path) -> None:
    """Open the image and prepare it as model input."""
    from vitviz.engine.images.opening import open_image
    from vitviz.engine.images.preprocess import Preprocessing, prepare

    half = (0.5, 0.5, 0.5)
    prepare(open_image(folder / "picture"), Preprocessing((112, 112), half, half))


def picture(name: str) -> bytes:
    """Return the image file of a seed."""
    rng = random.Random(name)
    kind = rng.choice(
        ["bytes"] * 5 + ["tags", "tags", "size", "size", "cut", "many", "scans", "text", "loop"]
    )
    if kind == "tags":
        return _tagged(rng)
    if kind == "many":
        return _chunks(rng)
    if kind == "scans":
        return _scans(rng)
    if kind == "loop":
        return _loop(rng)
    if kind == "text":
        return rng.choice(
            [
                b"",
                b"\0" * 99,
                b"<svg onload=alert(1)>",
                b"%PDF-1.7",
                b"%!PS-Adobe-3.0 EPSF\n",
                rng.randbytes(9_999),
            ]
        )
    data = _valid(rng)
    if kind == "cut":
        return data[: rng.randrange(len(data))]
    return _with_false_size(data, rng) if kind == "size" else corrupt(data, rng)


def _valid(rng: random.Random) -> bytes:
    form, given = rng.choice(KINDS)
    options = dict(given)
    mode, frames, exif = options.pop("mode", "RGB"), options.pop("frames", 1), options.pop("exif", False)
    pixels = np.random.default_rng(rng.getrandbits(32)).integers(0, 255, (24, 40, 3), dtype=np.uint8)
    plain = Image.fromarray(pixels)
    one = {
        "I;16": lambda: Image.fromarray(pixels[..., 0].astype(np.uint16) * 257),
        "F": lambda: Image.fromarray(pixels[..., 0].astype(np.float32) / 255),
    }.get(mode, lambda: plain.convert(mode))()
    if frames > 1:
        options |= {"save_all": True, "append_images": [one.rotate(90 * n) for n in range(1, frames)]}
    if exif:
        tags = Image.Exif()
        tags[0x0112], tags[0x010E] = rng.randrange(-1, 12) % 2**16, "x" * rng.choice([1, 10_000])
        options["exif"] = tags
    file = io.BytesIO()
    one.save(file, form, **options)
    return file.getvalue()


def corrupt(data: bytes, rng: random.Random) -> bytes:
    """Change, remove or repeat some bytes of a file."""
    buffer = bytearray(data)
    for _ in range(rng.choice([1, 2, 5, 30])):
        at = rng.randrange(len(buffer) if rng.random() < 0.5 else min(len(buffer), 120))
        buffer[at : at + rng.choice([1, 1, 1, 0, 4])] = rng.choice(
            [rng.randbytes(1), b"\xff" * 4, b"\0" * 4, rng.randbytes(4), buffer[at : at + 40]]
        )
    return bytes(buffer)


def _with_false_size(data: bytes, rng: random.Random) -> bytes:
    """Replace width and height in the header of a file."""
    width, height = (rng.choice([0, 1, 65535, 2**31 - 1, 2**32 - 1, 30_000, 8_900, 20_000]) for _ in range(2))
    buffer = bytearray(data)
    if data[:4] == b"\x89PNG":
        buffer[16:24] = struct.pack(">II", width, height)
        buffer[29:33] = struct.pack(">I", zlib.crc32(buffer[12:29]))
    elif data[:2] == b"BM":
        buffer[18:26] = struct.pack("<II", width, height)
    elif data[:3] == b"GIF":
        buffer[6:10] = struct.pack("<HH", width % 65536, height % 65536)
    elif data[:3] == b"\xff\xd8\xff":
        at = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
        buffer[at + 5 : at + 9] = struct.pack(">HH", height % 65536, width % 65536)
    else:
        buffer = bytearray(corrupt(data, rng))
    return bytes(buffer)


def _tagged(rng: random.Random) -> bytes:
    """Return a TIFF of one strip with random tags."""
    values = [0, 1, 2, 3, 4, 5, 8, 12, 16, 32, 64, 100, 65535, 2**31, 2**32 - 1]
    tags = {256: 40, 257: 20, 258: 8, 259: 1, 262: 1, 277: 1, 278: 20, 279: 3200, 339: 1, 284: 1, 266: 1}
    for _ in range(rng.randint(1, 4)):
        tags[rng.choice([*tags, 317, 320, 322, 323, 324, 338, 340, 347, 512, 530, 34665, 274])] = rng.choice(
            values
        )
    tags[273] = 8 + 2 + 12 * (len(tags) + 1) + 4
    order = rng.choice("<>")
    entries = [
        struct.pack(
            order + "HHII", tag, rng.choice([4, 4, 4, 4, 3, 12]), rng.choice([1] * 9 + [10**6]), value
        )
        for tag, value in sorted(tags.items())
    ]
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HIH", 42, 8, len(entries))
    return head + b"".join(entries) + struct.pack(order + "I", rng.choice([0, 8])) + rng.randbytes(3200)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@lru_cache
def _inflating(size: int) -> bytes:
    return zlib.compress(bytes(size), 1)


def _chunks(rng: random.Random) -> bytes:
    """Return a PNG with texts or profiles that inflate, or with thousands of small chunks."""
    side = rng.choice([8, 2_000, 8_900])
    head = _chunk(
        b"IHDR", struct.pack(">IIBBBBB", side, side, 8, rng.choice([0, 2, 3, 6]), 0, 0, rng.choice([0, 1]))
    )
    inflating = _inflating(rng.choice([10**6, 3 * 10**8]))
    piece = rng.choice([
        _chunk(b"zTXt", b"x\0\0" + inflating), _chunk(b"iCCP", b"x\0\0" + inflating),
        _chunk(b"iTXt", b"x\0\1\0\0\0" + inflating), _chunk(b"tEXt", b"x\0y") * 30_000,
        _chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)), _chunk(b"IDAT", inflating),
    ])  # fmt: skip
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + piece
        + _chunk(b"IDAT", zlib.compress(bytes(side * side + side)))
        + _chunk(b"IEND", b"")
    )


def _scans(rng: random.Random) -> bytes:
    """Return a progressive JPEG that repeats its last scan."""
    file = io.BytesIO()
    Image.new("RGB", (rng.choice([64, 2_000]),) * 2, (9, 99, 199)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * rng.choice([3, 80, 5_000]) + b"\xff\xd9"


def _loop(rng: random.Random) -> bytes:
    """Return a GIF of very many frames, or a TIFF whose directory points to itself."""
    if rng.random() < 0.5:
        file = io.BytesIO()
        Image.new("RGB", (9, 9)).save(file, "TIFF")
        data = bytearray(file.getvalue())
        at = struct.unpack("<I", data[4:8])[0]
        count = struct.unpack("<H", data[at : at + 2])[0]
        data[at + 2 + 12 * count : at + 6 + 12 * count] = data[4:8]
        return bytes(data)
    file = io.BytesIO()
    frames = [Image.new("P", (2, 2), n) for n in range(2)]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    data = file.getvalue()
    frame = data[data.index(b"\x2c", 13) : -1]
    return data[:-1] + frame * 50_000 + b";"
