"""What the classroom experiment asks about, and why it is refused; without torch, for a page being built.

The names are of `vitviz.analyses.experiment`, which says what it finds; these do not show anything yet.
"""

from __future__ import annotations

DRAWS = 10  # seeds 1 to 10: `inspector.experiment(image, shuffle=3)` is the third draw of single patches
SHARES = tuple(range(0, 101, 10))  # per cent of the patches that are dropped
WAYS = {"drop": ("dropped", "black"), "shuffle": ("shuffled",)}
SCORES = ("probability", "kept")
NO_HEAD = "{checkpoint} has no classifier, so there is no answer that could be watched."
EDITED = "The experiment is on the whole model. Put back what was taken away."
ONE_PATCH = "{checkpoint} sees a single patch, so there is nothing to drop or to shuffle."
