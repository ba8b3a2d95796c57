"""The command line `vitviz`.

Each subcommand imports what it needs when it runs, so help loads no model.
"""

import csv
import gc
import inspect
import io
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import vitviz
from vitviz.errors import VitvizError, quoted, write_error
from vitviz.traces import samples
from vitviz.traces.unicode import parse_json, require_unicode

program = typer.Typer(
    name="vitviz",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=(
        "See what happens inside a Vision Transformer: a page in the browser, figures for print, and averages"
        " over whole data sets."
    ),
)
# options shared by several subcommands
CheckpointOption = Annotated[
    str, Option("--checkpoint", "-c", help="Name, folder or file; see `vitviz checkpoints`.")
]
DeviceOption = Annotated[str, Option(help="auto, cpu, cuda, cuda:N or mps.")]
PrecisionOption = Annotated[str, Option("--precision", "--dtype", help="float32, tf32 or bfloat16.")]
WeightsOption = Annotated[Path | None, Option(help="Folder of your own checkpoints.")]
SettingOption = Annotated[
    list[str] | None, Option("--set", "-s", help="A setting of the view, such as fusion=max. Repeatable.")
]

# Written out, because help must not load torch. A test compares them with the registry.
MEASURES = tuple(
    "distance prefix_mass entropy skip similarity ledger lens accuracy trial smallest_part words".split()
)
PROGRESS = "{n_fmt} of {total_fmt} images, {rate_noinv_fmt}, {remaining} left"


