"""The command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitviz.ui import zerogpu
from vitviz.ui.studio import MB, Settings


@dataclass(frozen=True)
class Options:
    """Where the page is served, and what the studio is set to."""

    host: str
    port: int | None
    share: bool
    settings: Settings


def parse(arguments: Sequence[str] | None = None) -> Options:
    """The options given; SystemExit with a usage line where they do not fit."""
    parser = argparse.ArgumentParser(prog="python app.py", description="vitviz shows what happens inside a Vision Transformer, in your browser.")
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"), help="address to serve on; 0.0.0.0 for everyone in the network (default: %(default)s)")
    parser.add_argument("--port", type=int, default=int(os.environ.get("GRADIO_SERVER_PORT", 7860)), help="port to serve on (default: %(default)s)")
    parser.add_argument("--share", action="store_true", help="make a public link through Gradio")
    # A Space with shared GPUs lends one only to functions that ask for it, and pretends to have one at all other times.
    usual = "cpu" if zerogpu.here() else "auto"
    parser.add_argument("--device", default=usual, help="auto, cpu, cuda, cuda:N or mps (default: %(default)s: CUDA, then Apple's, then the CPU)")
    precision = "precision in which models compute; the page says how far bfloat16 is from float32 (default: %(default)s)"
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help=precision)
    parser.add_argument("--checkpoint", default="vitviz-tiny", help="the checkpoint shown first (default: %(default)s)")
    parser.add_argument("--weights", type=Path, default=None, help="folder of your own checkpoints (default: weights/ beside the app)")
    parser.add_argument("--model-cache", type=_megabytes, default=4_000 * MB, metavar="MB", help="memory for loaded checkpoints (default: 4000)")
    parser.add_argument("--trace-cache", type=_megabytes, default=512 * MB, metavar="MB", help="memory for traces of pictures (default: 512)")
    parser.add_argument("--picture-cache", type=_megabytes, default=256 * MB, metavar="MB", help="memory for uploads, and again for drawn data (default: 256)")
    given = parser.parse_args(arguments)
    allowed = tuple(name.strip() for name in os.environ.get("VITVIZ_CHECKPOINTS", "").split(",") if name.strip())
    settings = Settings(given.checkpoint, given.weights, given.device, given.model_cache, given.trace_cache, given.picture_cache, allowed, given.dtype)
    return Options(given.host, given.port, given.share, settings)


def _megabytes(text: str) -> int:
    number = float(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} MB is no size of a cache")
    return int(number * MB)
