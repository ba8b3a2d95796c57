"""A survey's report: one HTML file with its figures, which opens offline and asks nothing of anybody.

What a paper's appendix cites: the averages with their standard errors, and all that they depend on.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vitviz.figures.chart import by_layer
from vitviz.surveys.measure import Quantity
from vitviz.surveys.moments import Moments
from vitviz.surveys.parts import RANKS
from vitviz.surveys.result import Survey
from vitviz.surveys.rows import Row

SHOWN = 100  # skipped pictures that are listed; skipped.csv has all
CONFUSIONS = 20

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --line: #d8dde4; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e8ef; --line: #3a4350; --paper: #14181e } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem }
svg { width: 100%; height: auto }
table { border-collapse: collapse; width: 100%; font-size: 13px }
td, th { text-align: left; padding: .2rem .6rem .2rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere }
figure { margin: 1.5rem 0 } figcaption { font-weight: 600 } small { opacity: .8 }
"""


def page_of(survey: Survey, quantiles: Mapping[str, np.ndarray], table: str) -> str:
    """The page; names of pictures and labels, which strangers may have chosen, are shown as text."""
    one = "one picture" if survey.images == 1 else f"{survey.images} pictures"
    title = f"vitviz survey: {survey.checkpoint}, {one}"
    left_out = f"; {survey.left_out} could not be read and were left out" if survey.left_out else ""
    files = (
        f"A row a picture is in {table}, the averages are in averages.npz, what was left out is in"
        " skipped.csv."
    )
    body = [
        (
            f"<h1>{_text(title)}</h1><p>Means over {one}{left_out}, ± their standard errors. {files} "
            "Layers and heads count from 1 here, from 0 in the files.</p>"
        ),
        *(
            _figure(name, what, survey.sums[name], quantiles[name])
            for name, what in survey.quantities.items()
        ),
        _numbers(survey),
        _trial(survey),
        _words(survey),
        _mistakes(survey),
        _skipped(survey),
        "<h2>How it was made</h2>",
        _table(("", ""), [(name, _said(value)) for name, value in survey.about.items()]),
        (
            "<p><small>source_sha256 is of names, labels and sizes in the source's order, not of the pixels; "
            "checkpoint_sha256 is of the weights and their configuration.</small></p>"
        ),
    ]
    csp = "default-src 'none'; style-src 'unsafe-inline'"
    head = (
        '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy"'
        f' content="{csp}"><title>{_text(title)}</title>'
    )
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        "<!doctype html><html"
        f' lang="en"><head>{head}{view}<style>{STYLE}</style></head><body>{"".join(body)}</body></html>\n'
    )


def _figure(name: str, what: Quantity, sums: Moments, quantiles: np.ndarray) -> str:
    """One quantity by layer, or by layer and head; a single number stands in a table."""
    if what.axes not in ("layer head", "layer"):
        return ""
    from vitviz.figures.paper.sheet import inline  # with matplotlib, which measuring has no use for

    first = 0 if name.startswith("lens.") else 1  # whose first layer is what enters the first block
    up = what.unit or what.title
    named = {} if sums.mean.ndim > 1 else {"name": "mean over the pictures, ± its standard error"}
    drawn = inline(by_layer(sums.mean, up, first=first, error=sums.error, unit=what.unit, **named))
    middle = np.median(quantiles, axis=tuple(range(1, quantiles.ndim)))
    ranks = ", ".join(f"{rank:.0%}: {value:.4g}" for rank, value in zip(RANKS, middle, strict=True))
    said = (
        f"{_text(name)}, {sums.count} pictures; quantiles over pictures, of a middling head or layer, {ranks}"
    )
    return f"<figure><figcaption>{_text(what.title)}</figcaption>{drawn}<small>{said}</small></figure>"


def _numbers(survey: Survey) -> str:
    single = [(what, survey.sums[name]) for name, what in survey.quantities.items() if not what.axes]
    rows = [
        (what.title, f"{float(sums.mean):.5g} ± {float(sums.error):.2g}", what.unit, sums.count)
        for what, sums in single
    ]
    return _table(("", "mean", "unit", "pictures"), rows) if rows else ""


def _trial(survey: Survey) -> str:
    """Where maps stand that were on trial, by protocol."""
    if "trial.most" not in survey.sums:
        return ""
    from vitviz.analyses.trials.standing import HEAD, said_of_refused, table

    protocols = next(one for one in survey.measures if one.name == "trial").protocols
    said = (
        "<p>Areas of the answer's probability over the share of patches removed, in %, ± standard errors."
        " Who shares a rank cannot be told apart: the rank is 1 and as many more as lie ahead by over two"
        " standard errors of the difference, picture by picture.</p>"
    )
    said += "".join(f"<p>{_text(sentence)}</p>" for sentence in said_of_refused(survey))
    return "".join(
        f"<h2>Maps on trial, patches removed: {_text(protocol)}</h2>{said}"
        + _table(HEAD, table(survey, place))
        for place, protocol in enumerate(protocols)
    )


def _words(survey: Survey) -> str:
    if survey.words is None:
        return ""
    said = (
        "<p>The words whose directions hold most of the variance of what a head writes into the embedding,"
        " with their shares of it; heads that vary most first, by their standard deviation in cosines.</p>"
    )
    rows = survey.words.said()
    return f"<h2>Heads in words</h2>{said}{_table(('head', 'deviation', 'words'), rows)}"


def _mistakes(survey: Survey) -> str:
    found = survey.mistakes
    if found is None or not found.labelled:
        return ""

    name = survey.named
    common = [
        (name(true), name(answer), count)
        for (true, answer), count in found.confusions.most_common(CONFUSIONS)
    ]
    columns = ("picture", "true class", "answer", "probability", "of the true class")

    def list_of(rows: list[Row]) -> str:
        return _table(
            columns,
            [
                (r.name, name(r.label), name(r.answer), f"{r.probability:.1%}", f"{r.of_label:.1%}")
                for r in rows
            ],
        )

    return (
        f"<h2>Mistakes</h2><p>{found.right} of {found.labelled} labelled pictures are answered rightly.</p>"
        + ("<h3>Confusions</h3>" + _table(("true class", "answer", "pictures"), common) if common else "")
        + ("<h3>Surest errors</h3>" + list_of(found.surest) if common else "")
        + ("<h3>Nearest misses</h3>" + list_of(found.nearest) if common else "")
    )


def _skipped(survey: Survey) -> str:
    if not survey.left_out:
        return ""
    more = f"<p>The first {SHOWN}; all are in skipped.csv.</p>" if survey.left_out > SHOWN else ""
    rows = [(one.name, one.reason) for one in survey.skipped[:SHOWN]]
    return f"<h2>Left out</h2>{more}{_table(('picture', 'reason'), rows)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    top = "<tr>" + "".join(f"<th>{_text(cell)}</th>" for cell in head) + "</tr>" if any(head) else ""
    return (
        f"<table>{top}"
        + "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        + "</table>"
    )


def _said(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "–" if value in (None, "") else str(value)


def _text(value: Any) -> str:
    return html.escape(str(value))
