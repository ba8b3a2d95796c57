"""A pass tells how far it is to whoever asked, and to nobody else."""

import pytest

from tests.engine.looking import inspect, noise
from tests.engine.small import small
from vitviz.traces import progress


def test_a_pass_tells_its_layers_in_their_order():
    inspector, told = inspect(small(depth=3)), []
    with progress.to(lambda done, of: told.append((done, of))):
        inspector.trace(noise())
    assert told == [(1, 3), (2, 3), (3, 3)]
    inspector.trace(noise())
    assert len(told) == 3


def test_the_one_who_asked_last_is_told_and_the_one_before_again_after_it():
    outer, inner = [], []
    with progress.to(lambda *far: outer.append(far)):
        progress.tell(1, 2)
        with pytest.raises(KeyError), progress.to(lambda *far: inner.append(far)):
            progress.tell(3, 4)
            raise KeyError
        progress.tell(2, 2)
    assert (outer, inner) == ([(1, 2), (2, 2)], [(3, 4)])
