"""`vitviz survey`: what heads do on average over a set of pictures."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from vitviz.command.checkpoints import Checkpoint, Device, Weights
from vitviz.errors import VitvizError

# written out: help loads no torch; a test compares
NAMES = tuple(
    "distance prefix_mass entropy skip similarity ledger lens accuracy trial smallest_part words".split()
)
PROGRESS = "{n_fmt} of {total_fmt} pictures, {rate_noinv_fmt}, {remaining} left"


def survey(
    source: Annotated[str, Argument(metavar="SOURCE", help="Where the pictures are.")],
    out: Annotated[
        Path, Option("--out", "-o", help="Folder for report, table and averages; a survey in it goes on.")
    ],
    checkpoint: Checkpoint = "vitviz-tiny",
    measure: Annotated[
        list[str] | None, Option("--measure", "-m", help="May be repeated. Default: distance, prefix_mass.")
    ] = None,
    limit: Annotated[
        int | None, Option(help="Only so many pictures: the first, or with --seed drawn at random.", min=1)
    ] = None,
    seed: Annotated[
        int | None, Option(help="Draws the --limit pictures at random, the same ones for the same seed.")
    ] = None,
    classes: Annotated[
        Path | None,
        Option(help="JSON: the source's class names in the checkpoint's order, or name: number or label."),
    ] = None,
    boxes: Annotated[
        Path | None,
        Option(
            help="For trial: where the objects are, as JSON {picture: [[left, top, right, bottom]]} or a"
            " folder of VOC's XML; adds pointing game and energy in the box."
        ),
    ] = None,
    method: Annotated[
        list[str] | None, Option(help="For trial: a method of vitviz.METHODS; may be repeated.")
    ] = None,
    patches_as: Annotated[
        list[str] | None,
        Option(
            help="For trial: removed patches are dropped, mean, blur or black; may be repeated. Default:"
            " dropped."
        ),
    ] = None,
    words: Annotated[
        Path | None,
        Option(help="For words: sentences to choose from, one a line. Default: 200 plain words."),
    ] = None,
    size: Annotated[
        int | None, Option(help="Side of the model's input in pixels. Default: as trained.", min=1)
    ] = None,
    batch: Annotated[int, Option(help="Pictures that go through the model at once.", min=1)] = 8,
    workers: Annotated[
        int, Option(help="Ray's actors that share the pictures; needs vitviz[cluster].", min=0)
    ] = 0,
    device: Device = "auto",
    dtype: Annotated[str, Option(help="float32 or bfloat16.")] = "float32",
    weights: Weights = None,
    as_json: Annotated[
        bool, Option("--json", help="Print averages and settings as JSON; progress goes to stderr.")
    ] = False,
) -> None:
    """Averages over pictures, with standard errors, a row a picture and a report.

    SOURCE is a folder of pictures, a folder with one folder a class, a list in .csv or .parquet (columns path
    and label), a webdataset .tar or a folder of them, or hf:NAME[:SPLIT] for a data set of the hub.

    \b
    Examples:
      vitviz survey photos/ --out report/
      vitviz survey imagenet/val --checkpoint vit_base_patch16_224 \\
          --measure distance --measure accuracy --limit 1000 --seed 0 --out report/

    Ended at any moment, the same command goes on where it was. Pictures that cannot be read are listed in
    skipped.csv.

    \b
    Measures:
      distance     how far each head looks, in pixels (figure 7 right of the paper)
      prefix_mass  the attention that each head spends on class token and registers
      entropy      how many tokens each head spreads over, in nats
      skip         how much longer the skip is than the branch beside it, by layer
      similarity   how alike the tokens of any two depths are (CKA)
      ledger       each head's and MLP's share of the answer's logit
      lens         by depth, how often the answer is there already
      accuracy     how often the answer is right; needs labels
      trial        how well maps of relevance predict what the model loses, beside chance
      smallest_part  how few edges the answer needs, by share and at random
      words        what each head writes, in words; for CLIP, SigLIP and their kin
    """
    unknown = [name for name in measure or () if name not in NAMES]
    if unknown:  # before torch is imported and a checkpoint loaded
        raise VitvizError(f"There is no measure {unknown[0]!r}; expected of {', '.join(NAMES)}.")
    meant = _classes(classes)
    import vitviz
    from vitviz.surveys.report import summary_of
    from vitviz.surveys.run import USUAL, told

    asked = {"size": size, "batch": batch, "limit": limit, "seed": seed, "workers": workers}
    try:
        inspector = vitviz.load(checkpoint, device=device, dtype=dtype, folder=weights)
        measures = _measures(measure or USUAL, boxes, method, patches_as)
        inspector = _worded(inspector, measures, words)
        ends, seconds = ("", 0.2) if sys.stderr.isatty() else ("\n", 10)  # a file has a line each time
        with told(True, bar_format=PROGRESS + ends, mininterval=seconds) as tell:
            found = vitviz.survey(source, inspector, measures, out=out, classes=meant, progress=tell, **asked)
    except KeyboardInterrupt:
        print(f"Stopped. What is done lies in {out}; the same command goes on.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(summary_of(found), indent=1, ensure_ascii=False))
        return
    left_out = f"; {found.left_out} could not be read: see skipped.csv" if found.left_out else ""
    print(f"{found.images} pictures{left_out}. {out / 'report.html'}")


def _measures(names, boxes: Path | None, methods: list[str] | None, protocols: list[str] | None) -> list:
    """The measures, the trial with its settings; VitvizError for settings of one that is not asked for."""
    given = {"--boxes": boxes, "--method": methods, "--patches-as": protocols}
    told = [name for name, value in given.items() if value]
    if "trial" not in names:
        if told:
            raise VitvizError(f"{told[0]} belongs to the measure trial; ask for it with --measure trial.")
        return list(names)
    from vitviz.surveys.labels import Boxes
    from vitviz.surveys.measures.trial import TrialMeasure

    settings = {"boxes": Boxes.of(boxes) if boxes else None}
    settings |= {"methods": tuple(methods)} if methods else {}
    settings |= {"protocols": tuple(protocols)} if protocols else {}
    return [TrialMeasure(**settings) if name == "trial" else name for name in names]


def _worded(inspector, measures: list, words: Path | None):
    """The inspector with the words of a file, or the plain ones where it has none and they are asked for."""
    if "words" not in measures:
        if words:
            raise VitvizError("--words belongs to the measure words; ask for it with --measure words.")
        return inspector
    if words is None and inspector.classes is not None:
        return inspector
    import vitviz

    try:
        lines = words and [one for one in words.read_text(encoding="utf-8").splitlines() if one.strip()]
    except (OSError, ValueError) as error:
        raise VitvizError(f"--words {words.name} cannot be read ({type(error).__name__}).") from None
    return inspector.with_classes(vitviz.text(inspector, lines))


def _classes(path: Path | None):
    """What the labels mean, from JSON; VitvizError for a file that is none."""
    if path is None:
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VitvizError(f"--classes {path.name} cannot be read as JSON ({type(error).__name__}).") from None
    if not isinstance(told, dict | list):
        raise VitvizError(
            f"--classes {path.name} holds neither a list of names nor an object from names to numbers or"
            " labels."
        )
    return told
