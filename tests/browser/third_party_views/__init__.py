"""Two example views of a third party, a map and a chart. A test copies them into a copy of the project."""
