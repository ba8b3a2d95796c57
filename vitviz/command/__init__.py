"""The command line `vitviz`. A subcommand imports what it needs when it runs: help loads no model."""

import sys

import typer

from vitviz.command import app, checkpoints, figure, survey, video

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
program.command("survey", help=survey.HELP)(survey.survey)
program.command("figure", help=figure.HELP)(figure.figure)
program.command("video", help=video.HELP)(video.video)
program.command("checkpoints")(checkpoints.checkpoints)
program.command("app", context_settings=app.OWN, help=app.HELP)(app.app)


def main() -> None:
    """What is installed as `vitviz`; a mistake of the user ends it with a sentence and not with a trace."""
    from vitviz.errors import VitvizError

    try:
        program()
    except VitvizError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


__all__ = ["main", "program"]
