"""The experiment for print: curves over the draws with their bands, and what the model was shown."""

from dataclasses import replace

from vitviz.analyses.experiment import places_of
from vitviz.analyses.protocol import WAYS
from vitviz.figures.chart import GREY, Level
from vitviz.figures.paper.plates import NARROW, WIDE, Map, Plate
from vitviz.record.sentence import Sentence
from vitviz.views.experiment import MOST, answered, done_at, draw_names, way_name
from vitviz.views.printing import joined


def plate(view, subject, settings, asked) -> Plate:
    """The curves; with detail also the pictures of the draw and step in view, with what was answered."""
    chart = view.chart(subject, {**settings, "known": MOST + 1})
    if not asked.detail:
        return Plate(((chart,),), chart.notes, width=NARROW + 14)
    kind, places = settings["kind"], places_of(subject.grid, settings["kind"])
    draws = draw_names(subject, kind)
    step, draw = min(settings["step"], len(places) - 1), min(settings["draw"], len(draws)) - 1
    ways, done = WAYS[kind], done_at(subject.grid, kind, step)
    here = Level(float(places[step]), done, upright=True, colour=GREY)
    chart = replace(chart, levels=(*chart.levels, here))
    shown = view.item(subject, "shown", settings)
    maps = tuple(Map(way_name(way), one) for way, one in zip(ways, shown, strict=True))
    notes = [*chart.notes, Sentence("Shown: {what}, draw {draw}.", what=done, draw=Sentence(draws[draw]))]
    for way, answers in zip(ways, answered(subject, kind, step), strict=True):
        if "tops" in answers:
            likeliest = joined(*(f"{name} {100 * share:.1f} %" for name, share in answers["tops"][draw]))
            notes.append(Sentence("{name}: {value}", name=way_name(way), value=likeliest))
    weights = (2.4, *[1.0] * len(maps))
    return Plate(((chart, *maps),), tuple(notes), (weights,), width=WIDE)
