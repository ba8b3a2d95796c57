"""Command-line options: where the page is served, the service's settings, and the limits per request."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import BadParameter, Option, Typer

import vitviz
from vitviz.errors import TooMuch
from vitviz.server import zerogpu
from vitviz.traces.localized_text import LocalizedText

if TYPE_CHECKING:
    from vitviz.engine import Inspector

MB = 1_000_000
# multiply-adds of a pass: a second or two on two cores; ViT-B/16 has 18e9 at 224 px, 55e9 at 384
EXPENSIVE = 100e9
TOO_MANY = (
    "An input of {height} x {width} pixels has {tokens} tokens for {name}; this server allows "
    "{most}. Try {tall} x {wide} pixels."
)


@dataclass(frozen=True)
class Limits:
    """Cost limits of one request on this server; a notebook has none."""

    tokens: int = 5_000  # of an input; attention cost grows with their square
    seconds: float = 300  # computing time of one request, without waiting
    passes: int = 2  # cheap ones at once; an expensive one runs beside them
    pixels: int = 20_000_000  # of an exported figure
    memory: int = 1_200 * 10**6  # estimated bytes of all concurrent computations
    video_seconds: float = 60  # of a video; longer ones are refused
    video_frames: int = 1_000  # kept of a video; longer ones are sampled

    def require(self, inspector: "Inspector", size: tuple[int, int] | None) -> None:
        """Raise TooMuch, with the largest allowed size, if an input has more tokens than the limit."""
        tokens = inspector.demand(size).tokens
        if size is None or tokens <= self.tokens:  # the checkpoint's own size is always allowed
            return
        (height, width), grid = size, inspector.grid()
        shrunk = (max(self.tokens - grid.prefix, 1) / (tokens - grid.prefix)) ** 0.5
        sides = zip(size, grid.patch, strict=True)
        tall, wide = (max(1, int(side * shrunk / patch)) * patch for side, patch in sides)
        details = {"name": inspector.checkpoint.name, "most": self.tokens, "tall": tall, "wide": wide}
        raise TooMuch(LocalizedText(TOO_MANY, height=height, width=width, tokens=tokens, **details))


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the analysis service."""

    checkpoint: str = "vitviz-tiny"
    weights: Path | None = None
    device: str = "auto"
    model_cache: int = 4_000 * MB
    trace_cache: int = 512 * MB
    picture_cache: int = 256 * MB
    allowed: tuple[str, ...] = ()  # on a public Space: the only checkpoints that can be chosen
    dtype: str = "float32"
    limits: Limits = Limits()
    keeps: bool = False  # overrides may be saved next to a checkpoint's file
    lessons: Path = Path("lessons")  # of the zips that the page offers; may be missing


@dataclass(frozen=True)
class Options:
    """Address of the page and settings of the service."""

    host: str
    port: int | None
    share: bool
    settings: ServiceSettings
    allowed_hosts: tuple[str, ...] = ()
    upload_quota: int = 2_000 * MB
    root_path: str = ""  # prefix that a proxy removes from each path
    frame_ancestors: tuple[str, ...] = ()  # pages that may embed this one, in CSP's form; () for every page


def lessons_folder(given: Path | None = None) -> Path:
    """Return the folder of lessons: as given, else lessons/ beside the package (with app.py), else here."""
    beside = Path(vitviz.__file__).resolve().parents[1] / "lessons"
    return given or (beside if beside.is_dir() else Path("lessons"))


def _up_to(most: int, said: str, kind: type = int, unit: int = 1) -> Callable[[Any], float]:
    """Return a parser of numbers in (0, `most`], multiplied by `unit`; `said` completes its error."""

    def read(text: Any) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number <= most:  # also False for NaN
            raise BadParameter(f"{text} {said}")
        return number if unit == 1 else int(number * unit)

    return read


_WHOLE = _up_to(1_000_000, "is not a whole number from 1 to 1000000")
_TIME = _up_to(1_000_000, "is not a number of seconds above 0 and up to 1000000", float)
_PORT = {"parser": _up_to(65_535, "is not a port: expected a whole number from 1 to 65535"), "metavar": "N"}
_CACHE = {"parser": _up_to(999_999_999, "MB is not a cache size", float, MB), "metavar": "MB"}
_HOSTS = (
    "host name under which a proxy serves the app, such as vit.example.org or *.example.org; repeatable."
    " Other names are refused. Without it, only localhost is allowed if the app serves only this machine;"
    " otherwise every name is allowed (default: VITVIZ_ALLOWED_HOSTS, separated by commas)"
)

_FRAMES = (
    "page that may embed this one in a frame, such as https://moodle.example.org, self or none; repeatable."
    " Without it, every page may (default: VITVIZ_FRAME_ANCESTORS, separated by commas)"
)


def _frame_ancestor(name: str) -> str:
    """Return a source of CSP's frame-ancestors; a header must not receive anything else."""
    if name in ("self", "none"):
        return f"'{name}'"
    if not re.fullmatch(r"https?://(\*\.)?[\w-]+(\.[\w-]+)*(:\d+)?", name, re.ASCII):
        raise BadParameter(f"{name} is not a page's origin: expected https://NAME, self or none")
    return name


def _limit_option(name: str, kind: Callable[[Any], float], said: str) -> Any:
    """Return the option of an upper limit, also read from VITVIZ_MAX_`name`; `said` ends its help."""
    return Option(envvar=f"VITVIZ_MAX_{name}", parser=kind, metavar="N", help=f"most {said}")


