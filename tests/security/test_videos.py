"""Videos that are none, ask for too much or point elsewhere: each ends soon, in a sentence, and leaves no
process behind.
"""

import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from imageio_ffmpeg import write_frames
from PIL import Image

import vitviz
from vitviz.engine.images import video
from vitviz.errors import ImageError, VitvizError

SOON = 30  # seconds, on a machine that does other things; each takes less than one alone


def children():
    """The processes that this one has started and not ended."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {number for task in tasks for number in task.read_text().split()}


def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def listed(name, *chunks):
    return chunk(b"LIST", name + b"".join(chunks))


def stream(kind, handler, format):
    header = struct.pack("<4s4sIHHIIIIIIIIHHHH", kind, handler, 0, 0, 0, 0, 1, 25, 0, 9, 0, 0, 0, 0, 0, 0, 0)
    return listed(b"strl", chunk(b"strh", header), chunk(b"strf", format))


def avi(size, *chunks):
    """Of raw pictures, and a stream of subtitles."""
    wide, tall = size
    head = struct.pack("<14I", 40_000, 0, 0, 0x10, 9, 0, 2, 0, wide, tall, 0, 0, 0, 0)
    picture = struct.pack("<IiiHHIIiiII", 40, wide, tall, 1, 24, 0, 0, 0, 0, 0, 0)
    streams = stream(b"vids", b"DIB ", picture), stream(b"txts", b"\0\0\0\0", b"")
    return chunk(
        b"RIFF", b"AVI " + listed(b"hdrl", chunk(b"avih", head), *streams) + listed(b"movi", *chunks)
    )


def subtitles(text):
    return b"GAB2\0" + struct.pack("<HIHHHI", 2, 4, ord("x"), 0, 4, len(text)) + text


def written(path, frames, codec="ffv1", **more):
    asked = {"quality": None, "macro_block_size": 1, "ffmpeg_log_level": "error", **more}
    writer = write_frames(str(path), frames[0].shape[1::-1], fps=25, codec=codec, **asked)
    writer.send(None)
    for one in frames:
        writer.send(one)
    writer.close()
    return path.read_bytes()


def noise(count=40, side=64):
    return list(np.random.default_rng(0).integers(0, 255, (count, side, side, 3), dtype=np.uint8))


def moving(path):
    first, *rest = map(Image.fromarray, noise(3))
    first.save(path, save_all=True, append_images=rest)
    return path.read_bytes()


def holed(data, wide=20_000):
    """A stretch of zeros in the middle, over which a demuxer jumps to what comes next."""
    middle = len(data) // 2
    return data[:middle] + bytes(wide) + data[middle + wide :]


def sound(path):
    """Half a second of WAVE in a Matroska, without a picture."""
    import subprocess

    from imageio_ffmpeg import get_ffmpeg_exe

    made = [get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", "sine=duration=0.5", str(path)]
    subprocess.run(made, check=True)
    return path.read_bytes()


def gif(size, data=b"\x02\x02\x4c\x01\x00"):
    wide, tall = size
    head = b"GIF89a" + struct.pack("<HHBBB", wide, tall, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return head + b"," + struct.pack("<HHHHB", 0, 0, wide, tall, 0) + data + b";"


PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
BLACK = chunk(b"00db", b"\0" * 16 * 16 * 3)
HOSTILE = {
    "a playlist.m3u8": lambda at: PLAYLIST,
    "a playlist.mp4": lambda at: PLAYLIST,
    "a playlist in subtitles.avi": lambda at: avi((16, 16), chunk(b"01tx", subtitles(PLAYLIST)), BLACK),
    "a script.mp4": lambda at: b"ffconcat version 1.0\nfile /etc/passwd\n",
    "a text.mp4": lambda at: b"Dear diary, " * 99,
    "nothing.mp4": lambda at: b"",
    "zeros.mp4": lambda at: b"\0" * 99_999,
    "a head.mp4": lambda at: b"\0\0\0\x18ftypisom" + b"\0" * 99,
    "a head.webm": lambda at: b"\x1aE\xdf\xa3" + b"\xff" * 99,
    "a picture.mp4": lambda at: written(at / "x.png", noise(1), "png"),
    "sound.mkv": lambda at: sound(at / "x.mkv"),
    "broken off.mp4": lambda at: written(at / "x.mp4", noise(), "libx264")[:-9_999],
    "broken off.webm": lambda at: written(at / "x.webm", noise(), "libvpx-vp9")[:-9_999],
    "broken off.mkv": lambda at: written(at / "x.mkv", noise())[:-9_999],
    "broken off.avi": lambda at: written(at / "x.avi", noise())[:-9_999],
    "a hole.webm": lambda at: holed(written(at / "x.webm", noise(), "libvpx-vp9")),
    "broken off.gif": lambda at: moving(at / "x.gif")[:-999],
    "a line.avi": lambda at: avi((1_000_000, 1), chunk(b"00db", b"\0" * 3_000_000)),
    "a wall.avi": lambda at: avi((60_000, 60_000), chunk(b"00db", b"\0" * 99)),
    "a wall.gif": lambda at: gif((65_535, 65_535)),
    "many.avi": lambda at: avi((1, 1), *[chunk(b"00db", b"\0" * 4)] * 100_000),
    "many.gif": lambda at: gif((1, 1))[:-1] + gif((1, 1))[19:-1] * 100_000 + b";",
    "endless.mkv": lambda at: written(
        at / "x.mkv", noise(3), output_params=["-vf", "setpts=N*100/TB", "-fps_mode", "passthrough"]
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_video_ends_in_a_sentence(inspector, tmp_path, name):
    path, before = tmp_path / name, children()
    path.write_bytes(HOSTILE[name](tmp_path))
    begun = time.monotonic()
    with pytest.raises(VitvizError, match=r"[a-z ]{9}.*\.$") as told:
        list(vitviz.video(path, inspector))
    assert time.monotonic() - begun < SOON and children() == before
    assert path.stem in str(told.value) and str(tmp_path) not in str(told.value)


@pytest.mark.sweep
def test_what_breaks_off_is_never_taken_as_whole(tmp_path):
    """Not once in many: ffmpeg's threads wrote into one line, where an error lost its name."""
    for name in ("broken off.webm", "a hole.webm", "broken off.mkv"):
        (tmp_path / name).write_bytes(HOSTILE[name](tmp_path))
        for _ in range(30):
            with pytest.raises(ImageError, match="breaks off"):
                list(video.frames_of(tmp_path / name, 0, None, 1, 60, 1000))


