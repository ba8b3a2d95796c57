"""A view as a stranger would add it: one folder, which a test copies into a copy of the house."""
