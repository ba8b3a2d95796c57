"""Results that several views share are computed once, even for concurrent requests."""

import threading

from vitviz import analyses
from vitviz.analyses.example import example_trace
from vitviz.server.services.cache import Cache
from vitviz.traces.grid import Grid
from vitviz.views import ViewContext
from vitviz.views import shared as seen


def subject(trace) -> ViewContext:
    """As the service makes it: what is made once is kept in its cache."""
    kept: Cache = Cache(10, lambda entry: 1)
    return ViewContext(None, trace, once=kept.get)


def test_concurrent_requests_compute_once(monkeypatch):
    made, real = [], analyses.distances
    start, asking = threading.Barrier(4), threading.Semaphore(0)

    def slow(trace):
        made.append(trace)
        assert all(asking.acquire(timeout=20) for _ in range(4)), "not all have come"
        return real(trace)

    monkeypatch.setattr(analyses, "distances", slow)
    looked, found = subject(example_trace(Grid(2, 2, (4, 4), ("class",)), seed=1)), []

    def ask():
        start.wait()
        asking.release()
        found.append(seen.shared_distances(looked))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(made) == 1 and len(found) == 4 and all(one is found[0] for one in found)


def test_failed_computation_is_repeated_without_blocking_others(monkeypatch):
    real, fails = analyses.distances, [True]

    def once(trace):
        if fails.pop():
            raise MemoryError
        return real(trace)

    looked = subject(example_trace(Grid(2, 2, (4, 4), ("class",)), seed=1))
    monkeypatch.setattr(analyses, "distances", lambda trace: once(trace))
    for expected in (False, True):
        fails[:] = [not expected]
        try:
            seen.shared_distances(looked)
            assert expected
        except MemoryError:
            assert not expected
