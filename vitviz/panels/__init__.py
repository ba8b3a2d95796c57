"""The views, in the order of figure 1 of the paper. A new one is a file beside this and a line in PANELS."""

from vitviz.panels.base import Panel, Subject
from vitviz.panels.distance import Distance
from vitviz.panels.explorer import Explorer
from vitviz.panels.filters import Filters
from vitviz.panels.patches import Patches
from vitviz.panels.positions import Positions
from vitviz.panels.rollout import Rollout
from vitviz.panels.tour import Tour

PANELS: tuple[Panel, ...] = (Patches(), Filters(), Positions(), Explorer(), Distance(), Rollout(), Tour())

__all__ = ["PANELS", "Panel", "Subject"]
