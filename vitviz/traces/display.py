"""Base classes of results: HTML display in notebooks, and tables for pandas.

A result does not know how it is drawn. `vitviz.notebook` draws every type; it is imported by its name, when a
notebook first displays a result.
"""

import importlib
from typing import Any

from vitviz.errors import VitvizError

DRAWS = "vitviz.notebook"


class NotebookDisplay:
    """HTML display in Jupyter, Colab and VS Code, without scripts or requests, in light and dark themes."""

    def _repr_html_(self) -> str:
        """Return a figure or table with its caption and scale."""
        return importlib.import_module(DRAWS).html(self)


class NotebookTable(NotebookDisplay):
    """A displayed result that is also a table: its `rows()`."""

    def frame(self) -> Any:
        """Return the rows as a pandas DataFrame; raises VitvizError if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise VitvizError(
                "A frame is pandas', which is not installed here: pip install pandas, or use the"
                " numbers themselves."
            ) from error
        return pandas.DataFrame(self.rows())
