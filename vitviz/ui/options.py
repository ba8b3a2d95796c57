"""What the command line decides: where the page is served, the studio's settings, a visitor's limits."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import vitviz
from vitviz.errors import TooMuch
from vitviz.record.sentence import Sentence
from vitviz.ui import zerogpu

if TYPE_CHECKING:
    from vitviz.engine import Inspector

MB = 1_000_000
# multiplications of a pass: a second or two on two cores; ViT-B/16 has 18e9 at 224 px, 55e9 at 384
DEAR = 100e9
TOO_MANY = (
    "An input of {height} x {width} pixels has {tokens} tokens for {name}, and this server computes at most"
    " {most}. {tall} x {wide} pixels would do."
)


@dataclass(frozen=True)
class Limits:
    """What one request may cost here, for everybody who asks this server; a notebook has none."""

    tokens: int = 5_000  # of an input; attention grows with their square
    seconds: float = 300  # of computing for one answer, waiting not counted
    passes: int = 2  # cheap ones at once; a dear one computes beside them
    pixels: int = 20_000_000  # of a figure for print
    memory: int = 1_200 * 10**6  # bytes that all who compute at once may take, by estimate
    video_seconds: float = 60  # of a video; one that goes on is refused
    video_frames: int = 1_000  # kept of it; of one that has more every so many

    def require(self, inspector: Inspector, size: tuple[int, int] | None) -> None:
        """TooMuch, with the largest that would do, for an input of more tokens than this server computes."""
        tokens = inspector.demand(size).tokens
        if size is None or tokens <= self.tokens:  # its own size is what the checkpoint was chosen for
            return
        (height, width), grid = size, inspector.grid()
        shrunk = (max(self.tokens - grid.prefix, 1) / (tokens - grid.prefix)) ** 0.5
        tall, wide = (
            max(1, int(n * shrunk / patch)) * patch for n, patch in zip(size, grid.patch, strict=True)
        )
        told = {"name": inspector.checkpoint.name, "most": self.tokens, "tall": tall, "wide": wide}
        raise TooMuch(Sentence(TOO_MANY, height=height, width=width, tokens=tokens, **told))

    def dear(self, operations: float) -> bool:
        """Whether something waits for a turn among the dear ones."""
        return operations > DEAR


@dataclass(frozen=True)
class Settings:
    """What the studio is set to."""

    checkpoint: str = "vitviz-tiny"
    weights: Path | None = None
    device: str = "auto"
    model_cache: int = 4_000 * MB
    trace_cache: int = 512 * MB
    picture_cache: int = 256 * MB
    allowed: tuple[str, ...] = ()  # on a public Space: the only checkpoints that can be picked
    dtype: str = "float32"
    limits: Limits = Limits()
    keeps: bool = False  # whether what is said of a file is written beside it: on one's own machine
    lessons: Path = Path("lessons")  # zips that the page offers; there need be none


@dataclass(frozen=True)
class Options:
    """Where the page is served, and what the studio is set to."""

    host: str
    port: int | None
    share: bool
    settings: Settings
    allowed_hosts: tuple[str, ...] = ()
    upload_quota: int = 2_000 * MB


def folder_of_lessons(given: Path | None = None) -> Path:
    """Where lessons lie: as given, else lessons/ beside the package (where app.py is), else here."""
    beside = Path(vitviz.__file__).resolve().parents[1] / "lessons"
    return given or (beside if beside.is_dir() else Path("lessons"))


def parse(arguments: Sequence[str] | None = None, program: str = "python app.py") -> Options:
    """The options given; SystemExit with a usage line where they do not fit."""
    parser = argparse.ArgumentParser(
        prog=program, description="vitviz shows what happens inside a Vision Transformer, in your browser."
    )
    add, given = parser.add_argument, os.environ.get
    space, usual, ours = bool(given("SPACE_ID")), Limits(), Settings()  # a Space's strangers get less
    whole = _up_to(1_000_000, "is no whole number from 1 to 1000000")
    time = _up_to(1_000_000, "is no number of seconds, more than 0 and up to 1000000", float)
    port = _up_to(65_535, "is no port: expected a whole number from 1 to 65535")
    room = _up_to(999_999_999, "MB is no size of a cache", float, MB)
    for name, kind, default, said in (  # as text, a default is checked like what is given
        ("host", str, given("GRADIO_SERVER_NAME", "127.0.0.1"),
         "address to serve on; 0.0.0.0 for everyone in the network (default: %(default)s)"),
        ("port", port, given("GRADIO_SERVER_PORT", "7860"), "port to serve on (default: %(default)s)"),
        # A Space with shared GPUs lends one only to functions that ask for it, and pretends to have one at
        # all other times.
        ("device", str, "cpu" if zerogpu.here() else "auto",
         "auto, cpu, cuda, cuda:N or mps (default: %(default)s: CUDA, then Apple's, then the CPU)"),
        ("checkpoint", str, ours.checkpoint, "the checkpoint shown first (default: %(default)s)"),
        ("weights", Path, None, "folder of your own checkpoints (default: weights/ beside the app)"),
        ("lessons", Path, None,
         "folder of lessons, zips of the page, that it offers (default: lessons/ beside the app)"),
    ):  # fmt: skip
        add(f"--{name}", type=kind, default=default, help=said)
    for name, size, said in (
        ("model-cache", ours.model_cache, "memory for loaded checkpoints"),
        ("trace-cache", ours.trace_cache, "memory for traces of pictures"),
        ("picture-cache", ours.picture_cache, "memory for uploads, and again for drawn data"),
        ("upload-quota", Options.upload_quota, "disk for uploads; the oldest go first"),
    ):
        add(f"--{name}", type=room, default=size, metavar="MB", help=f"{said} (default: {size // MB})")
    for name, kind, default, said in (
        ("tokens", whole, 2_500 if space else usual.tokens,
         f"tokens of an input, of which attention takes the square ({usual.tokens}; 2500 on a Space)"),
        ("seconds", time, 60 if space else usual.seconds,
         f"seconds of computing for one answer ({usual.seconds}; 60 on a Space)"),
        ("passes", whole, 8 if zerogpu.here() else usual.passes,
         f"cheap forward passes at once; a dear one runs beside them ({usual.passes})"),
        ("video-seconds", time, usual.video_seconds, f"seconds of a video ({usual.video_seconds})"),
        ("video-frames", whole, usual.video_frames, f"frames kept of a video ({usual.video_frames})"),
    ):  # fmt: skip
        variable = f"VITVIZ_MAX_{name.upper().replace('-', '_')}"
        default, told = given(variable) or str(default), f"most {said}; or {variable}"
        add(f"--max-{name}", type=kind, default=default, metavar="N", help=told)
    add("--share", action="store_true", help="make a public link through Gradio")
    told = "precision in which models compute; the page says how far bfloat16 is from float32 (default: {})"
    add("--dtype", choices=["float32", "bfloat16"], default=ours.dtype, help=told.format(ours.dtype))
    add(
        "--allowed-host", action="append", metavar="NAME",
        help="name under which browsers reach the app through a proxy, such as vit.example.org or"
        " *.example.org; may be repeated. Other names are refused; without it all but localhost where"
        " only this machine is served, else none (default: VITVIZ_ALLOWED_HOSTS, separated by commas)",
    )  # fmt: skip
    found = parser.parse_args(arguments)
    limits = Limits(
        found.max_tokens, found.max_seconds, found.max_passes,
        video_seconds=found.max_video_seconds, video_frames=found.max_video_frames,
    )  # fmt: skip
    settings = Settings(
        found.checkpoint, found.weights, found.device, found.model_cache, found.trace_cache,
        found.picture_cache, _names(given("VITVIZ_CHECKPOINTS", "")), found.dtype, limits,
        _own(found), folder_of_lessons(found.lessons),
    )  # fmt: skip
    hosts = _names(",".join(found.allowed_host or [given("VITVIZ_ALLOWED_HOSTS", "")]))
    return Options(found.host, found.port, found.share, settings, hosts, found.upload_quota)


def _own(given: argparse.Namespace) -> bool:
    """Whether the page is for whoever started it alone, on this machine."""
    told = ("SPACE_ID", "VITVIZ_CHECKPOINTS", "VITVIZ_ALLOWED_HOSTS")
    shared = given.share or given.allowed_host or any(os.environ.get(name) for name in told)
    return given.host in ("127.0.0.1", "localhost", "::1") and not shared


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def _up_to(most: int, said: str, kind: type = int, unit: int = 1) -> Callable[[str], float]:
    """Reads a number, more than 0 and at most `most`, in units; of others is told what is `said`."""

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number <= most:  # NaN is not
            raise argparse.ArgumentTypeError(f"{text} {said}")
        return number if unit == 1 else int(number * unit)

    return read