@program.command()
def survey(
    source: Annotated[str, Argument(metavar="SOURCE", help="The images.")],
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            help="Folder for the report, table and averages. An unfinished survey in it is resumed.",
        ),
    ],
    checkpoint: CheckpointOption = "vitviz-tiny",
    measure: Annotated[
        list[str] | None,
        Option("--measure", "-m", help="What to measure. Repeatable. Default: distance and prefix_mass."),
    ] = None,
    limit: Annotated[
        int | None,
        Option(help="Maximum number of images: the first ones, or a random sample with --seed.", min=1),
    ] = None,
    seed: Annotated[int | None, Option(help="Seed of the random sample of --limit images.")] = None,
    classes: Annotated[
        Path | None,
        Option(
            help="JSON file: a list of the source's class names in the checkpoint's order, or an object from"
            " names to class numbers or labels."
        ),
    ] = None,
    boxes: Annotated[
        Path | None,
        Option(
            help="For trial: object boxes, as JSON {image: [[left, top, right, bottom]]} or a folder of"
            " Pascal VOC XML files. Adds the pointing game and the energy inside the box."
        ),
    ] = None,
    method: Annotated[
        list[str] | None, Option(help="For trial: a saliency method of vitviz.METHODS. Repeatable.")
    ] = None,
    patches_as: Annotated[
        list[str] | None,
        Option(
            help="For trial: how patches are removed: dropped, mean, blur or black. Repeatable. Default:"
            " dropped."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        Option(
            help="For trial: steps of integrated_gradients. Default: doubled for each image until the map is"
            " stable.",
            min=1,
        ),
    ] = None,
    words: Annotated[
        Path | None,
        Option(help="For words: text file with one sentence per line. Default: 200 common words."),
    ] = None,
    size: Annotated[
        int | None,
        Option(help="Input size in pixels. Default: the size that the model was trained at.", min=1),
    ] = None,
    batch: Annotated[
        int | None,
        Option(
            help="Maximum images per forward pass. Default: as many as fit into memory, up to 512 on a GPU"
            " and 8 on a CPU.",
            min=1,
        ),
    ] = None,
    workers: Annotated[
        int, Option(help="Number of Ray actors that share the images; requires vitviz[cluster].", min=0)
    ] = 0,
    gpus_per_worker: Annotated[
        float, Option(help="GPUs of each Ray actor; with 0.5 two of them share a GPU.", min=0, max=1)
    ] = 1,
    device: DeviceOption = "auto",
    dtype: PrecisionOption = "float32",
    weights: WeightsOption = None,
    as_json: Annotated[
        bool, Option("--json", help="Print averages and settings as JSON; progress goes to stderr.")
    ] = False,
) -> None:
    """Measure a set of images: averages with standard errors, one row per image, and a report.

    SOURCE is a folder of images, a folder with one subfolder per class, a list in .csv or .parquet (columns
    path and label), a WebDataset .tar or a folder of them, or hf:NAME[:SPLIT] for a data set on the Hub.

    \b
    Examples:
      vitviz survey photos/ --out report/
      vitviz survey imagenet/val --checkpoint vit_base_patch16_224 \\
          --measure distance --measure accuracy --limit 1000 --seed 0 --out report/

    If the command is interrupted, run it again to continue. Images that cannot be read are listed in
    skipped.csv.

    \b
    Measures:
      distance     attention distance of each head, in pixels (figure 7 right of the paper)
      prefix_mass  attention of the patches to class token and registers, by head
      entropy      entropy of each head's attention over all queries, in nats
      skip         length of the skip connection relative to each branch, by layer
      similarity   similarity of the representations of any two depths (CKA)
      ledger       contribution of each head and MLP to the prediction's logit
      lens         how often the logit lens already has the final prediction, by depth
      accuracy     how often the prediction is correct; needs labels
      trial        faithfulness of saliency maps, compared with chance
      smallest_part  how many edges preserve the prediction, largest first and at random
      words        what each head writes, in words; for CLIP, SigLIP and similar models
    """
    unknown = [name for name in measure or () if name not in MEASURES]
    if unknown:  # before torch is imported and a checkpoint is loaded
        raise VitvizError(
            f"There is no measure {quoted(unknown[0])}; expected some of {', '.join(MEASURES)}."
        )
    meant = _classes(classes)
    from vitviz.surveys.report import summary_of
    from vitviz.surveys.run import USUAL, progress_bar

    asked = {"size": size, "batch": batch, "limit": limit, "seed": seed, "out": out, "classes": meant}
    asked |= {"workers": workers, "gpus_per_worker": gpus_per_worker}
    try:
        inspector = vitviz.load(checkpoint, device=device, dtype=dtype, folder=weights)
        measures = _measures(measure or USUAL, boxes, method, patches_as, steps)
        inspector = _with_sentences(inspector, measures, words)
        # one line per update when stderr is a file
        ends, seconds = ("", 0.2) if sys.stderr.isatty() else ("\n", 10)
        with progress_bar(True, bar_format=PROGRESS + ends, mininterval=seconds) as tell:
            result = vitviz.survey(source, inspector, measures, progress=tell, **asked)
    except KeyboardInterrupt:
        print(f"Stopped. Finished parts are in {out}; run the same command to continue.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(summary_of(result), indent=1, ensure_ascii=False))
        return
    left_out = f"; {result.left_out} could not be read: see skipped.csv" if result.left_out else ""
    print(f"{result.images} images{left_out}. {out / 'report.html'}")


def _measures(
    names, boxes: Path | None, methods: list[str] | None, protocols: list[str] | None, steps: int | None
) -> list:
    """Return the measures of a survey: names, with the measure trial as an object with its settings.

    Raises VitvizError for settings of the trial if it was not requested.
    """
    given = {"--boxes": boxes, "--method": methods, "--patches-as": protocols, "--steps": steps}
    details = [name for name, value in given.items() if value]
    if "trial" not in names:
        if details:
            raise VitvizError(f"{details[0]} applies to the measure trial only; add --measure trial.")
        return list(names)
    from vitviz.surveys.labels import Boxes
    from vitviz.surveys.measures.trial import FaithfulnessMeasure

    settings = {"boxes": Boxes.load(boxes) if boxes else None, "steps": steps}
    settings |= {"methods": tuple(methods)} if methods else {}
    settings |= {"protocols": tuple(protocols)} if protocols else {}
    return [FaithfulnessMeasure(**settings) if name == "trial" else name for name in names]


def _with_sentences(inspector, measures: list, words: Path | None):
    """Return the inspector, with sentences as classes if "words" is among the measures.

    The sentences come from the file `words`. Without a file they are the inspector's own, or the default
    list.
    """
    if "words" not in measures:
        if words:
            raise VitvizError("--words applies to the measure words only; add --measure words.")
        return inspector
    if words is None and inspector.classes is not None:
        return inspector
    try:
        lines = words and [one for one in words.read_text(encoding="utf-8").splitlines() if one.strip()]
    except (OSError, ValueError) as error:
        raise VitvizError(f"--words {words.name} cannot be read ({type(error).__name__}).") from None
    return inspector.with_classes(vitviz.text(inspector, lines))


def _classes(path: Path | None):
    """Return the class names in a JSON file, as list or dict; None without a path.

    Raises VitvizError for a file that cannot be read as either.
    """
    if path is None:
        return None
    try:
        details = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VitvizError(f"--classes {path.name} cannot be read as JSON ({type(error).__name__}).") from None
    if not isinstance(details, dict | list):
        raise VitvizError(
            f"--classes {path.name} holds neither a list of names nor an object from names to numbers or"
            " labels."
        )
    return details


@program.command()
def figure(
    view: Annotated[str, Argument(metavar="VIEW", help="The view.")],
    picture: Annotated[str, Argument(metavar="[IMAGE]", help="An image file, or the name of a sample.")] = "",
    out: Annotated[Path | None, Option(
        "--out", "-o", help="A .svg, .pdf or .png file. The caption is saved beside it as text.")] = None,
    checkpoint: CheckpointOption = "vitviz-tiny",
    given: SettingOption = None,
    width: Annotated[float | None, Option(help="Width in mm, 40 to 400. Default: by view.")] = None,
    dpi: Annotated[int, Option(help="Resolution of a PNG: 150, 300 or 600.")] = 300,
    detail: Annotated[bool, Option("--detail", help="Include the panels beside the main figure.")] = False,
    dark: Annotated[bool, Option("--dark", help="Light on a dark background.")] = False,
    language: Annotated[str, Option(help="en, zh-CN or ko.")] = "en",
    size: Annotated[int | None, Option(help="Input size in pixels.", min=1)] = None,
    without: Annotated[str, Option(help='What to ablate, such as "heads=8.2 patches=0.17".')] = "",
    strokes: Annotated[str, Option(
        help='Edits of the image, such as "brush.mean_60.100.80 rotate_10".')] = "",
    second: Annotated[str, Option(help="For compared: the name of the second checkpoint.")] = "",
    device: DeviceOption = "auto",
    weights: WeightsOption = None,
) -> None:  # fmt: skip
    """Draw one view of one image as SVG, PDF or PNG for print, with the caption as a text file.

    VIEW is the view's name in the links of the page, such as rollout, or explorer for attention; an unknown
    name is answered with the list of views. IMAGE is a file or the name of a sample, such as chelsea. The
    views filters, positions and compared need no image.

    \b
    Examples:
      vitviz figure rollout photo.jpg -o rollout.svg
      vitviz figure explorer chelsea --set layer=3 --set head=2 --detail -o attention.pdf
      vitviz figure filters -c vit_base_patch16_224 --width 86 --dpi 600 -o filters.png

    Settings have the names that they have in the links of the page; layers and heads count from 1, patches
    from 0. Without -o the file is saved in the current folder and named by view, checkpoint and settings.
    """
    settings = settings_of(given, vitviz.figure)
    _require_place(out or Path("figure.svg"))
    photo, trace = _photo(picture), None
    if photo is None and (strokes or without or size):
        raise VitvizError("--strokes, --without and --size change how an image is seen; name an image, too.")
    inspector = vitviz.load(checkpoint, device=device, folder=weights)
    if photo is not None:
        photo = vitviz.edit_image(photo, strokes) if strokes else photo
        trace = inspector.trace(photo, size=size, ablation=vitviz.Ablation.parse(without) or None)
    beside = vitviz.load(second, device=device, folder=weights) if second else None
    file = picture and not strokes and Path(picture).exists()  # the caption names the file
    named = picture if file else photo
    asked = {"detail": detail, "dark": dark, "language": language, "picture": named, "second": beside}
    made = vitviz.figure(view, inspector, trace, **asked, **settings)
    path = made.save(out or Path(f"{made.name}.svg"), width=width, dpi=dpi)
    print(f"{path}, {path.with_suffix('.txt')}")


def _require_place(out: Path) -> None:
    """Raise VitvizError, before anything is computed, if a file of this name cannot be written."""
    require_unicode(str(out), "--out")
    try:
        possible = not out.is_dir() and out.parent.is_dir() and os.access(out.parent, os.W_OK)
    except (OSError, ValueError):  # the name is too long, or a parent folder cannot be entered
        possible = False
    if not possible:
        raise VitvizError(
            f"--out {str(out)[-200:]} cannot be written there; expected a file name in an existing folder"
            " that is writable."
        )


def settings_of(given: list[str] | None, taken_by: Callable) -> dict[str, str]:
    """Return the settings of texts such as "fusion=max", by name, as typed.

    Raises VitvizError for text without "=" and for a name that is a parameter of `taken_by`.
    """
    result = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if name in result:
            raise VitvizError(f"--set {name}=… is given twice; expected one value for each setting.")
        result[name] = value
        if not sign or name in inspect.signature(taken_by).parameters:
            raise VitvizError(
                f"--set {text} is not valid; expected name=value with a view's setting, such as --set"
                " fusion=max."
            )
    return result


def _photo(picture: str):
    """Return the upright image of a file or a sample; None for an empty name."""
    if not picture:
        return None
    from vitviz.engine.images.opening import open_image

    if not Path(picture).exists() and picture in [sample.name for sample in samples.samples()]:
        return samples.sample_image(picture)
    return open_image(picture)


@program.command()
def video(
    source: Annotated[Path, Argument(metavar="SOURCE", help="The video.")],
    out: Annotated[Path, Option("--out", "-o", help="A .mp4, .gif or .csv file.")],
    view: Annotated[str, Option(help="The view, by its name in the links of the page.")] = "rollout",
    checkpoint: CheckpointOption = "vitviz-tiny",
    given: SettingOption = None,
    start: Annotated[float, Option(help="Start time in seconds.")] = 0.0,
    stop: Annotated[float | None, Option(help="End time in seconds.")] = None,
    step: Annotated[int, Option(help="Use every STEP-th frame.", metavar="STEP")] = 1,
    most_seconds: Annotated[float, Option(help="Refuse a longer video, in seconds.")] = 60.0,
    most_frames: Annotated[int, Option(help="Refuse more frames.")] = 1_000,
    width: Annotated[int, Option(help="Width of the video in pixels, 320 to 1920.")] = 960,
    device: DeviceOption = "auto",
    weights: WeightsOption = None,
) -> None:
    """Draw a view of every frame of a video, as a video (.mp4, .gif) or a table (.csv).

    The table has one row per frame: number, time, prediction, probability or value, and flicker, the mean
    change of the map since the frame before.

    SOURCE is an MP4, MOV, WebM, MKV, AVI, GIF or animated WebP file.

    \b
    Examples:
      vitviz video walk.mp4 -o walk-rollout.mp4
      vitviz video walk.mp4 --view tokens --set show=components --start 2 --stop 6 --step 3 -o walk.gif
      vitviz video walk.mp4 --view evidence -o walk.csv
    """
    if out.suffix.lower() not in (".mp4", ".gif", ".csv"):
        raise VitvizError(
            f"{out.name} is not a valid file name; expected .mp4 or .gif for a video, or .csv for a table."
        )
    from vitviz.export.animation import check_width
    from vitviz.export.video import video_of_frames

    _require_place(out)
    check_width(width)
    settings = settings_of(given, vitviz.video)
    asked = {"start": start, "stop": stop, "step": step, **settings}
    asked |= {"most_seconds": most_seconds, "most_frames": most_frames}
    inspector = vitviz.load(checkpoint, device=device, folder=weights)
    frames = vitviz.video(source, inspector, view, **asked)
    if out.suffix.lower() == ".csv":
        rows, quantity = [], "probability"
        for f in frames:
            quantity = f.trace.quantity
            rows.append((f.number, f"{f.seconds:.6g}", f.answer, getattr(f, quantity), f.flicker))
        file = io.StringIO(newline="")
        csv.writer(file).writerows([("frame", "time", "answer", quantity, "flicker"), *rows])
        try:
            out.write_text(file.getvalue(), encoding="utf-8", newline="")
        except OSError as error:
            raise write_error(out, error) from None
    else:
        video_of_frames(frames).save(out, width)
    print(out)


@program.command()
def check(
    checkpoint: Annotated[str, Argument(metavar="MODEL", help="A checkpoint's name, folder or file.")],
    folder: Annotated[str, Argument(
        metavar="[FOLDER]", help="The images, as for survey. Default: the samples.")] = "",
    out: Annotated[Path | None, Option("--out", "-o", help="An .html file for the report.")] = None,
    method: Annotated[str, Option(help="The saliency method to check.")] = "frozen",
    limit: Annotated[int, Option(help="Maximum number of images, taken evenly from the source.", min=1)] = 8,
    device: DeviceOption = "auto",
    dtype: PrecisionOption = "float32",
    weights: WeightsOption = None,
    as_json: Annotated[bool, Option("--json", help="Print a JSON list, serious findings first.")] = False,
) -> None:  # fmt: skip
    """Check a model for faults that make maps and predictions wrong; see docs/check.md.

    Findings are printed as they come; Ctrl-C ends the check. The exit status is 1 if a finding is serious.

    \b
    Examples:
      vitviz check vitviz-tiny
      vitviz check my-model.safetensors photos/ --out check.html
    """
    if out is not None:
        _require_place(out)
        if out.suffix.lower() != ".html":
            raise VitvizError(f"--out {out.name[:200]} has another ending; the report is an .html file.")
    inspector = vitviz.load(checkpoint, device=device, dtype=dtype, folder=weights)
    tell = None if as_json else partial(print, flush=True)
    report = vitviz.check(inspector, folder or None, method, limit, on_finding=tell)
    if out is not None:
        report.save(out)
    print(json.dumps(report.rows(), indent=1, ensure_ascii=False) if as_json else report.verdict)
    raise typer.Exit(1 if report.serious else 0)


@program.command()
def checkpoints(
    search: Annotated[str, Argument(help="Part of the name.")] = "",
    here: Annotated[
        bool, Option("--here", help="Only checkpoints on this machine, which need no network.")
    ] = False,
    weights: WeightsOption = None,
    as_json: Annotated[bool, Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the checkpoints: shipped, your own, and those of timm on the Hub.

    \b
    Examples:
      vitviz checkpoints --here
      vitviz checkpoints dinov2
    """
    from vitviz import engine

    result = [
        checkpoint
        for checkpoint in engine.checkpoints(weights)
        if search.lower() in checkpoint.name.lower() and (checkpoint.on_disk or not here)
    ]
    fields = "name architecture source input_size parameters trained_on licence on_disk".split()
    if as_json:
        details = [{name: getattr(row, name) for name in fields} for row in result]
        print(json.dumps(details, indent=1, ensure_ascii=False))
        return
    for one in result:
        there = "on the hub, downloaded" if one.on_disk else "on the hub"
        place = there if one.source == "hub" else one.source
        size = f"{one.input_size[1]} x {one.input_size[2]}" if one.input_size else ""
        millions = f"{one.parameters / 1e6:.1f} M" if one.parameters else ""
        print("  ".join(filter(None, (one.name, size, millions, one.trained_on, place))))
    if not result:
        print(f"No checkpoint has {quoted(search)} in its name." if search else "There are no checkpoints.")


_OWN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@program.command(context_settings=_OWN, help="Start the page; `vitviz app --help` lists its options.")
def app(context: typer.Context) -> None:
    """Start the page. All options, --help included, are the page's own."""
    gc.disable()  # as in app.py: imported objects live until the process ends
    from vitviz.server.launch import App

    App(context.args, "vitviz app").serve()


def main() -> None:
    """Run the program. A VitvizError is printed to stderr, without a traceback, and the exit status is 1."""
    try:
        program()
    except VitvizError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
