"""What a forked process has to have anew: locks, and torch's threads.

The thread that held a lock when the process was forked does not exist there, so nobody would open it. Neither
do the threads that torch computed with, but a child's first pass would wait for them for ever.
"""

import os
import threading
from contextlib import AbstractContextManager
from weakref import WeakKeyDictionary

import torch

_owners: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def lock_of(owner: object, name: str = "_lock") -> AbstractContextManager:
    """A lock to be kept as this attribute of its owner, where a forked process finds a new one, open."""
    _owners[owner] = name
    return threading.RLock()


def _renew() -> None:
    for owner, name in list(_owners.items()):
        setattr(owner, name, threading.RLock())
    if _owners:  # something may have been computed
        torch.set_num_threads(1)  # then nobody is waited for


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
