"""Display of results in notebooks: figures and tables as HTML, and interactive views of the page.

    html(result)                                        the HTML of `result._repr_html_()`
    show("explorer", inspector, trace, layer=3)         an interactive view in an output cell, offline

All output is self-contained HTML, without server, requests or fonts. Text uses the notebook's own colour, so
that it is readable in light and dark themes.
"""

from typing import TYPE_CHECKING

from vitviz.traces.public import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)

if TYPE_CHECKING:
    from vitviz.export.standalone_html import StandaloneView, show
    from vitviz.notebook.cards import html
