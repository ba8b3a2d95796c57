"""What is taken away, as a link has it."""

import pytest

from vitviz.errors import VitvizError
from vitviz.record.runs import Without


@pytest.mark.parametrize(
    "text", ["at=1.3 other=cat", "heads=5", "layers=2", "patches=", "mlps=1 mlps=2", "mlps=²"]
)
def test_what_no_link_has_is_refused(text):
    with pytest.raises(VitvizError, match="expected"):
        Without.parse(text)
    assert Without.parse("at=1 other=cat") == Without(at=0, other="cat")
