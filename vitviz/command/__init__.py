"""The command line `vitviz`. A subcommand imports what it needs when it runs: help loads no model."""

import gc
import sys

import typer

from vitviz.command import checkpoints, figure, survey, video
from vitviz.errors import VitvizError

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
for command in (survey.survey, figure.figure, video.video, checkpoints.checkpoints):
    program.command()(command)
_OWN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@program.command(context_settings=_OWN, help="Start the page; `vitviz app --help` lists its options.")
def app(context: typer.Context) -> None:
    """All options are the page's own, its --help too."""
    gc.disable()  # as in app.py: what is imported stays
    from vitviz.ui.starting import App

    App(context.args, "vitviz app").serve()


def main() -> None:
    """What is installed as `vitviz`; a mistake of the user ends it with a sentence and not with a trace."""
    try:
        program()
    except VitvizError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
