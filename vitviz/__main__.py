"""Run the command line as `python -m vitviz`, where the `vitviz` script is not installed."""

from vitviz.cli import main

main()
