"""Figures for print of every view with captions, and videos over layers, training snapshots and video files.

>>> import vitviz
>>> inspector = vitviz.load("vitviz-tiny")
>>> trace = inspector.trace(vitviz.sample_image("chelsea"))
>>> made = vitviz.figure("rollout", inspector, trace, fusion="max")
>>> made.name, made.svg()[:5]
('vitviz-rollout_vitviz-tiny_fusion-max', b'<?xml')
"""

from vitviz.export.animation import Animation, animation
from vitviz.export.figure import Figure, figure, print_view
from vitviz.export.video import VideoFrame, video, video_of_frames

__all__ = [
    "Animation", "Figure", "VideoFrame", "animation", "figure", "video_of_frames", "print_view", "video"
]  # fmt: skip
