"""The command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitviz.ui.serving import zerogpu
from vitviz.ui.serving.limits import Limits
from vitviz.ui.serving.settings import MB, Settings, folder_of_lessons


@dataclass(frozen=True)
class Options:
    """Where the page is served, and what the studio is set to."""

    host: str
    port: int | None
    share: bool
    settings: Settings
    allowed_hosts: tuple[str, ...] = ()
    upload_quota: int = 2_000 * MB


def parse(arguments: Sequence[str] | None = None, program: str = "python app.py") -> Options:
    """The options given; SystemExit with a usage line where they do not fit."""
    parser = argparse.ArgumentParser(
        prog=program, description="vitviz shows what happens inside a Vision Transformer, in your browser."
    )
    parser.add_argument(
        "--host",
        default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"),
        help="address to serve on; 0.0.0.0 for everyone in the network (default: %(default)s)",
    )
    port = os.environ.get("GRADIO_SERVER_PORT", "7860")  # as text: argparse checks it like an option
    parser.add_argument("--port", type=_port, default=port, help="port to serve on (default: %(default)s)")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=None,
        metavar="NAME",
        help=(
            "name under which browsers reach the app through a proxy, such as vit.example.org or"
            " *.example.org; may be repeated. Other names are refused; without it all but localhost where"
            " only this machine is served, else none (default: VITVIZ_ALLOWED_HOSTS, separated by commas)"
        ),
    )
    parser.add_argument("--share", action="store_true", help="make a public link through Gradio")
    # A Space with shared GPUs lends one only to functions that ask for it, and pretends to have one at all
    # other times.
    usual = "cpu" if zerogpu.here() else "auto"
    parser.add_argument(
        "--device",
        default=usual,
        help="auto, cpu, cuda, cuda:N or mps (default: %(default)s: CUDA, then Apple's, then the CPU)",
    )
    precision = (
        "precision in which models compute; the page says how far bfloat16 is from float32 (default:"
        " %(default)s)"
    )
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help=precision)
    parser.add_argument(
        "--checkpoint", default="vitviz-tiny", help="the checkpoint shown first (default: %(default)s)"
    )
    parser.add_argument(
        "--weights",
        type=Path,
        default=None,
        help="folder of your own checkpoints (default: weights/ beside the app)",
    )
    parser.add_argument(
        "--lessons",
        type=Path,
        default=None,
        help="folder of lessons, zips of the page, that it offers (default: lessons/ beside the app)",
    )
    _add_room(parser, "--model-cache", 4_000, "memory for loaded checkpoints")
    _add_room(parser, "--trace-cache", 512, "memory for traces of pictures")
    _add_room(parser, "--picture-cache", 256, "memory for uploads, and again for drawn data")
    _add_limits(parser)
    _add_room(parser, "--upload-quota", 2_000, "disk for uploads; the oldest go first")
    given = parser.parse_args(arguments)
    hosts = given.allowed_host or os.environ.get("VITVIZ_ALLOWED_HOSTS", "").split(",")
    allowed = tuple(
        name.strip() for name in os.environ.get("VITVIZ_CHECKPOINTS", "").split(",") if name.strip()
    )
    settings = Settings(
        given.checkpoint, given.weights, given.device, given.model_cache, given.trace_cache,
        given.picture_cache, allowed,
        given.dtype, _limits(given), _own(given), folder_of_lessons(given.lessons),
    )  # fmt: skip
    allowed_hosts = tuple(name.strip() for name in hosts if name.strip())
    return Options(given.host, given.port, given.share, settings, allowed_hosts, given.upload_quota)


def _add_room(parser: argparse.ArgumentParser, name: str, default: int, what: str) -> None:
    """An option for how much room something may take, in megabytes."""
    told = f"{what} (default: {default})"
    parser.add_argument(name, type=_megabytes, default=default * MB, metavar="MB", help=told)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """What one visitor may ask for; smaller on a Space, which strangers share."""
    usual, shared = Limits(), Limits(tokens=2_500, seconds=60) if os.environ.get("SPACE_ID") else Limits()
    for option, default, kind, said in (
        (
            "tokens",
            shared.tokens,
            _whole,
            f"tokens of an input, of which attention takes the square ({usual.tokens}; 2500 on a Space)",
        ),
        (
            "seconds",
            shared.seconds,
            _seconds,
            f"seconds of computing for one answer ({usual.seconds}; 60 on a Space)",
        ),
        (
            "passes",
            8 if zerogpu.here() else usual.passes,
            _whole,
            f"cheap forward passes at once; a dear one runs beside them ({usual.passes})",
        ),
    ):
        variable = f"VITVIZ_MAX_{option.upper()}"
        text = f"most {said}; or {variable}"
        parser.add_argument(
            f"--max-{option}",
            type=kind,
            default=os.environ.get(variable) or str(default),
            metavar="N",
            help=text,
        )


def _own(given: argparse.Namespace) -> bool:
    """Whether the page is for whoever started it alone, on this machine."""
    told = ("SPACE_ID", "VITVIZ_CHECKPOINTS", "VITVIZ_ALLOWED_HOSTS")
    shared = given.share or given.allowed_host or any(os.environ.get(name) for name in told)
    return given.host in ("127.0.0.1", "localhost", "::1") and not shared


def _limits(given: argparse.Namespace) -> Limits:
    return Limits(given.max_tokens, given.max_seconds, given.max_passes)


def _whole(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 to 1000000")
    return int(text)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 1e6:  # NaN is not
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds, more than 0 and up to 1000000")
    return number


def _megabytes(text: str) -> int:
    number = float(text)
    if not 0 < number < 1e9:  # neither inf nor nan
        raise argparse.ArgumentTypeError(f"{text} MB is no size of a cache")
    return int(number * MB)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text} is no port: expected a whole number from 1 to 65535")
    return int(text)
