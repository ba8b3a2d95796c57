"""What several views need of a trace, computed once and forgotten with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitviz import analyses

if TYPE_CHECKING:
    from vitviz.analyses import Sweep
    from vitviz.views.subject import Subject


def sweep_of(subject: Subject) -> Sweep:
    """Distance, mass on the prefix and default rollout of a trace, from one sweep over its layers."""
    return subject.once("sweep", lambda: analyses.sweep(subject.trace))
