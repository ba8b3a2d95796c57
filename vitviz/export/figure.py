"""`vitviz.figure`: a view's figure for print, with a caption for a paper and a descriptive file name.

The figure is made from the same items as the view on the page.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz.charts.mpl.spec import FigureSpec
from vitviz.errors import Unknown, VitvizError, WrongSetting, quoted, write_error
from vitviz.export import captions
from vitviz.export.captions import Caption, first_sentence
from vitviz.traces import cancellation
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.public import __version__
from vitviz.traces.samples import samples
from vitviz.traces.unicode import escape_unencodable
from vitviz.views import VIEWS, Control, Needs, View, ViewContext
from vitviz.views.availability import refusal
from vitviz.views.controls import DIFFERENCE, Choice, IntListSetting, IntSetting, QuerySetting
from vitviz.views.languages import NAMES, translate
from vitviz.views.printing import PrintStyle, figure_spec, image_count_text, join_texts, patch_name
from vitviz.views.routes import parse_settings, settings_for_files

if TYPE_CHECKING:
    from vitviz.engine import Inspector
    from vitviz.surveys import Survey
    from vitviz.traces.trace import Trace


RETOUCHED = "The image was edited: {what}."
LONGEST = 140  # maximum length of a file name


def _caption(
    view: View, subject: ViewContext, settings: Mapping[str, Any], style: PrintStyle, spec: FigureSpec,
    second: ViewContext | None,
) -> Caption:  # fmt: skip
    """Return the caption: panels and idea; image, checkpoint, settings, definition, limits and sources."""
    say = partial(translate, tag=style.language)
    titles = [panel.title for row in spec.rows for panel in row if getattr(panel, "title", "")]
    checkpoint, trace, grid = subject.inspector.checkpoint, subject.trace, subject.grid
    beside = {} if second is None else {"name": second.checkpoint, "known": _model_facts(second)}
    details = {"height": grid.pixels[0], "width": grid.pixels[1], "rows": grid.rows, "cols": grid.cols}
    size = LocalizedText("Input {height} × {width} px, {rows} × {cols} patches", **details)
    assumed = ", ".join(assumption.taken or assumption.name for assumption in checkpoint.assumed)
    unstated = LocalizedText(
        "Assumed, because the checkpoint’s file does not state it: {what}.", what=assumed
    )
    without, chosen = "", _settings(view, subject, settings, say) or say("none")
    if trace is not None:  # patches count from 1, as in the figure and on the page
        without = replace(trace.without, patches=tuple(patch + 1 for patch in trace.without.patches)).text()
    strokes = trace.view.retouched.text() if view.needs is Needs.RUN and trace is not None else ""
    cited = [one for one in (view.words.cites, view.words.source) if one]
    by = LocalizedText("Drawn by vitviz {version}; to cite it, see its CITATION.cff.", version=__version__)
    shown = f": {say(join_texts(*titles))}" if titles else ""
    edits = [
        LocalizedText(RETOUCHED, what=strokes) if strokes else "",
        LocalizedText("Ablated or removed: {what}.", what=without) if without else "",
    ]
    sentences = (
        (f"{say(view.title)}, {subject.checkpoint}{shown}.", False),
        *((say(one), False) for one in edits if one),
        (first_sentence(say(view.words.what)), True),
    )
    parts = [
        _image_line(subject, style.picture) if view.needs is Needs.RUN and trace is not None else "",
        LocalizedText("Checkpoint: {name} ({known}).", name=subject.checkpoint, known=_model_facts(subject)),
        LocalizedText("Second checkpoint: {name} ({known}).", **beside) if beside else "",
        image_count_text(subject) if view.needs is Needs.SET or subject.survey is not None else "",
        LocalizedText("{size}; computed in {dtype}.", size=size, dtype=_dtype(view, subject)),
        unstated if assumed else "",
        LocalizedText("Settings: {settings}.", settings=chosen),
        LocalizedText("Definition: {definition}", definition=view.words.definition),
        LocalizedText("What it does not show: {caveat}", caveat=view.words.caveat),
        LocalizedText("Source: {source}.", source=join_texts(*cited, by=": ")),
        by,
    ]
    marked = ("{definition}", "{caveat}")  # Markdown with formulas
    lines = [
        (say(part), any(one in getattr(part, "pattern", "") for one in marked)) for part in parts if part
    ]
    return Caption(sentences, tuple(lines))


def _image_line(subject: ViewContext, picture: str) -> LocalizedText:
    """Return the caption line of the image: title, credit (of a sample) and size."""
    width, height = subject.trace.view.upload
    size = {"width": width, "height": height}
    sample = next((sample for sample in samples() if sample.name == picture), None)
    if sample is not None:
        size |= {"title": sample.title, "credit": sample.credit}
        return LocalizedText("Image: {title} ({credit}), {width} × {height} px.", **size)
    if picture in ("", "own-picture"):
        return LocalizedText("Image: {width} × {height} px.", **size)
    return LocalizedText("Image: {title}, {width} × {height} px.", title=picture, **size)


def _model_facts(subject: ViewContext) -> str:
    """Return a checkpoint's architecture, training data, licence and paper as text; "–" if none is known."""
    if subject.inspector is None:
        return "–"
    one = subject.inspector.checkpoint
    details = (one.architecture, one.trained_on, one.licence, one.paper)
    return ", ".join(part for part in details if part) or "–"


