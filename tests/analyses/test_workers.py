"""Distribution of a layer's queries over threads: results stay equal."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from vitviz.analyses import streaming, sweep
from vitviz.analyses.example import example_trace
from vitviz.traces.grid import Grid

TRACE = example_trace(Grid(6, 9, (4, 4), ("class",)), layers=3, heads=3, seed=1)


@pytest.fixture
def three_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(streaming, "WORTHWHILE", 1)
    yield
    torch.set_num_threads(before)


def test_row_parts_cover_all_rows_in_order(three_threads):
    rows_read, names = [], set()

    def read(rows):
        names.add(threading.current_thread().name)
        return list(range(rows.start, rows.stop))

    for part in streaming.map_row_parts(read, slice(5, 22), width=1):
        rows_read += part
    assert rows_read == list(range(5, 22)) and names and all("vitviz-read" in name for name in names)


def test_small_work_stays_in_calling_thread():
    assert streaming.map_row_parts(
        lambda rows: (rows, threading.current_thread().name), slice(0, 10), width=10
    ) == [(slice(0, 10), "MainThread")]


@pytest.mark.parametrize("query", ["auto", "mean", 7])
def test_parallel_sweep_equals_serial_sweep(three_threads, monkeypatch, query):
    parallel = sweep(TRACE, query)
    monkeypatch.setattr(streaming, "WORTHWHILE", 2**60)
    serial = sweep(TRACE, query)
    assert torch.allclose(parallel.rollout, serial.rollout, rtol=1e-5, atol=1e-8)
    for name in ("distance", "renormalised", "prefix_mass"):
        assert torch.allclose(getattr(parallel.distances, name), getattr(serial.distances, name), rtol=1e-5)


def test_error_in_worker_reaches_caller(three_threads):
    with pytest.raises(ZeroDivisionError):
        streaming.map_row_parts(lambda rows: 1 / (rows.start - rows.start), slice(0, 9), width=1)


def test_torch_thread_count_is_restored(three_threads):
    streaming._threads.cache_clear()
    assert streaming.map_row_parts(lambda rows: torch.get_num_threads(), slice(0, 9), width=1) == [1, 1, 1]
    later = []
    new = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    new.start()
    new.join()
    assert torch.get_num_threads() == 3 and later == [3]


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forked_process_creates_its_own_threads():
    code = """
import os, signal, torch
from vitviz.analyses import streaming
torch.set_num_threads(2)
streaming.WORTHWHILE = 1
sums = lambda: streaming.map_row_parts(lambda rows: rows.stop - rows.start, slice(0, 8), width=1)
sums()
child = os.fork()
if not child:
    signal.alarm(30)  # a fork that hangs ends by itself
    os._exit(0 if sums() == [4, 4] else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.processes
def test_interrupt_during_thread_creation_does_not_deadlock():
    code = """
import threading, torch
from vitviz.analyses import streaming
torch.set_num_threads(2)
streaming.WORTHWHILE = 1
wait = threading.Barrier.wait
def sums():
    return streaming.map_row_parts(lambda rows: rows.stop - rows.start, slice(0, 8), width=1)
def interrupted(self, *given):
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    return wait(self, *given)
threading.Barrier.wait = interrupted
try:
    sums()
except KeyboardInterrupt:
    threading.Barrier.wait = wait
    assert sums() == [4, 4]
    print("went on")
"""
    assert (
        subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True).stdout
        == "went on\n"
    )  # the process ended


def test_single_thread_pool_is_kept(three_threads):
    for count in (2, 3, 2):
        torch.set_num_threads(count)
        assert len(streaming.map_row_parts(lambda rows: rows, slice(0, 9), width=1)) == count
    assert streaming._threads.cache_info().currsize == 1
