"""Filters of the linear embedding (paper figure 7 left)."""

from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import BLUE, Bars, Chart, symmetric_limit
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Scale, Tiles
from vitviz.errors import WrongSetting
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import lazy
from vitviz.views.base import PAPER, Item, Needs, View, ViewTexts, chart_item
from vitviz.views.controls import Choice, IntSetting
from vitviz.views.parts import ExportDefaults, Scope
from vitviz.views.printing import PrintStyle, map_over_image
from vitviz.views.subject import Settings, ViewContext

PLACE = {"components": "component", "raw": "filter"}  # kind -> setting of the chosen one, from 1; 0: none
SUM = "Response: sum of weight × normalised pixel, without the bias"
NO_PIXELS = (
    "Not applicable, because this model cuts its patches from the features of a convolutional stem: no filter"
    " acts on the pixels of a patch."
)
ACROSS, RAW_ACROSS = 7, 32  # images per row of a printed figure
_HYBRID = (
    "This is a hybrid: its patches are cut from the features of a convolutional stem, so the linear "
    "embedding has no RGB filters. The stem's first convolution is shown instead."
)
_SCALED = "Each filter is scaled separately, from its lowest weight (black) to its highest (white)."
_BANDS = "Input channels: {channels}. Channels shown, counted from 0: {bands}."
EXTRA_TEXTS = (_HYBRID, _BANDS, NO_PIXELS)


class FiltersView(View):
    title = "Filters"
    needs = Needs.WEIGHTS
    scope = Scope(needs_no_pass=True)
    words = ViewTexts.read(__file__, cites=PAPER)
    controls = (
        Choice("kind", "Show", options=(("components", "Principal components"), ("raw", "Raw filters"))),
        IntSetting("component", only={"kind": ("components",)}),
        IntSetting("filter", only={"kind": ("raw",)}),  # by norm
    )
    items = (
        Item("components", "component y x channel", "principal components of unit norm"),
        Item("variance", "component", "share of the variance"),
        Item("raw", "filter y x channel", "all filters, largest norm first"),
        Item("norms", "filter", "Euclidean norm of each"),
        Item(
            "response", "row col", "response of the chosen one in each patch, NaN if none is chosen",
            depends=("kind", *PLACE.values()), signed=True, of_image=True,
        ),
        chart_item("kind"),
    )  # fmt: skip
    export = ExportDefaults(endpoint="filters")

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return the reason why the model has no filters to show; None if it has filters or a stem."""
        if self._weight(subject) is not None:
            return None
        return LocalizedText(
            "{checkpoint} does not project pixels linearly and has no first convolution over pixels, so it"
            " has no filters to show as images.",
            checkpoint=subject.checkpoint,
        )

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the number of filters, their height and width, and a note on a hybrid or bands, for JSON."""
        weight = self._weight(subject)
        note, preprocessing = "", subject.inspector.preprocessing
        if subject.inspector.patch_filters() is None:
            note = _HYBRID
        elif preprocessing.channels != 3:
            bands = ", ".join(map(str, preprocessing.bands))
            note = LocalizedText(_BANDS, channels=preprocessing.channels, bands=bands)
        return {
            "counts": {"raw": len(weight), "components": analyses.component_count(weight)},
            "patch": list(weight.shape[2:]),
            "note": note,
            "unanswered": NO_PIXELS if note is _HYBRID else "",  # why there is no response
        }

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return filters or components, (filter, y, x, band), their norms or variances, or the response."""
        if name == "response":
            return self._response(subject, settings)
        if name == "norms":
            return self._raw(subject)[1].numpy()
        if name == "variance":
            return self._principal(subject).variance.numpy()
        return subject.inspector.preprocessing.shown(self._filters(subject, name).numpy())

    def _raw(self, subject: ViewContext) -> tuple:
        """Return (filters, norms) of the patch embedding, the largest norm first."""
        return subject.once_of_weights("raw filters", lambda: analyses.raw_filters(self._weight(subject)))

    def _principal(self, subject: ViewContext) -> "analyses.FilterComponents":
        """Return the principal components of the filters."""
        return subject.once_of_weights("principal", lambda: analyses.principal_filters(self._weight(subject)))

    def _filters(self, subject: ViewContext, kind: str):
        """Return the raw filters or the components with all channels, (filter, y, x, channel)."""
        return self._raw(subject)[0] if kind == "raw" else self._principal(subject).pictures

    def _response(self, subject: ViewContext, settings: Settings) -> np.ndarray:
        """Return the response of the chosen filter or component over the image."""
        kind, grid = settings["kind"], subject.grid
        if not (place := settings[PLACE[kind]]):
            return np.full((grid.rows, grid.cols), np.nan)
        if subject.trace is None:
            raise WrongSetting("A response belongs to an image. Hand in a trace, or choose no filter.")
        filters = self._filters(subject, kind)
        if place > len(filters):
            raise WrongSetting(
                f"{PLACE[kind]}={place} is not valid; expected a whole number from 0 to {len(filters)}."
            )
        selection = filters[place - 1 : place]
        return lazy.attribution.filter_responses(subject.inspector, subject.trace, selection)[0].numpy()

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return all filters and components, and the response of the chosen one, if any."""
        chosen = subject.trace is not None and settings[PLACE[settings["kind"]]]
        names = [item.name for item in self.items if item.in_export and (chosen or not item.of_image)]
        return {name: self.item(subject, name, settings) for name in names}

    def chart(self, subject: ViewContext, settings: Settings) -> Chart | None:
        """Return the share of the variance of each component, as bars."""
        if settings["kind"] == "raw":
            return None
        shares = np.asarray(self.item(subject, "variance", settings), float)
        place, text = np.arange(1, len(shares) + 1), LocalizedText("Component {number} of {count}")
        also = {"number": place, "count": [len(place)] * len(place)}
        bars = Bars(place, 0 * shares, shares, (BLUE,) * len(place), told=(text,), also=also)
        x_label = LocalizedText("Principal component")
        up = LocalizedText("Share of the total filter variance")
        ends = (0.4, len(place) + 0.6), (0.0, 1.08 * float(shares.max()) or 1.0)
        return Chart(x_label, up, *ends, bars=bars, percent=True, aspect=0.68)

    def _weight(self, subject: ViewContext):
        """Return the filters, (filter, channel, y, x), of the linear embedding or of the stem.

        None if the model has neither.
        """
        filters = subject.inspector.patch_filters()
        return subject.inspector.stem_filters() if filters is None else filters


def spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return all filters, each scaled separately, and the response of the chosen one.

    Components have their shares of variance.
    """
    raw = settings["kind"] == "raw"
    filters = view.item(subject, "raw" if raw else "components", settings)
    aspect, note = filters.shape[1] / filters.shape[2], view.summary(subject)["note"]
    notes = (*([note] if note else []), LocalizedText(_SCALED))
    across, place = min(RAW_ACROSS if raw else ACROSS, len(filters)), settings[PLACE[settings["kind"]]]
    framed, response = {"chosen": place - 1 if place else None}, ()
    if place:
        values = view.item(subject, "response", settings)
        scale = Scale("balance", -(limit := symmetric_limit(values)), limit, LocalizedText(SUM))
        counts = {"number": place, "count": len(filters)}
        title = LocalizedText("Response to component {number} of {count}", **counts)
        title = LocalizedText("Response to filter {number} of {count}", **counts) if raw else title
        response = (map_over_image(subject, style, values, scale, title),)
    if raw:
        title = LocalizedText("All {count} filters, largest norm first", count=len(filters))
        tiles = Tiles(to_bytes_each(filters), across, title, gap=0.06, aspect=aspect, **framed)
        return FigureSpec(((tiles, *response),), notes, width=WIDE)
    shares = np.asarray(view.item(subject, "variance", settings), float)
    title = LocalizedText("The first {count} principal components", count=len(filters))
    captions = tuple(map(format_share, shares))
    tiles = Tiles(to_bytes_each(filters), across, title, captions, gap=0.1, aspect=aspect, **framed)
    panels = (tiles, *response, *([view.chart(subject, settings)] if style.detail else []))
    return FigureSpec((panels,), notes, width=WIDE if len(panels) > 1 else NARROW)


def to_bytes_each(filters: np.ndarray) -> np.ndarray:
    """Scale each filter (y, x, channel) separately to 0 to 255; a constant filter becomes black."""
    axes = (1, 2, 3)
    low, high = filters.min(axis=axes, keepdims=True), filters.max(axis=axes, keepdims=True)
    span = np.where(high > low, high - low, 1)
    return np.rint(255 * (filters - low) / span).astype(np.uint8)


def format_share(share: float) -> str:
    """Format a share as a percentage with about two significant digits.

    >>> format_share(0.2345), format_share(0.0312), format_share(0.00444)
    ('23 %', '3.1 %', '0.44 %')
    """
    digits = 0 if share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{100 * share:.{digits}f} %"
