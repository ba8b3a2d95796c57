"""The page: the picture, the checkpoint and the answer on the left, the views as tabs on the right."""

from vitviz.ui.page.build import build, launch

__all__ = ["build", "launch"]
