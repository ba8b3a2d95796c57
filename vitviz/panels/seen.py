"""What several views need of a trace, computed once and forgotten with it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from vitviz import analyses

if TYPE_CHECKING:
    from vitviz.analyses import Sweep
    from vitviz.trace import Trace

_sweeps: WeakKeyDictionary[Trace, Sweep] = WeakKeyDictionary()
_lock = threading.Lock()


def sweep_of(trace: Trace) -> Sweep:
    """Distance, mass on the prefix and default rollout of a trace, from one sweep over its layers."""
    with _lock:
        seen = _sweeps.get(trace)
    if seen is None:
        seen = analyses.sweep(trace)
        with _lock:
            _sweeps[trace] = seen
    return seen
