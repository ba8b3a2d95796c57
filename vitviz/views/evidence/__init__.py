"""Why this answer: an account of one logit whose lines add up to it, and the answer forming over depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz.analyses.methods import TITLES
from vitviz.errors import UnsupportedModel, VitvizError, WrongSetting
from vitviz.sentence import Sentence, said
from vitviz.views.base import Item, View, Words
from vitviz.views.controls import Choice, Text, Wholes
from vitviz.views.shared import likeliest, packed, relevance_of, target_of
from vitviz.views.subject import Subject

_NO_HEAD = "{checkpoint} has no classifier, so there is no answer that could be accounted for."
_NO_ACCOUNT = "There is no account of this answer: {reason}"
SHOWN = 5  # likeliest classes that the picker offers at once
_EDITED = (
    "Maps by gradients are not made of a model from which something was taken away. Put it back, or read the"
    " account."
)
_ASKED = ("target", "relative")
MAPS = tuple(  # those that a visitor need not wait for; `vitviz.METHODS` has them all
    (name, TITLES[name])
    for name in TITLES
    if name not in ("attention_grad_cam", "integrated_gradients", "leave_one_out", "random", "centre")
)


class Evidence(View):
    slug = "evidence"
    title = "Evidence"
    words = Words(
        what=(
            "The answer is a sum: every head of every layer, every MLP and every bias has added its share to"
            " it, for or against."
        ),
        how=(
            "Orange patches spoke for the class and blue ones against it; click a head to see its own"
            " patches, or take it away and watch the answer move."
        ),
        definition=(
            "With the deviation $\\sigma$ of the final norm held, $u = (w_c \\circ \\gamma)/\\sigma$ and"
            " $\\bar u = u - \\mathrm{mean}(u)$, the logit is $\\langle \\bar u, x^0 \\rangle + \\sum_{l,h,j}"
            " A^{l,h}_{0j} \\langle v_j^{l,h}, W_O^{l,h\\top} \\bar u \\rangle + \\sum_l \\langle \\bar u,"
            " b_O^l + m^l \\rangle + \\langle w_c, \\beta \\rangle + b_c$: the start, each head's share by"
            " source token, biases and MLPs. Where an average is read, the sums run over all patches too. The"
            " map sums the heads' shares by source patch."
        ),
        source=(
            "The final layer of equation 4; Elhage et al. 2021 and Gandelsman et al. 2024 (arXiv 2310.05916),"
            " with the norm's mean moved onto the direction; the answer forming: Vilas et al. 2023 (arXiv"
            " 2310.18969)"
        ),
        caveat=(
            "These are direct effects only: what an early head does through later layers stands in their"
            " lines. The token at a place in a late layer is mixed already. The start is the same for every"
            " picture."
        ),
    )
    arrays = {
        "target": "",
        "line_names": "line",
        "by_source": "layer head token",
    }
    controls = (
        Text("target", default="top", fits=r"top|\d{1,5}(-\d{1,5})?"),
        Choice("relative", "Logit", options=(("no", "As it is"), ("yes", "Against the mean class"))),
        Choice("method", "Map by", options=MAPS),
        Choice(
            "show", "Beside the map", options=(("account", "The account"), ("forming", "The answer forming"))
        ),
        Text("chosen", fits=r"|\d{1,3}(\.\d{1,3})?"),  # a layer's heads, or one head, both from 1
        Wholes("patches", maximum="patches", most=400),  # whose share in every head is in view
    )
    items = (
        Item(
            "map", "row col", "heads' shares by source patch, logits", depends=(*_ASKED, "method", "chosen")
        ),
        Item(
            "explained", "line", "what the map explains, and leaves unexplained", depends=("target", "method")
        ),
        Item("heads", "layer head", "each head's share, logits", depends=(*_ASKED, "patches")),
        Item("mlps", "layer", "each MLP's share, logits", depends=_ASKED),
        Item("biases", "layer", "each projection bias, logits", depends=_ASKED),
        Item("lines", "line", "start, pooling, norm's bias, head's bias, logit, sum", depends=_ASKED),
        Item("sources", "group", "heads' shares from patches and from each prefix token", depends=_ASKED),
        Item("forming", "depth class", "probability by depth, norm afresh", taken=False),
        Item("share", "depth", "share of the target so far, logits", depends=_ASKED, taken=False),
        Item("classes", "byte", "the likeliest classes, as JSON", "uint8", taken=False),
        Item("labels", "byte", "all classes, as JSON", "uint8", taken=False),
    )

    def unsupported(self, subject: Subject) -> str | None:
        if subject.trace.logits is None:
            return Sentence(_NO_HEAD, checkpoint=subject.checkpoint)
        try:
            self._ledger(subject)
        except VitvizError as error:
            return Sentence(_NO_ACCOUNT, reason=said(error))
        return None

    def summary(self, subject: Subject) -> dict[str, Any]:
        top = subject.trace.logits.topk(min(SHOWN, subject.trace.logits.numel()))
        return {"diverging": True, "top": top.indices.tolist(), "prefix": list(subject.grid.prefix_names)}

    def likely(self, subject: Subject, name: str) -> tuple[str, ...]:
        layers = range(1, subject.about.layers + 1)
        heads = [f".{head}" for head in range(1, subject.about.heads + 1)]
        return {
            "chosen": ("", *(f"{layer}{head}" for layer in layers for head in ("", *heads))),
            "patches": ("", *map(str, range(subject.grid.patches))),
            "target": ("top", *map(str, self.summary(subject)["top"])),
        }.get(name, ())

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        from vitviz import models

        trace = subject.trace
        if name in ("classes", "labels"):
            return packed(likeliest(trace, SHOWN) if name == "classes" else list(trace.labels))
        if name == "forming":
            now = subject.once("lens", lambda: models.lens(subject.inspector, trace))
            return now.double().softmax(dim=-1)[:, self.summary(subject)["top"]].numpy()
        if name == "share":
            shares = subject.once("shares", lambda: models.lens(subject.inspector, trace, form="share"))
            return _of(
                shares.double(), self._target(subject, settings), settings["relative"] == "yes"
            ).numpy()
        account = self._account(subject, settings)
        if name == "explained":
            if settings["method"] == "ledger":
                return np.asarray([account.total, account.gap])
            found = self._relevance(subject, settings)
            return np.asarray(
                [np.nan if one is None else one for one in (found.explained, found.unexplained)]
            )
        if name == "map":
            if settings["method"] != "ledger":
                return self._relevance(subject, settings).map.numpy()
            return self._map(account, settings["chosen"], subject)
        if name == "heads":
            picked = [subject.grid.prefix + patch for patch in settings["patches"]]
            return (account.sources[..., picked].sum(dim=-1) if picked else account.heads).numpy()
        if name == "lines":
            pool = 0.0 if account.pool is None else account.pool.total
            lines = (account.start, pool, account.norm_bias, account.head_bias, account.logit, account.total)
            return np.asarray(lines)
        if name == "sources":
            by_token = account.sources.double().sum(dim=(0, 1))
            prefix = subject.grid.prefix
            return np.asarray([by_token[prefix:].sum().item(), *by_token[:prefix].tolist()])
        return (account.mlps if name == "mlps" else account.projection_biases).numpy()

    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        target = self._target(subject, settings)
        return {
            **super().numbers(subject, settings),
            "target": np.asarray(target),
            "line_names": np.asarray(["start", "pooling", "norm_bias", "head_bias", "logit", "total"]),
            "by_source": self._account(subject, settings).sources.numpy(),  # layer head token
        }

    def texts(self) -> set[str]:
        return super().texts() | {_NO_HEAD, _NO_ACCOUNT, _EDITED}

    def _ledger(self, subject: Subject):
        from vitviz import models  # with torch, which a page that is being built has no use for

        return subject.once("ledger", lambda: models.balanced_ledger(subject.inspector, subject.trace))

    def _account(self, subject: Subject, settings: Mapping[str, Any]):
        from vitviz.analyses import account_of

        target, relative = self._target(subject, settings), settings["relative"] == "yes"
        name = f"account {target} {relative}"
        return subject.once(name, lambda: account_of(self._ledger(subject), target, relative))

    def _relevance(self, subject: Subject, settings: Mapping[str, Any]):
        """Another method's map; each makes passes of its own, of the untouched model."""
        if subject.trace.without:
            raise UnsupportedModel(Sentence(_EDITED))
        return relevance_of(subject, self._target(subject, settings), settings["method"])

    def _target(self, subject: Subject, settings: Mapping[str, Any]) -> int | tuple[int, int]:
        return target_of(subject, settings["target"])

    def _map(self, account, chosen: str, subject: Subject) -> np.ndarray:
        if not chosen:
            return account.patches.numpy()
        layer, *head = (int(part) - 1 for part in chosen.split("."))
        about = subject.about
        if not (0 <= layer < about.layers and all(0 <= one < about.heads for one in head)):
            bounds = f"layer 1 to {about.layers}, head 1 to {about.heads}"
            raise WrongSetting(f"Given chosen={chosen}; expected {bounds}, such as 1.1.")
        sources = account.sources[layer, head[0]] if head else account.sources[layer].sum(dim=0)
        return sources[subject.grid.prefix :].reshape(about.grid.rows, about.grid.cols).numpy()


def _of(shares, target: int | tuple[int, int], relative: bool):
    """One target's column of (depth, class)."""
    if isinstance(target, tuple):
        return shares[:, target[0]] - shares[:, target[1]]
    return shares[:, target] - (shares.mean(dim=-1) if relative else 0)
