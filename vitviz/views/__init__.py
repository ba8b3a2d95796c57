"""The views, in the order of the paper's figure 1. A new one is a folder beside this, named in VIEWS."""

from vitviz.views.base import File, Item, Needs, View, Words
from vitviz.views.compared import Compared
from vitviz.views.controls import About, Choice, Control, LayerRange, Query, Slider, Text, Whole, Wholes
from vitviz.views.distance import Distance
from vitviz.views.evidence import Evidence
from vitviz.views.experiment import Experiment
from vitviz.views.explorer import Explorer
from vitviz.views.filters import Filters
from vitviz.views.patches import Patches
from vitviz.views.positions import Positions
from vitviz.views.rollout import Rollout
from vitviz.views.subject import Subject
from vitviz.views.tokens import Tokens
from vitviz.views.tour import Tour
from vitviz.views.trial import Trial

VIEWS: tuple[View, ...] = (
    Patches(), Filters(), Positions(), Experiment(), Explorer(), Tokens(), Evidence(), Trial(), Distance(),
    Rollout(), Compared(),
    Tour(),
)  # fmt: skip

__all__ = [
    "VIEWS", "About", "Choice", "Control", "File", "Item", "LayerRange", "Needs", "Query", "Slider",
    "Subject", "Text",
    "View", "Whole", "Wholes", "Words",
]  # fmt: skip
