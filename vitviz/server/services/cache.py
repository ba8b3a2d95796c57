"""Cache bounded in bytes that computes each entry once for concurrent callers; unguessable keys."""

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from vitviz.traces import cancellation

T = TypeVar("T")
_making: ContextVar[bool] = ContextVar("vitviz_making", default=False)
_aside: ContextVar[Callable[[], AbstractContextManager]] = ContextVar("vitviz_aside", default=nullcontext)


def set_waiting_context(context: Callable[[], AbstractContextManager]) -> AbstractContextManager[None]:
    """Set the context that releases this thread's resources while it waits for another's entry."""
    return cancellation.bind(_aside, context)


def is_computing() -> bool:
    """Return True if this thread is computing an entry that others may be waiting for."""
    return _making.get()


class Cache(Generic[T]):
    """Least-recently-used cache, limited to `limit` bytes in total; the newest entry always stays.

    >>> cache = Cache(limit=10, size=len)
    >>> cache.get("a", lambda: b"12345"), cache.get("a", lambda: b"never made")
    (b'12345', b'12345')
    """

    def __init__(self, limit: int, size: Callable[[T], int]):
        self.limit = limit
        self._size = size
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._making: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()

    def peek(self, key: Hashable) -> T | None:
        """Return the entry if present, and mark it as used."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the entry; if missing, one caller makes it and others wait; after an error another tries."""
        while True:
            with self._lock:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    return self._entries[key][0]
                waiting = self._making.get(key)
                if waiting is None:
                    self._making[key] = threading.Event()
                    break
            with _aside.get()():
                while not waiting.wait(0.5):
                    cancellation.check()  # other waiting callers continue
        token = _making.set(True)
        try:
            entry = make()
            size = self._size(entry)
            with self._lock:
                self._entries[key] = (entry, size)
                total = sum(size for _, size in self._entries.values())
                while total > self.limit and len(self._entries) > 1:
                    _, (_, gone) = self._entries.popitem(last=False)
                    total -= gone
            return entry
        finally:
            _making.reset(token)
            with self._lock:
                self._making.pop(key).set()

    def within(self, turn: Callable[[], AbstractContextManager], key: Hashable, make: Callable[[], T]) -> T:
        """Return the entry; if missing, wait for it or compute it within the context of `turn()`."""
        value = self.peek(key)
        if value is not None:
            return value
        with turn():
            return self.get(key, make)

    def forget(self, test: Callable[[Hashable, T], bool]) -> set[Hashable]:
        """Evict the entries whose key and value pass a test; return their keys."""
        with self._lock:
            gone = {key for key, (entry, _) in self._entries.items() if test(key, entry)}
            for key in gone:
                del self._entries[key]
        return gone


def key_contains(key: Hashable, among: Collection[str]) -> bool:
    """Return True if a key, or a part of a nested tuple, is in `among`."""
    return any(key_contains(one, among) for one in key) if isinstance(key, tuple) else key in among


def value_bytes(value: Any) -> int:
    """Return a value's size in bytes, at least 1000; counts tensors, arrays, and fields of records."""
    if isinstance(value, bytes):
        return len(value)
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    parts = value if isinstance(value, tuple | list) else getattr(value, "__dict__", {}).values()
    held = [part for part in parts if not isinstance(part, str | int | float | bool | None)]
    return 1_000 + sum(map(value_bytes, held))


class Keys:
    """Content keys, salted per server so that they cannot be computed elsewhere."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)

    def of(self, *parts: bytes) -> str:
        """Return the key of some parts; equal parts give equal keys."""
        digest = hashlib.blake2b(key=self._salt, digest_size=20)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()
