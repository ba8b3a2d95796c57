"""Beside the ranking, for print: all maps on one scale, or how alike they are."""

import numpy as np

from vitviz.analyses.correlation import ranks
from vitviz.analyses.protocol import TITLES
from vitviz.figures.paper.plates import Matrix, Panel, Scale, Table, Tiles, tinted
from vitviz.record.sentence import Sentence
from vitviz.views.printing import fixed, joined, shape_of
from vitviz.views.trial.made import alike

Rows = tuple[tuple[Panel, ...], ...]
Weights = tuple[tuple[float, ...], ...]
ACROSS = 6  # maps in a row
BRIGHT = "One scale for all: bright patches are taken away first, dark ones last."
SIGNED = "Orange for, blue against: logits up to {most}, other maps up to their own largest."
RANKS = "Spearman’s rank correlation, −1 blue to 1 orange; in the same order across and down."


def beside(trial, table: Table, subject, settings) -> tuple[Rows, Weights, tuple[Sentence, ...]]:
    """The ranking with what is to stand beside the curves, in order: rows of panels, weights, notes."""
    names = [name for name, _ in trial.ranking(settings["score"])]
    if settings["show"] == "agreement":
        return ((table, _alike(trial, names)),), ((1.6, 1.0),), (Sentence(RANKS),)
    if settings["show"] == "ranking":
        return ((table,),), ((1.0,),), ()
    tiles, note = _maps(trial, names, shape_of(subject.grid), settings["scale"] == "ranks")
    return ((table,), (tiles,)), ((1.0,), (1.0,)), (note,)


def _maps(trial, names: list[str], aspect: float, ranked: bool) -> tuple[Tiles, Sentence]:
    """Every map as the order in which it takes patches away, or as its values."""
    maps = [trial.maps[name] for name in names]
    captions = tuple(
        joined(Sentence(TITLES[name]), Sentence("Nothing positive here."))
        if one.nothing_positive
        else Sentence(TITLES[name])
        for name, one in zip(names, maps, strict=True)
    )
    title, like = Sentence("All maps"), {"captions": captions, "aspect": aspect}
    if ranked:
        order = [ranks(one.map.flatten()).view(one.map.shape) / max(1, one.map.numel() - 1) for one in maps]
        scale = Scale("viridis", 0.0, 1.0, Sentence("Order of patches"))
        return Tiles(np.stack(order), ACROSS, title, scale=scale, **like), Sentence(BRIGHT)
    logits = [one.adds_up or name == "leave_one_out" for name, one in zip(names, maps, strict=True)]
    reach = [float(one.map.abs().max()) for one in maps]
    shared = max([most for most, one in zip(reach, logits, strict=True) if one], default=0.0) or 1.0
    pictures = []
    for one, most, logit in zip(maps, reach, logits, strict=True):
        most = shared if logit else most or 1.0
        scale = Scale("balance", -most, most, "") if one.signed else Scale("viridis", 0.0, most, "")
        pictures.append(tinted(one.map.numpy(), scale))
    return Tiles(np.stack(pictures), ACROSS, title, **like), Sentence(SIGNED, most=fixed(shared))


def _alike(trial, names: list[str]) -> Matrix:
    """Rank correlations, numbered as the ranking is."""
    scale = Scale("balance", -1.0, 1.0, Sentence("Agreement"))
    title = Sentence("Rank correlations of the maps.")
    return Matrix(alike(trial, names), scale, Sentence("Rank"), Sentence("Rank"), title)
