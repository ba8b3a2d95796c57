"""`vitviz checkpoints`: what can be looked into."""

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

# options that other subcommands have, too
Checkpoint = Annotated[
    str, Option("--checkpoint", "-c", help="Name, folder or file; see `vitviz checkpoints`.")
]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:N or mps.")]
Weights = Annotated[Path | None, Option(help="Folder of your own checkpoints.")]


def checkpoints(
    search: Annotated[str, Argument(help="Only names that hold this.")] = "",
    here: Annotated[
        bool, Option("--here", help="Only those on this machine, which need no network.")
    ] = False,
    weights: Weights = None,
    as_json: Annotated[bool, Option("--json", help="Print a list of objects.")] = False,
) -> None:
    """Lists the checkpoints: shipped, your own, and timm's on the hub.

    \b
    Examples:
      vitviz checkpoints --here
      vitviz checkpoints dinov2
    """
    from vitviz import engine

    found = [
        one
        for one in engine.checkpoints(weights)
        if search.lower() in one.name.lower() and (one.on_disk or not here)
    ]
    fields = "name architecture source input_size parameters trained_on licence on_disk".split()
    if as_json:
        told = [{name: getattr(one, name) for name in fields} for one in found]
        print(json.dumps(told, indent=1, ensure_ascii=False))
        return
    for one in found:
        there = "on the hub, downloaded" if one.on_disk else "on the hub"
        place = there if one.source == "hub" else one.source
        size = f"{one.input_size[1]} x {one.input_size[2]}" if one.input_size else ""
        millions = f"{one.parameters / 1e6:.1f} M" if one.parameters else ""
        print("  ".join(filter(None, (one.name, size, millions, one.trained_on, place))))
    if not found:
        print(f"No checkpoint's name holds {search!r}." if search else "There are no checkpoints.")
