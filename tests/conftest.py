"""The shapes written in signatures are checked at every call of a test, by jaxtyping's import hook with beartype.

The rooms that compute are checked. The others have tests that hand them wrong shapes on purpose, to read the sentence
that a user gets; a type error would come first.
"""

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int does where a float is asked for

install_import_hook(["vitviz.grid", "vitviz.trace", "vitviz.analyses", "vitviz.models"], f"{__name__}.checked")
