"""Shapes written in signatures are checked at every call of a test: jaxtyping's import hook, with beartype."""

from jaxtyping import install_import_hook

install_import_hook("vitviz", "beartype.beartype")
