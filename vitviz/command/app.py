"""`vitviz app`: the page in the browser, with the options of `python app.py`."""

import gc

import typer

OWN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
HELP = "Start the page; `vitviz app --help` lists its options."


def app(context: typer.Context) -> None:
    """All options are the page's own, its --help too."""
    gc.disable()  # as in app.py: what is imported stays
    from vitviz.ui.starting import begun, serve

    serve(begun(context.args, "vitviz app"))
