"""Renew locks and torch's threads in a forked process.

A thread that held a lock at the fork does not exist in the child, so the lock would never be released. The
threads that torch computed with do not exist there either; the child's first pass would wait for them for
ever.
"""

import os
import threading
from contextlib import AbstractContextManager
from weakref import WeakKeyDictionary

import torch

_owners: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def lock_of(owner: object, name: str = "_lock") -> AbstractContextManager:
    """Return a new lock for the attribute `name` of `owner`, which a forked process replaces by a new one."""
    _owners[owner] = name
    return threading.RLock()


def _reset_after_fork() -> None:
    """Replace all registered locks by new ones in a forked process; limit torch to one thread there."""
    for owner, name in list(_owners.items()):
        setattr(owner, name, threading.RLock())
    if _owners:  # the parent may have computed on several threads
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
