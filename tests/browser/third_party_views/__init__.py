"""Two views as a stranger would add them, a map and a chart: a test copies the folders into a house."""
