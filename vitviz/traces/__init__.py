"""The immutable result of one forward pass, the run that produced it, and helpers shared by all packages."""
