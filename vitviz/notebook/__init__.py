"""What results look like in a notebook: figures and tables as HTML, and the page's own canvas in a cell.

    html(result)                                        what `result._repr_html_()` gives
    show("explorer", inspector, trace, layer=3)         a view of the page, in an output cell, offline

Everything is one piece of HTML: no server, no request, no font. Text takes the notebook's own colour, so that
it reads in light and in dark.
"""

from typing import TYPE_CHECKING

from vitviz.traces.public import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)

if TYPE_CHECKING:
    from vitviz.export.standalone_html import StandaloneView, show
    from vitviz.notebook.cards import html
