"""`python -m vitviz.command`, where the script is not installed."""

from vitviz.command import main

main()
