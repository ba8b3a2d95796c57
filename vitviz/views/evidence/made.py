"""The numbers of the Evidence view: the account, other methods' maps, patches' own answers, and what happens
when each part is taken away.
"""

from dataclasses import replace

import numpy as np

from vitviz import analyses
from vitviz.errors import UnsupportedModel, WrongSetting
from vitviz.record.sentence import Sentence
from vitviz.views import late
from vitviz.views.base import before
from vitviz.views.shared import Target, ledger_of, relevance_of, taken_away, target_of
from vitviz.views.subject import Settings, Subject

SHOWN = 5  # likeliest classes that the picker offers at once
BEST = 3  # of a patch's own answers that are named
EDITED = (
    "Maps by gradients are not made of a model from which something was taken away. Put it back, or read the"
    " account."
)
ONE_ONLY = {  # by readout, why a patch alone cannot be read
    "attention": (
        "A patch has no answer of its own here, because the classifier reads attention pooling, which weighs"
        " all patches together."
    ),
    "class and average": (
        "A patch has no answer of its own here, because the classifier reads the class token and the mean of"
        " the patches side by side."
    ),
}


def target(subject: Subject, settings: Settings) -> Target:
    """The class that is asked about, or (a, b): a rather than b."""
    return target_of(subject, settings["target"])


def of_target(subject: Subject, settings: Settings, table):
    """One target's column of (row, class): of a alone, of a rather than b, or against the mean class."""
    asked = target(subject, settings)
    if isinstance(asked, tuple):
        return table[:, asked[0]] - table[:, asked[1]]
    return table[:, asked] - (table.mean(dim=-1) if settings["relative"] == "yes" else 0)


def account(subject: Subject, settings: Settings):
    asked, relative = target(subject, settings), settings["relative"] == "yes"

    def of(one: Subject):
        name = f"account {asked} {relative}"
        return one.once(name, lambda: analyses.account_of(ledger_of(one), asked, relative))

    return of(subject).minus(of(before(subject))) if settings.get("difference") == "on" else of(subject)


def map_of(subject: Subject, settings: Settings) -> np.ndarray:
    """The account's map, of all heads, of those up to a layer, of a layer's or of one."""
    found, chosen, until = account(subject, settings), settings["chosen"], settings["until"]
    if not chosen and not until:
        return found.patches.numpy()
    if not chosen:
        return by_patch(subject, found.sources[:until].sum(dim=(0, 1)))
    layer, *head = (int(part) - 1 for part in chosen.split("."))
    about = subject.about
    if not (0 <= layer < about.layers and all(0 <= one < about.heads for one in head)):
        bounds = f"layer 1 to {about.layers}, head 1 to {about.heads}"
        raise WrongSetting(f"Given chosen={chosen}; expected {bounds}, such as 1.1.")
    sources = found.sources[layer, head[0]] if head else found.sources[layer].sum(dim=0)
    return by_patch(subject, sources)


def by_patch(subject: Subject, sources) -> np.ndarray:
    """Numbers by token of the patches alone: row, col."""
    return sources[subject.grid.prefix :].reshape(subject.grid.rows, subject.grid.cols).numpy()


def relevance(subject: Subject, settings: Settings):
    """Another method's map; each makes passes of its own, of the untouched model."""
    if subject.trace.without:
        raise UnsupportedModel(Sentence(EDITED))
    found = relevance_of(subject, target(subject, settings), settings["method"])
    if settings.get("difference") != "on":
        return found
    was = relevance_of(before(subject), target(subject, settings), settings["method"])
    constants = {name: value - was.constants[name] for name, value in found.constants.items()}
    prefix = None if found.prefix is None else found.prefix - was.prefix
    changed = {"answer": found.answer - was.answer, "prefix": prefix, "constants": constants}
    return replace(found, map=found.map - was.map, **changed)


def lens(subject: Subject, form: str):
    """The logits (depth, class) of what the classifier reads "now", or the "share" of them so far."""
    return subject.once(f"lens {form}", lambda: late.models.lens(subject.inspector, subject.trace, form))


def patches_are(subject: Subject) -> str:
    """What a patch's own answer is: "reading", "probe", or the sentence why there is none."""
    tail = subject.inspector.tail(subject.grid.pixels)
    return ONE_ONLY.get(tail.pooling.kind) or analyses.lens_kind(tail)


def _answers(subject: Subject, depth: int):
    """Every patch's own probabilities at a depth: class, row, col."""
    if patches_are(subject) not in ("reading", "probe"):
        raise UnsupportedModel(Sentence(patches_are(subject)))
    return analyses.lens_probabilities(ledger_of(subject), depth)


def own(subject: Subject, settings: Settings) -> np.ndarray:
    """Every patch's own probability of the class that is asked about, at a depth: row, col."""
    asked = target(subject, settings)
    return _answers(subject, settings["depth"])[asked[0] if isinstance(asked, tuple) else asked].numpy()


def best(subject: Subject, settings: Settings) -> np.ndarray:
    """The likeliest classes of every patch at a depth, each with its probability: row, col, rank, pair."""
    found = _answers(subject, settings["depth"]).nan_to_num(nan=-1.0)  # left out: no probability at all
    top = found.topk(min(BEST, len(found)), dim=0)
    pairs = np.stack([top.indices.numpy(), top.values.numpy()], axis=-1)  # rank row col pair
    return np.moveaxis(pairs, 0, 2)


def effects(subject: Subject, settings: Settings) -> np.ndarray:
    """What the target that is asked about loses without each part of a layer: its heads, then its MLP."""
    return of_target(subject, settings, taken_away(subject, settings["layer"] - 1).double()).numpy()


def all_effects(subject: Subject, settings: Settings):
    """The effects of all layers as `vitviz.analyses.Effects`."""
    each = (taken_away(subject, layer).double() for layer in range(subject.about.layers))
    found = late.torch.stack([of_target(subject, settings, one) for one in each])
    logit, reference = account(subject, settings).logit, subject.inspector.reference().sentence
    return analyses.Effects(logit, found[:, :-1], found[:, -1], "mean", reference)


def agreement(subject: Subject, settings: Settings) -> np.ndarray:
    """How well direct shares foretell the effects: Pearson's correlation over heads, over MLPs."""
    return np.asarray(analyses.agreement(all_effects(subject, settings), account(subject, settings)))
