"""Progress of a forward pass is reported to its listener only."""

import pytest

from tests.engine.random_inspectors import inspect, noise
from tests.engine.small_models import small_vit
from vitviz.traces import progress


def test_pass_reports_layers_in_order_to_its_listener_only():
    inspector, reports = inspect(small_vit(depth=3)), []
    with progress.to(lambda done, of: reports.append((done, of))):
        inspector.trace(noise())
    assert reports == [(1, 3), (2, 3), (3, 3)]
    inspector.trace(noise())
    assert len(reports) == 3


def test_innermost_progress_listener_receives_reports():
    outer, inner = [], []
    with progress.to(lambda *far: outer.append(far)):
        progress.tell(1, 2)
        with pytest.raises(KeyError), progress.to(lambda *far: inner.append(far)):
            progress.tell(3, 4)
            raise KeyError
        progress.tell(2, 2)
    assert (outer, inner) == ([(1, 2), (2, 2)], [(3, 4)])
