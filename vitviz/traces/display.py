"""What results share: a notebook shows them by itself, and pandas has them as a table.

A result knows nothing of pictures of it. How each type is drawn stands in `vitviz.notebook`, which is looked
for when a notebook asks, and not before: the arrow from here to there is this one name.
"""

import importlib
from typing import Any

from vitviz.errors import VitvizError

DRAWS = "vitviz.notebook"


class NotebookDisplay:
    """Shows itself in Jupyter, Colab and VS Code as HTML without a script or a request, light and dark."""

    def _repr_html_(self) -> str:
        """A figure or table with its caption and scale."""
        return importlib.import_module(DRAWS).html(self)


class NotebookTable(NotebookDisplay):
    """The same of what is a table besides: its `rows()`."""

    def frame(self) -> Any:
        """The rows as a pandas DataFrame; VitvizError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise VitvizError(
                "A frame is pandas', which is not installed here: pip install pandas, or use the"
                " numbers themselves."
            ) from error
        return pandas.DataFrame(self.rows())
