"""Base classes of results: HTML display in notebooks, charts, and tables for pandas.

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


class NotebookChart(NotebookDisplay):
    """A displayed result that has charts."""

    def plotly(self, chart: str = "", *, language: str = "en", dark: bool = False) -> Any:
        """Return a chart of the result as an interactive Plotly figure, with the hover text of the page.

        Args:
            chart: Name of the chart, if there are several; by default the first. An error lists the names.
            language: "en", "zh-CN" or "ko".
            dark: Use light text on a dark ground.

        Raises:
            VitvizError: If the result has no such chart, or for an unknown language.
        """
        return importlib.import_module(f"{DRAWS}.charts").plotly_figure(self, chart, language, dark)

    def plot(self, chart: str = "", *, language: str = "en", dark: bool = False) -> Any:
        """Return a chart of the result for print, drawn by Matplotlib.

        The figure has `.svg()`, `.pdf()`, `.png()` and `.save()`. Arguments and errors are those of `plotly`.
        """
        return importlib.import_module(f"{DRAWS}.charts").print_figure(self, chart, language, dark)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the interactive figure for notebooks, if the card is a single chart with its caption."""
        return importlib.import_module(f"{DRAWS}.charts").mime_bundle(self)


class NotebookTable(NotebookDisplay):
    """A displayed result that is also a table: its `rows()`."""

    def frame(self) -> Any:
        """Return the rows as a pandas DataFrame; raise VitvizError if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            detail = "pip install pandas, or use the numbers themselves"
            raise VitvizError(f"A frame is pandas', which is not installed here: {detail}.") from error
        return pandas.DataFrame(self.rows())
