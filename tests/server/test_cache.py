import threading

import pytest

from vitviz.server.services.cache import Cache


def test_the_least_used_are_put_out_and_the_newest_stays():
    cache = Cache(limit=10, size=len)
    for name in "abc":
        cache.get(name, lambda: b"1234")
    assert cache.peek("a") is None and cache.peek("b") == b"1234"
    cache.get("big", lambda: b"x" * 50)
    assert cache.peek("b") is None and cache.peek("c") is None and cache.peek("big") == b"x" * 50


def test_being_used_keeps_an_entry():
    cache = Cache(limit=10, size=len)
    cache.get("a", lambda: b"1234")
    cache.get("b", lambda: b"1234")
    cache.peek("a")
    cache.get("c", lambda: b"1234")
    assert cache.peek("a") is not None and cache.peek("b") is None


def test_identical_requests_compute_once():
    cache, made, asking = Cache(limit=100, size=len), [], threading.Semaphore(0)

    def make():
        made.append(1)
        assert all(asking.acquire(timeout=20) for _ in range(8)), "not all have come"
        return b"x"

    def ask():
        asking.release()
        cache.get("key", make)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"
    assert made == [1]


def test_a_failure_is_not_kept():
    cache = Cache(limit=100, size=len)
    with pytest.raises(RuntimeError):
        cache.get("key", lambda: (_ for _ in ()).throw(RuntimeError))
    assert cache.get("key", lambda: b"fine") == b"fine"
