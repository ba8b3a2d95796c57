"""`vitviz video`: a view of every frame of a video, as a film or a table."""

import csv
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from vitviz.command.checkpoints import Checkpoint, Device, Weights
from vitviz.command.figure import Given, settings_of
from vitviz.errors import VitvizError


def video(
    source: Annotated[Path, Argument(metavar="SOURCE", help="The video.")],
    out: Annotated[Path, Option("--out", "-o", help="A .mp4, .gif or .csv.")],
    view: Annotated[str, Option(help="Which view, by its name in the page's links.")] = "rollout",
    checkpoint: Checkpoint = "vitviz-tiny",
    given: Given = None,
    start: Annotated[float, Option(help="The second to begin at.")] = 0.0,
    stop: Annotated[float | None, Option(help="The second to stop before.")] = None,
    step: Annotated[int, Option(help="Every so many frames.")] = 1,
    most_seconds: Annotated[float, Option(help="The longest that is taken on.")] = 60.0,
    most_frames: Annotated[int, Option(help="The most frames that are taken on.")] = 1_000,
    width: Annotated[int, Option(help="Of a film, 320 to 1920 pixels.")] = 960,
    device: Device = "auto",
    weights: Weights = None,
) -> None:
    """A view of every frame of a video, as a film (.mp4, .gif) or a table (.csv: a row a frame with its
    number, time, answer, probability, and flicker, the mean change of the map from the frame before).

    SOURCE is an MP4, MOV, WebM, MKV, AVI, GIF or animated WebP file.

    \b
    Examples:
      vitviz video walk.mp4 -o walk-rollout.mp4
      vitviz video walk.mp4 --view tokens --set show=components --start 2 --stop 6 --step 3 -o walk.gif
      vitviz video walk.mp4 --view evidence -o walk.csv
    """
    if out.suffix.lower() not in (".mp4", ".gif", ".csv"):
        raise VitvizError(f"Given {out.name}; expected a film's name in .mp4 or .gif, or a table's in .csv.")
    import vitviz
    from vitviz.prints.animation import checked_width
    from vitviz.prints.video import film_of

    checked_width(width)
    settings = settings_of(given, vitviz.video)
    asked = {"start": start, "stop": stop, "step": step, **settings}
    asked |= {"most_seconds": most_seconds, "most_frames": most_frames}
    inspector = vitviz.load(checkpoint, device=device, folder=weights)
    frames = vitviz.video(source, inspector, view, **asked)
    if out.suffix.lower() == ".csv":
        rows = [(f.number, f"{f.seconds:.6g}", f.answer, f.probability, f.flicker) for f in frames]
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("frame", "time", "answer", "probability", "flicker"), *rows])
    else:
        film_of(frames).save(out, width)
    print(out)
