"""`vitviz figure`: one view of one picture as a file for print."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from vitviz.command.checkpoints import Checkpoint, Device, Weights
from vitviz.errors import VitvizError

Given = Annotated[
    list[str] | None, Option("--set", "-s", help="A setting, such as fusion=max; may be repeated.")
]


def figure(
    view: Annotated[str, Argument(metavar="VIEW", help="Which view.")],
    picture: Annotated[str, Argument(metavar="[PICTURE]", help="A file, or a sample's name.")] = "",
    out: Annotated[
        Path | None, Option("--out", "-o", help="A .svg, .pdf or .png; the caption goes beside it.")
    ] = None,
    checkpoint: Checkpoint = "vitviz-tiny",
    given: Given = None,
    width: Annotated[float | None, Option(help="Width in mm, 40 to 400. Default: what it needs.")] = None,
    dpi: Annotated[int, Option(help="Of a PNG: 150, 300 or 600.")] = 300,
    detail: Annotated[bool, Option("--detail", help="With what stands beside the figure.")] = False,
    dark: Annotated[bool, Option("--dark", help="Light on dark instead of dark on white.")] = False,
    language: Annotated[str, Option(help="en, zh-CN or ko.")] = "en",
    size: Annotated[int | None, Option(help="Side of the model's input in pixels.", min=1)] = None,
    without: Annotated[str, Option(help='What is taken away, such as "heads=8.2 patches=0.17".')] = "",
    strokes: Annotated[
        str, Option(help='What is painted over it first, such as "brush.mean_60.100.80 rotate_10".')
    ] = "",
    second: Annotated[str, Option(help="Of compared: the checkpoint beside it, by its name.")] = "",
    device: Device = "auto",
    weights: Weights = None,
) -> None:
    """One view of one picture as SVG, PDF or PNG for print, with its caption beside it as text.

    VIEW is a view's name in the page's links, such as rollout, or explorer for attention; any other is
    answered with the list of all. PICTURE is a file, or the name of a sample such as chelsea; filters,
    positions and compared, which is over parts of the sample photographs, need none.

    \b
    Examples:
      vitviz figure rollout photo.jpg -o rollout.svg
      vitviz figure explorer chelsea --set layer=3 --set head=2 --detail -o attention.pdf
      vitviz figure filters -c vit_base_patch16_224 --width 86 --dpi 600 -o filters.png

    Settings are those of the page, by the names in its links; layers and heads count from 1, patches from 0.
    Without -o the file lies in this folder, named by view, checkpoint and settings.
    """
    import vitviz

    settings = settings_of(given, vitviz.figure)
    photo, trace = _photo(picture), None
    inspector = vitviz.load(checkpoint, device=device, folder=weights)
    if photo is not None:
        photo = vitviz.retouched(photo, strokes) if strokes else photo
        trace = inspector.trace(photo, size=size, without=vitviz.Without.parse(without) if without else None)
    beside = vitviz.load(second, device=device, folder=weights) if second else None
    file = picture and not strokes and Path(picture).exists()  # its name stands in the caption
    named = picture if file else photo
    asked = {"detail": detail, "dark": dark, "language": language, "picture": named, "second": beside}
    made = vitviz.figure(view, inspector, trace, **asked, **settings)
    path = made.save(out or Path(f"{made.name}.svg"), width=width, dpi=dpi)
    print(f"{path}, {path.with_suffix('.txt')}")


def settings_of(given: list[str] | None, taken_by: Callable) -> dict[str, str]:
    """A view's settings as they are typed, by name; VitvizError for one without a sign between name and
    value, or that is no view's but an argument of the function they are for.
    """
    found = {}
    for text in given or ():
        name, sign, found[name] = text.partition("=")
        if not sign or name in inspect.signature(taken_by).parameters:
            raise VitvizError(
                f"Given --set {text}; expected name=value with a view's setting, such as --set fusion=max."
            )
    return found


def _photo(picture: str):
    """The upright picture of a file or a sample; None where none is named."""
    if not picture:
        return None
    from vitviz.engine.pictures.images import open_image
    from vitviz.record import samples

    if not Path(picture).exists() and picture in [one.name for one in samples.samples()]:
        return samples.sample_image(picture)
    return open_image(picture)