def test_what_is_no_file_is_not_read(inspector, tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    for source in (tmp_path, tmp_path / "pipe.mp4", "https://example.org/x.mp4", "concat:/etc/passwd", "-i"):
        with pytest.raises(VitvizError, match="There is no file"):
            next(vitviz.video(source, inspector))


def test_the_same_without_what_makes_it_hostile_is_a_video(inspector, tmp_path):
    """So that none of those is refused for how it is built here."""
    fine = {
        "subtitles.avi": avi((16, 16), chunk(b"01tx", subtitles(b"a line")), BLACK),
        "some.avi": avi((8, 8), *[chunk(b"00db", b"\0" * 8 * 8 * 3)] * 3),
        "one.gif": gif((1, 1)),
        "whole.webm": written(tmp_path / "x.webm", noise(2), "libvpx-vp9"),
    }
    for name, data in fine.items():
        (tmp_path / name).write_bytes(data)
        assert next(vitviz.video(tmp_path / name, inspector, size=64)).number == 0


def test_the_decoder_ends_with_whoever_reads_it(inspector, tmp_path):
    before = children()
    written(tmp_path / "x.avi", noise())
    frames = vitviz.video(tmp_path / "x.avi", inspector, size=64)
    next(frames)
    assert len(children() - before) == 1
    frames.close()
    assert children() == before
    for one in vitviz.video(tmp_path / "x.avi", inspector, size=64):
        assert one.number == 0 and len(children() - before) == 1
        break
    del one
    assert children() == before


def test_a_decoder_has_so_much_time_and_memory(inspector, tmp_path, monkeypatch):
    """One that never ends, and one that wants more than there is, in its place."""
    written(tmp_path / "x.avi", noise(1))
    idle, greedy = tmp_path / "idle", tmp_path / "greedy"
    idle.write_text("#!/bin/sh\nwhile :; do :; done\n")
    greedy.write_text("#!/bin/sh\nhead -c 3000000000 /dev/zero | tail\n")
    monkeypatch.setattr(video, "SECONDS", 1)
    for program, words in ((idle, "takes more than 1 s"), (greedy, "could be decoded for 0 frames")):
        program.chmod(0o755)
        monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))
        before, begun = children(), time.monotonic()
        with pytest.raises(VitvizError, match=words):
            next(vitviz.video(tmp_path / "x.avi", inspector))
        assert children() == before and time.monotonic() - begun < SOON


def test_without_ffmpeg_a_gif_still_goes(inspector, tmp_path, monkeypatch):
    written(tmp_path / "x.avi", noise(1))
    Image.fromarray(noise(1)[0]).save(tmp_path / "x.gif")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "none"))
    with pytest.raises(VitvizError):
        next(vitviz.video(tmp_path / "x.avi", inspector))
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(VitvizError, match="pip install 'vitviz\\[film\\]'"):
        next(vitviz.video(tmp_path / "x.avi", inspector))
    assert next(vitviz.video(tmp_path / "x.gif", inspector)).number == 0