def _dtype(view: View, subject: ViewContext) -> str:
    """Return the name of the dtype in which the figure's numbers were computed."""
    source = subject.trace or subject.survey
    if source is None:
        return str(subject.inspector.dtype) if view.needs is Needs.SET else "float32"
    return source.dtype


def figure_file_name(
    view: View, subject: ViewContext, settings: Mapping[str, Any], detail: bool,
    second: ViewContext | None = None, picture: str = ""
) -> str:  # fmt: skip
    """Return a figure's file name, from view, image, checkpoint(s) and all settings not at their defaults.

    The name is valid on every file system.
    """
    filed = settings_for_files(view, settings, subject.grid)
    changed = [
        f"{control.name}-{setting_as_text(control, filed[control.name])}"
        for control in _used_settings(view)
        if settings[control.name] != _default(control, subject) and control.applies(settings)
    ]
    shown = [subject.checkpoint, *([] if second is None else [second.checkpoint])]
    of = [picture] if picture and view.needs is Needs.RUN else []
    parts = [f"vitviz-{view.slug}", *of, *shown, *(["detail"] if detail else []), *changed]
    plain = "_".join(re.sub(r"[^A-Za-z0-9.=-]+", "-", part).strip(".-") or "-" for part in parts)
    return plain[:LONGEST].rstrip("._-")


def _used_settings(view: View) -> list[Control]:
    """Return the controls whose settings affect a figure."""
    return [control for control in view.controls if not (isinstance(control, IntSetting) and control.passing)]


def _default(control: Control, subject: ViewContext) -> Any:
    """Return a control's parsed default for the model of `subject`."""
    return control.parse(str(control.start(subject.about)), subject.about)


def _settings(view: View, subject: ViewContext, settings: Mapping[str, Any], say) -> str:
    """Return the settings as text for the caption: all with a field on the page, others if not at default."""
    result, filed = [], settings_for_files(view, settings, subject.grid)
    for control in _used_settings(view):
        value = filed[control.name]
        if value in ("", (), [], None) or not control.applies(settings):
            continue
        quiet = not control.label or control.name == DIFFERENCE.name
        if quiet and settings[control.name] == _default(control, subject):
            continue
        if value == "auto":
            value = say(view.summary(subject).get("auto", value))
        elif isinstance(control, Choice) and control.label:
            value = say(dict(control.known(subject.about))[value])
        if isinstance(control, QuerySetting) or getattr(control, "tokens", False):  # as the figure calls them
            several = value if isinstance(value, list | tuple) else [value]
            value = ", ".join(say(patch_name(one)) if isinstance(one, int) else str(one) for one in several)
        name = say(control.label) if control.label else control.name
        result.append(f"{name}: {setting_as_text(control, value)}")
    return "; ".join(result)


