import threading

import pytest

from vitviz.server.services.cache import Cache


def test_cache_evicts_least_recently_used_and_keeps_newest():
    cache = Cache(limit=10, size=len)
    for name in "abc":
        cache.get(name, lambda: b"1234")
    assert cache.peek("a") is None and cache.peek("b") == b"1234"
    cache.get("big", lambda: b"x" * 50)
    assert cache.peek("b") is None and cache.peek("c") is None and cache.peek("big") == b"x" * 50


def test_peek_renews_an_entry():
    cache = Cache(limit=10, size=len)
    cache.get("a", lambda: b"1234")
    cache.get("b", lambda: b"1234")
    cache.peek("a")
    cache.get("c", lambda: b"1234")
    assert cache.peek("a") is not None and cache.peek("b") is None


def test_identical_requests_compute_once():
    cache, computations, arrivals = Cache(limit=100, size=len), [], threading.Semaphore(0)

    def make():
        computations.append(1)
        assert all(arrivals.acquire(timeout=20) for _ in range(8)), "not all requests have arrived"
        return b"x"

    def ask():
        arrivals.release()
        cache.get("key", make)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert not any(thread.is_alive() for thread in threads), "a request never returned"
    assert computations == [1]


def test_failed_computation_is_not_cached():
    cache = Cache(limit=100, size=len)
    with pytest.raises(RuntimeError):
        cache.get("key", lambda: (_ for _ in ()).throw(RuntimeError))
    assert cache.get("key", lambda: b"fine") == b"fine"
