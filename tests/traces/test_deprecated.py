"""Old public names work with a warning."""

import importlib
import pickle
import sys

import pytest

import vitviz
from vitviz._deprecated import NAMES


@pytest.mark.parametrize("old", sorted(NAMES))
def test_old_name_warns_and_returns_new_object(old):
    package, _, name = old.rpartition(".")
    module = importlib.import_module(package)
    if package not in ("vitviz", "vitviz.analyses", "vitviz.surveys", "vitviz.notebook"):
        assert hasattr(module, NAMES[old])
        return
    with pytest.warns(DeprecationWarning, match=f"{old} is {package}.{NAMES[old]} now"):
        assert getattr(module, name) is getattr(module, NAMES[old])


def test_pickle_written_under_old_names_loads(trace, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("vitviz.record")]:
        monkeypatch.delitem(sys.modules, name)  # a module that is already imported does not warn again
    data = pickle.dumps(trace, protocol=0)
    for new, old in (
        (b"vitviz.traces.", b"vitviz.record."),
        (b"ModelInput", b"View"),
        (b"Ablation", b"Without"),
    ):
        data = data.replace(new, old)
    data = data.replace(b"vitviz.record.image_edits", b"vitviz.record.strokes").replace(
        b"ImageEdits", b"Strokes"
    )
    with pytest.warns(DeprecationWarning):
        again = pickle.loads(data)
    assert type(again) is vitviz.Trace and (again.logits == trace.logits).all()


def test_old_parameter_name_is_accepted(inspector, photo):
    ablation = vitviz.Ablation(heads=[(0, 0)])
    expected = inspector.trace(photo, ablation=ablation)
    with pytest.warns(DeprecationWarning, match="without= is ablation= now"):
        assert (inspector.trace(photo, without=ablation).logits == expected.logits).all()