def setting_as_text(control: Control | None, value: Any) -> str:
    """Return a setting's value as in a link: lists with dots, pairs of layers or classes with a dash."""
    if isinstance(value, list | tuple):
        return ("." if isinstance(control, IntListSetting) else "-").join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


MISSING = "Figures for print are drawn by matplotlib, which is not installed: pip install 'vitviz[print]'."


def import_mpl_module(name: str) -> ModuleType:
    """Import a module of `vitviz.charts.mpl`; raise VitvizError if matplotlib is not installed."""
    try:
        return importlib.import_module(f"vitviz.charts.mpl.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise VitvizError(MISSING) from None


@dataclass(frozen=True, eq=False)
class Figure:
    """Figure for print. `spec` holds its values and texts; rendering is deterministic."""

    spec: FigureSpec
    name: str  # file name without suffix: view, checkpoint and settings
    texts: Caption
    title: str
    dark: bool = False
    language: str = "en"

    @property
    def caption(self) -> str:
        """The whole caption as plain text: settings, definition, source and citation too."""
        return self.caption_as("txt")

    def caption_as(self, form: str, definition: bool = True) -> str:
        """Return the caption in a form: two sentences, then settings, definition, limits and source.

        Args:
            form: "txt" for plain text without LaTeX, "tex" for LaTeX, or "md" for Markdown.
            definition: Whether more than the two sentences is returned.

        Raises:
            VitvizError: For another form.
        """
        if form not in captions.FORMS:
            expected = ", ".join(captions.FORMS)
            raise VitvizError(f"There is no caption format {quoted(form)}; expected one of {expected}.")
        return self.texts.text(form, definition)

    def svg(self, width: float | None = None) -> bytes:
        """Return SVG bytes, `width` mm wide (None for the figure's own width); text stays selectable."""
        return self.file("svg", width)

    def pdf(self, width: float | None = None) -> bytes:
        """Return PDF bytes, `width` mm wide (None for the figure's own width)."""
        return self.file("pdf", width)

    def png(self, width: float | None = None, dpi: int = 300) -> bytes:
        """Return PNG bytes of round(width / 25.4 · dpi) pixels across, at 150, 300 or 600 dpi."""
        return self.file("png", width, dpi)

    def file(self, form: str, width: float | None = None, dpi: int = 300) -> bytes:
        """Return the bytes of the figure, or of its caption.

        Args:
            form: "svg", "pdf", "png", or "txt", "tex" and "md" for the caption.
            width: Width in mm, 40 to 400; None for the figure's own.
            dpi: Resolution of a PNG, 150, 300 or 600.

        Raises:
            VitvizError: For an unknown format, width or resolution, and if matplotlib is not installed.
        """
        if form in captions.FORMS:
            return self.caption_as(form).encode()
        details = (self.dark, self._say, self.language, self.title, self.caption.partition("\n")[0])
        return import_mpl_module("page").render(self.spec, form, width, dpi, *details, cancellation.check)

    def save(self, path: str | Path, width: float | None = None, dpi: int = 300) -> Path:
        """Write a figure, and the caption next to it as .txt; return the path of the figure.

        Beside an .html, plotly.min.js is written once, for all figures of the folder.

        Args:
            path: File with the suffix .svg, .pdf, .png, or .html for interactive charts.
            width: Width in mm, 40 to 400; None for the figure's own.
            dpi: Resolution of a PNG, 150, 300 or 600.

        Raises:
            VitvizError: For another suffix, width or resolution, and if the file cannot be written.
        """
        form, path = Path(path).suffix.lower().removeprefix("."), Path(path)
        if form != "html":
            return save_with_caption(path, self.file(form, width, dpi), self.caption)
        made = save_with_caption(path, self.html(whole=False), self.caption)
        script = files("plotly") / "package_data" / "plotly.min.js"
        path.with_name("plotly.min.js").write_bytes(script.read_bytes())
        return made

    def plotly(self) -> list[Any]:
        """Return the charts and matrices of the figure as interactive Plotly figures."""
        panels = [panel for row in self.spec.rows for panel in row if hasattr(panel, "plotly")]
        return [panel.plotly(self._say, self.dark) for panel in panels]

    def html(self, whole: bool = True) -> bytes:
        """Return the charts as an interactive HTML document, without network.

        Args:
            whole: Contain plotly.js (4.8 MB), for mail; otherwise load plotly.min.js from the same folder.

        Raises:
            VitvizError: If the figure has no chart.
        """
        figures = self.plotly()
        if not figures:
            raise VitvizError(f"{self.title} has no chart. Save it as .svg, .pdf or .png.")
        interactive = importlib.import_module("vitviz.charts.interactive")
        return interactive.page_of(figures, self.title, whole).encode()

    def _repr_svg_(self) -> str:
        """Return the figure as SVG text in its own width, for notebooks."""
        return self.svg().decode()

    def pixels(self, width: float | None = None, dpi: int = 300) -> int:
        """Return the number of pixels of a PNG, without drawing it."""
        return import_mpl_module("page").pixel_count(self.spec, width, dpi, self._say, self.language)

    def _say(self, text: str) -> str:
        """Return an English text translated into the figure's language."""
        return translate(text, self.language)


def save_with_caption(path: str | Path, data: bytes, caption: str) -> Path:
    """Write a file and its caption next to it as .txt; raise VitvizError if that fails."""
    path = Path(path)
    try:
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(caption, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise write_error(path, error) from None
    return path


def figure(
    view: str, inspector: Inspector, trace: Trace | Survey | None = None, *, detail: bool = False,
    dark: bool = False, language: str = "en", picture: Any = None, second: Inspector | Survey | None = None,
    before: Trace | None = None, **settings: Any,
) -> Figure:  # fmt: skip
    """Return the figure of one view for print.

    The Similarity view covers a set of images: the 20 crops of the sample images, which are traced by this
    call at the input size of `trace` if there is one, or the images of a survey that measured
    `vitviz.surveys.LAYERS`. The views Attention distance and Faithfulness also accept a survey.

    Args:
        view: Slug of the view in the page's links, such as "explorer".
        inspector: The model.
        trace: Trace of an image, or a survey. Views of the weights alone (filters, positions) need none.
        detail: Add the detail panels that the page shows next to the figure.
        dark: Use light text on a dark ground.
        language: "en", "zh-CN" or "ko"; texts stay English if the machine has no font for the language.
        picture: The upright image of the trace (path, PIL image or array), drawn at its own resolution of up
            to 3,200 pixels a side. None draws the model's input.
        second: Second checkpoint for the Similarity view: an inspector, or a survey of the same images. It is
            compared with the first one unless the setting `against` is given.
        before: Trace of the unedited image; with `difference="on"`, the figure shows the difference.
        settings: Settings of the page by their names in links. Layers and heads count from 1, patches from 0.

    Raises:
        VitvizError: For an unknown view or setting, for arguments that do not match, and if the view does
            not apply to the model, with the reason.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> figure("filters", inspector).png(width=86, dpi=300)[1:4]
    b'PNG'
    """
    result, subject = view_contexts(view, inspector, trace, second, before)
    if second is not None:
        settings.setdefault("against", "beside")
    parsed = validate_settings(result, subject, settings)
    name = escape_unencodable(Path(picture).stem) if isinstance(picture, str | os.PathLike) else ""
    asked = PrintStyle(detail, upright_upload(picture, subject), name, dark, language)
    return print_view(result, subject, parsed, asked)


def view_by_slug(slug: str) -> View:
    """Return the view with the given slug; raise VitvizError if there is none."""
    result = next((view for view in VIEWS if view.slug == slug), None)
    if result is None:
        raise Unknown(f"There is no view {quoted(slug)}; there are {', '.join(view.slug for view in VIEWS)}.")
    return result


def view_contexts(
    view: str, inspector: Inspector, of: Trace | Survey | None, second: Inspector | Survey | None = None,
    before: Trace | None = None,
) -> tuple[View, ViewContext]:  # fmt: skip
    """Return the view of a slug, and its context for a trace or survey.

    Raises:
        VitvizError: For an unknown view, and if the view needs a trace or survey that is missing.
    """
    result = view_by_slug(view)
    made: dict[str, Any] = {}

    def once(name, make):
        return made[name] if name in made else made.setdefault(name, make())

    from vitviz.export import over_a_set

    if result.needs is Needs.SET:
        return result, over_a_set.set_context(inspector, of, second, once)
    if second is not None:
        raise VitvizError(f"{result.title} is of one checkpoint: `second` is for Similarity.")
    if isinstance(of, over_a_set.Survey):
        if not result.scope.averages:
            raise VitvizError(f"{result.title} shows one image, and a survey has no average for it.")
        fitting = over_a_set.require_same_checkpoint(inspector, of)
        return result, ViewContext(fitting, survey=of, once=once, once_of_weights=once)
    from vitviz.traces.trace import Trace

    if of is not None and not isinstance(of, Trace):
        details = type(of).__name__
        raise VitvizError(
            f"{details} cannot be drawn; expected a trace or a survey, such as inspector.trace(image)."
        )
    if result.needs is Needs.RUN and of is None:
        raise VitvizError(
            f"{result.title} shows an image: pass a trace, such as inspector.trace(image), or an image on the"
            " command line."
        )
    for trace in filter(None, (of, before)):
        inspector.require_own(trace)
    was = None if before is None else ViewContext(inspector, before)
    if was is not None and (of is None or was.grid != of.grid):
        raise VitvizError("`before` has no trace of the same patch grid; expected both of one image.")
    return result, ViewContext(inspector, of, once=once, once_of_weights=once, original=was and (lambda: was))


def validate_settings(view: View, subject: ViewContext, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return validated settings from Python values, with defaults for all others.

    Raises:
        WrongSetting: For an invalid value, and for a difference where the view shows none.
    """
    result = parse_settings(view, settings_as_text(view, settings), subject.about)
    control = next((one for one in view.controls if one.name == "difference"), None)
    if control and result["difference"] == "on" and not control.applies(result):
        expected = " or ".join(f"{name}={value}" for name, values in control.only.items() for value in values)
        raise WrongSetting(f"{view.title} shows a difference only with {expected}.")
    return result


def settings_as_text(view: View, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings, given as Python values, as their texts in a link."""
    controls = {control.name: control for control in view.controls}
    return {name: setting_as_text(controls.get(name), value) for name, value in settings.items()}


def print_view(view: View, subject: ViewContext, settings: Mapping[str, Any], style: PrintStyle) -> Figure:
    """Return the figure of a view, given its context and validated settings."""
    language = style.language
    if language not in NAMES:
        raise VitvizError(f"There is no language {quoted(language)}; expected one of {', '.join(NAMES)}.")
    if reason := refusal(view, subject):
        raise VitvizError(reason)
    spec = figure_spec(view, subject, settings, style)
    second = subject.beside if spec.second else None
    caption = _caption(view, subject, settings, style, spec, second)
    title = f"{translate(view.title, language)} · {subject.checkpoint}"
    name = figure_file_name(view, subject, settings, style.detail, second, style.picture)
    return Figure(spec, name, caption, title, style.dark, language)


def upright_upload(picture: Any, subject: ViewContext) -> np.ndarray | None:
    """Return the upright image in RGB, reduced to the size that is drawn; None without an image.

    Of an image with other channels, those that the model's `bands` name.

    Raises:
        VitvizError: If the size differs from that of the traced image.
    """
    if picture is None:
        return None
    from PIL import Image

    from vitviz.engine.images.opening import open_for_drawing
    from vitviz.engine.images.preprocess import open_for

    preprocessing, trace = subject.inspector.preprocessing, subject.trace
    opened = open_for(picture, preprocessing)
    if isinstance(opened, np.ndarray):
        opened = Image.fromarray(preprocessing.picture(opened.astype(np.float32) / 255))
    expected = None if trace is None else tuple(trace.view.upload)
    if expected is not None and opened.size != expected:
        raise VitvizError(
            f"The image has {opened.width} x {opened.height} pixels, but the trace is of one of"
            f" {expected[0]} x {expected[1]}. Pass the image that was traced."
        )
    return open_for_drawing(opened)
