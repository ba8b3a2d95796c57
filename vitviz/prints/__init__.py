"""Figures for print of every view, without a page, each with its caption; and films of them.

>>> import vitviz
>>> inspector = vitviz.load("vitviz-tiny")
>>> trace = inspector.trace(vitviz.sample_image("chelsea"))
>>> made = vitviz.figure("rollout", inspector, trace, fusion="max")
>>> made.name, made.svg()[:5]
('vitviz-rollout_vitviz-tiny_fusion-max', b'<?xml')
"""

from vitviz.prints.animation import Animation, animation
from vitviz.prints.figure import Figure, figure, printed

__all__ = ["Animation", "Figure", "animation", "figure", "printed"]
