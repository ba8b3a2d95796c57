"""`python -m vitviz`, where the script is not installed."""

from vitviz.command import main

main()
