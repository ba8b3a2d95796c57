"""`python -m vitviz`, where the script is not installed."""

import runpy

runpy.run_module("vitviz.command", run_name="__main__")
