"""`python -m vitviz`, where the script is not installed."""

from vitviz.cli import main

main()
