"""What a forked process has to have anew: locks, and torch's threads.

The thread that held a lock when the process was forked does not exist there, so nobody would open it. Neither
do the threads that torch computed with, but a child's first pass would wait for them for ever.
"""

import os
import threading
from weakref import WeakKeyDictionary

import torch

_owners: WeakKeyDictionary[object, tuple[str, ...]] = WeakKeyDictionary()


def renew_lock_of(owner: object, *names: str) -> None:
    """A forked process finds `owner._lock`, or the locks that are named, new and open."""
    _owners[owner] = names or ("_lock",)


def _renew() -> None:
    for owner, names in list(_owners.items()):
        for name in names:
            setattr(owner, name, threading.RLock())
    if _owners:  # something may have been computed
        torch.set_num_threads(1)  # then nobody is waited for


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