def parse_options(arguments: Sequence[str] | None = None, program: str = "python app.py") -> Options:
    """Parse the options. Raises SystemExit with a usage line if they are invalid."""
    usual, ours, result = Limits(), ServiceSettings(), []
    if os.environ.get("SPACE_ID"):  # a public Space gets lower limits
        usual = replace(usual, tokens=2_500, seconds=60)
    # A Space with shared GPUs lends one only to decorated functions, and pretends to have one at all other
    # times.
    if zerogpu.on_zerogpu():
        usual, ours = replace(usual, passes=8), replace(ours, device="cpu")

    def options(
        host: Annotated[
            str, Option(envvar="GRADIO_SERVER_NAME", help="address to bind; 0.0.0.0 for the whole network")
        ] = "127.0.0.1",
        port: Annotated[int, Option(envvar="GRADIO_SERVER_PORT", help="port to serve on", **_PORT)] = 7860,
        device: Annotated[
            str, Option(help="auto (CUDA, then Apple's, then the CPU), cpu, cuda, cuda:N or mps")
        ] = ours.device,
        checkpoint: Annotated[str, Option(help="the checkpoint shown first")] = ours.checkpoint,
        weights: Annotated[
            Path | None, Option(help="folder of your own checkpoints (else weights/ beside the app)")
        ] = None,
        lessons: Annotated[
            Path | None, Option(help="folder of lesson zips (else lessons/ beside the app)")
        ] = None,
        model_cache: Annotated[float, Option(help="for checkpoints", **_CACHE)] = ours.model_cache // MB,
        trace_cache: Annotated[float, Option(help="for traces", **_CACHE)] = ours.trace_cache // MB,
        picture_cache: Annotated[
            float, Option(help="for uploads, and the same again for drawn data", **_CACHE)
        ] = ours.picture_cache // MB,
        upload_quota: Annotated[
            float, Option(help="of disk for uploads; the oldest are deleted first", **_CACHE)
        ] = Options.upload_quota // MB,
        max_tokens: Annotated[
            int,
            _limit_option("TOKENS", _WHOLE, "tokens of an input; attention's cost grows with their square"),
        ] = usual.tokens,
        max_seconds: Annotated[
            float, _limit_option("SECONDS", _TIME, "seconds of computing for one request")
        ] = usual.seconds,
        max_passes: Annotated[
            int, _limit_option("PASSES", _WHOLE, "cheap passes at once; one expensive pass runs alongside")
        ] = usual.passes,
        max_video_seconds: Annotated[
            float, _limit_option("VIDEO_SECONDS", _TIME, "seconds of a video")
        ] = usual.video_seconds,
        max_video_frames: Annotated[
            int, _limit_option("VIDEO_FRAMES", _WHOLE, "frames kept of a video")
        ] = usual.video_frames,
        share: Annotated[bool, Option("--share", help="create a public link through Gradio")] = False,
        dtype: Annotated[
            Literal["float32", "tf32", "bfloat16"],
            Option(
                "--precision", "--dtype", help="unless float32, the page shows the deviation from float32"
            ),
        ] = ours.dtype,
        root_path: Annotated[
            str,
            Option(envvar="GRADIO_ROOT_PATH", metavar="PATH", help="prefix that a proxy removes"),
        ] = "",
        allowed_host: Annotated[list[str] | None, Option(metavar="NAME", help=_HOSTS)] = None,
        frame_ancestor: Annotated[list[str] | None, Option(metavar="ORIGIN", help=_FRAMES)] = None,
    ) -> None:
        """vitviz shows what happens inside a Vision Transformer, in your browser."""
        video = {"video_seconds": max_video_seconds, "video_frames": max_video_frames}
        settings = ServiceSettings(
            checkpoint, weights, device, model_cache, trace_cache, picture_cache,
            _names(os.environ.get("VITVIZ_CHECKPOINTS", "")), dtype,
            Limits(max_tokens, max_seconds, max_passes, **video),
            _serves_only_this_machine(host, share or bool(allowed_host)), lessons_folder(lessons),
        )  # fmt: skip
        hosts = _names(",".join(allowed_host or [os.environ.get("VITVIZ_ALLOWED_HOSTS", "")]))
        frames = _names(",".join(frame_ancestor or [os.environ.get("VITVIZ_FRAME_ANCESTORS", "")]))
        frames = tuple(map(_frame_ancestor, frames))
        result.append(Options(host, port, share, settings, hosts, upload_quota, root_path, frames))

    page = Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    page.command(context_settings={"help_option_names": ["-h", "--help"]})(options)
    try:
        page(arguments, prog_name=program)  # prints the help or version, or exits with a usage error
    except SystemExit:
        if not result:
            raise
    return result[0]


def _serves_only_this_machine(host: str, shared: bool) -> bool:
    """Return True if the app serves only this machine: a local address, not shared, not on a Space."""
    details = ("SPACE_ID", "VITVIZ_CHECKPOINTS", "VITVIZ_ALLOWED_HOSTS")
    return host in ("127.0.0.1", "localhost", "::1") and not (shared or any(map(os.environ.get, details)))


def _names(listed: str) -> tuple[str, ...]:
    """Return the names in a comma-separated text, without spaces and empty entries."""
    return tuple(name.strip() for name in listed.split(",") if name.strip())
