"""Invalid, excessive or malicious videos end in time with a message and leave no process behind."""

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

MAX_SECONDS = 30  # s, on a busy machine; each takes less than 1 s on an idle one


def children():
    """Return the running child processes."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {number for task in tasks for number in task.read_text().split()}


def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def list_chunk(name, *chunks):
    return chunk(b"LIST", name + b"".join(chunks))


def stream(kind, handler, format):
    header = struct.pack("<4s4sIHHIIIIIIIIHHHH", kind, handler, 0, 0, 0, 0, 1, 25, 0, 9, 0, 0, 0, 0, 0, 0, 0)
    return list_chunk(b"strl", chunk(b"strh", header), chunk(b"strf", format))


def avi(size, *chunks):
    """Return an AVI of raw images with a stream of subtitles."""
    wide, tall = size
    head = struct.pack("<14I", 40_000, 0, 0, 0x10, 9, 0, 2, 0, wide, tall, 0, 0, 0, 0)
    picture = struct.pack("<IiiHHIIiiII", 40, wide, tall, 1, 24, 0, 0, 0, 0, 0, 0)
    streams = stream(b"vids", b"DIB ", picture), stream(b"txts", b"\0\0\0\0", b"")
    return chunk(
        b"RIFF", b"AVI " + list_chunk(b"hdrl", chunk(b"avih", head), *streams) + list_chunk(b"movi", *chunks)
    )


def subtitles(text):
    return b"GAB2\0" + struct.pack("<HIHHHI", 2, 4, ord("x"), 0, 4, len(text)) + text


def write_video(path, frames, codec="ffv1", **more):
    options = {"quality": None, "macro_block_size": 1, "ffmpeg_log_level": "error", **more}
    writer = write_frames(str(path), frames[0].shape[1::-1], fps=25, codec=codec, **options)
    writer.send(None)
    for one in frames:
        writer.send(one)
    writer.close()
    return path.read_bytes()


def noise(count=40, side=64):
    return list(np.random.default_rng(0).integers(0, 255, (count, side, side, 3), dtype=np.uint8))


def write_gif(path):
    first, *rest = map(Image.fromarray, noise(3))
    first.save(path, save_all=True, append_images=rest)
    return path.read_bytes()


def with_hole(data, wide=20_000):
    """Replace a range in the middle by zeros, which a demuxer skips."""
    middle = len(data) // 2
    return data[:middle] + bytes(wide) + data[middle + wide :]


def sound(path):
    """Return a Matroska file with half a second of sound and no image."""
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
    "a picture.mp4": lambda at: write_video(at / "x.png", noise(1), "png"),
    "sound.mkv": lambda at: sound(at / "x.mkv"),
    "broken off.mp4": lambda at: write_video(at / "x.mp4", noise(), "libx264")[:-9_999],
    "broken off.webm": lambda at: write_video(at / "x.webm", noise(), "libvpx-vp9")[:-9_999],
    "broken off.mkv": lambda at: write_video(at / "x.mkv", noise())[:-9_999],
    "broken off.avi": lambda at: write_video(at / "x.avi", noise())[:-9_999],
    "a hole.webm": lambda at: with_hole(write_video(at / "x.webm", noise(), "libvpx-vp9")),
    "broken off.gif": lambda at: write_gif(at / "x.gif")[:-999],
    "a line.avi": lambda at: avi((1_000_000, 1), chunk(b"00db", b"\0" * 3_000_000)),
    "a wall.avi": lambda at: avi((60_000, 60_000), chunk(b"00db", b"\0" * 99)),
    "a wall.gif": lambda at: gif((65_535, 65_535)),
    "many.avi": lambda at: avi((1, 1), *[chunk(b"00db", b"\0" * 4)] * 100_000),
    "many.gif": lambda at: gif((1, 1))[:-1] + gif((1, 1))[19:-1] * 100_000 + b";",
    "endless.mkv": lambda at: write_video(
        at / "x.mkv", noise(3), output_params=["-vf", "setpts=N*100/TB", "-fps_mode", "passthrough"]
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_video_raises_with_message(inspector, tmp_path, name):
    path, before = tmp_path / name, children()
    path.write_bytes(HOSTILE[name](tmp_path))
    start = time.monotonic()
    with pytest.raises(VitvizError, match=r"[a-z ]{9}.*\.$") as error:
        list(vitviz.video(path, inspector))
    assert time.monotonic() - start < MAX_SECONDS and children() == before
    assert path.stem in str(error.value) and str(tmp_path) not in str(error.value)


@pytest.mark.sweep
def test_truncated_video_is_always_detected(tmp_path):
    """Repeated, because threads of ffmpeg once wrote into one line and garbled an error."""
    for name in ("broken off.webm", "a hole.webm", "broken off.mkv"):
        (tmp_path / name).write_bytes(HOSTILE[name](tmp_path))
        for _ in range(30):
            with pytest.raises(ImageError, match="incomplete"):
                list(video.frames_of(tmp_path / name, 0, None, 1, 60, 1000))


def test_source_that_is_no_file_is_rejected(inspector, tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    for source in (tmp_path, tmp_path / "pipe.mp4", "https://example.org/x.mp4", "concat:/etc/passwd", "-i"):
        with pytest.raises(VitvizError, match="There is no file"):
            next(vitviz.video(source, inspector))


def test_valid_counterparts_of_hostile_videos_open(inspector, tmp_path):
    """Shows that the hostile videos are not rejected for their construction."""
    valid = {
        "subtitles.avi": avi((16, 16), chunk(b"01tx", subtitles(b"a line")), BLACK),
        "some.avi": avi((8, 8), *[chunk(b"00db", b"\0" * 8 * 8 * 3)] * 3),
        "one.gif": gif((1, 1)),
        "whole.webm": write_video(tmp_path / "x.webm", noise(2), "libvpx-vp9"),
    }
    for name, data in valid.items():
        (tmp_path / name).write_bytes(data)
        assert next(vitviz.video(tmp_path / name, inspector, size=64)).number == 0


def test_decoder_process_ends_with_its_reader(inspector, tmp_path):
    before = children()
    write_video(tmp_path / "x.avi", noise())
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


def test_decoder_is_limited_in_time_and_memory(inspector, tmp_path, monkeypatch):
    """Replaces ffmpeg by a program that never ends and one that needs too much memory."""
    write_video(tmp_path / "x.avi", noise(1))
    idle, greedy = tmp_path / "idle", tmp_path / "greedy"
    idle.write_text("#!/bin/sh\nwhile :; do :; done\n")
    greedy.write_text("#!/bin/sh\nhead -c 3000000000 /dev/zero | tail\n")
    monkeypatch.setattr(video, "SECONDS", 1)
    for program, words in ((idle, "takes more than 1 s"), (greedy, "Only 0 frames of .* could be decoded")):
        program.chmod(0o755)
        monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))
        before, start = children(), time.monotonic()
        with pytest.raises(VitvizError, match=words):
            next(vitviz.video(tmp_path / "x.avi", inspector))
        assert children() == before and time.monotonic() - start < MAX_SECONDS


def test_gif_opens_without_ffmpeg(inspector, tmp_path, monkeypatch):
    write_video(tmp_path / "x.avi", noise(1))
    Image.fromarray(noise(1)[0]).save(tmp_path / "x.gif")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "none"))
    with pytest.raises(VitvizError):
        next(vitviz.video(tmp_path / "x.avi", inspector))
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(VitvizError, match="pip install 'vitviz\\[film\\]'"):
        next(vitviz.video(tmp_path / "x.avi", inspector))
    assert next(vitviz.video(tmp_path / "x.gif", inspector)).number == 0
