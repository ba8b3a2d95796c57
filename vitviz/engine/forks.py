"""Locks in a forked process: the thread that held one when it was forked does not exist there, so nobody would open it."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

_owners: WeakSet = WeakSet()


def renew_lock_of(owner: object) -> None:
    """A forked process finds `owner._lock` new and open."""
    _owners.add(owner)


def _renew() -> None:
    for owner in _owners:
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
