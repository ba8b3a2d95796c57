"""Direct logit attribution: a logit as a sum of contributions.

With the final norm's deviation s held, u = (w * weight) / s minus its mean, x the tokens that are read,

    logit = <u, x_0> + sum_l sum_h sum_j A_lhj <v_lhj, W_O^lh u> + sum_l <u, b_O^l> + sum_l <u, m_l>
            + <w, bias> + b

for a class token: its start, every head's contribution by source token j, the projections' biases, the MLPs'
outputs m, the norm's and the head's bias. LayerScale multiplies W_O, b_O and m. Norms between a head and the
residual stream are held like the last. If the classifier reads an average or attention pooling, the sums also
run over all readers, each with its own deviation. Attention pooling adds terms of its own. Sources:
Gandelsman et al. 2024 (arXiv 2310.05916), who split the norm's mean and bias equally over all components;
here centring is moved onto the direction, where it is linear, and biases are separate terms.

Attribution shows direct effects only. It does not show the effect of an early head through later layers,
which is credited to those layers. Source j in layer l is the token at position j, which already mixes other
tokens. The class token's start is equal for every image. MLPs of tokens that are not read do not appear.
Deviations are those of the image. The replacement of an ablated head is credited to the token that reads it,
because it has no source. If all tokens were exchanged before a layer, the start is the input of that layer,
and earlier layers contribute nothing.

The difference of two attributions adds up to the change of the logit, term by term. Each term of the second
was divided by the deviation of the second image, so the difference mixes a change of what the component wrote
and a change of scale. If the readout has a single deviation s, the second's terms are taken at the first's
deviation, and the rest, (1 - s'/s) of their sum, is the term "norm".

Check of an attribution: the terms must add up to the model's own logits.

In float32 the largest gap of a few classes may be 1e-4 of the largest logit. In a lower precision each sum
and product of the model is rounded, so an attribution computed in float32 from the recorded values cannot
match a rounded logit. There the same model in float32 has to match, and the gap may be as large as the
largest effect of the precision on a logit. The check also compares each layer's heads and biases with the
output of its attention. It does not show that every term is assigned to the right component.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.logit_attribution import LogitTerms, contributed_values, logit_terms
from vitviz.analyses.readout_stage import AttentionPooling, ReadoutStage
from vitviz.analyses.target import Target, TargetLike, resolve_class_targets, resolve_target
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.display import NotebookChart, NotebookTable
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.trace import Trace

Value = float | Float[Tensor, "image"]  # a number, or the number of each image of a batch


@dataclass(frozen=True)
class PoolingContributions:
    """Terms of attention pooling, in logits.

    `heads`, the contribution of the pooling's heads by token, is another view of the same numbers and not a
    term.
    """

    value_bias: Value
    projection_bias: Value
    positions: Value
    mlp: Value
    heads: Float[Tensor, "*image head token"]

    @property
    def total(self) -> Value:
        """Sum of all terms."""
        return self.value_bias + self.projection_bias + self.positions + self.mlp


@dataclass(frozen=True)
class Attribution(NotebookChart, NotebookTable):
    """Attribution of one logit. All numbers are in logits; layers and heads count from 0.

    Of a batch, all have a leading image axis.
    """

    logit: Value  # the model's own logit
    start: Value  # input of the first block
    heads: Float[Tensor, "*image layer head"]
    # heads' contributions by source token, prefix tokens first
    sources: Float[Tensor, "*image layer head token"]
    # including the biases of norms in or after the branch
    projection_biases: Float[Tensor, "*image layer"]
    mlps: Float[Tensor, "*image layer"]
    norm_bias: Value
    head_bias: Value
    # heads' contributions by source patch, summed over all layers and heads
    patches: Float[Tensor, "*image row col"]
    starts: Float[Tensor, "*image token"]  # the start by the token that is read
    # each layer's attention output as added: heads and bias, recorded by a separate hook
    attentions: Float[Tensor, "*image layer"]
    pool: PoolingContributions | None = None
    # deviation of the last norm, if a single number applies to everything that is read
    deviation: Value | None = None
    norm: float = 0.0  # of a difference: effect of the other deviation

    def minus(self, before: Attribution, held: bool = True) -> Attribution:
        """Return the attribution of the change from `before` to this one, for the same model and target.

        Args:
            before: the attribution to subtract, of the same shape.
            held: take this one's terms at the deviation of `before`, if the last norm has a single deviation;
                the rest is the term `norm`. Otherwise each keeps its own deviation and `norm` is 0.

        Contributions of dropped patches count as 0.

        Raises:
            VitvizError: the shapes differ.

        >>> from vitviz.analyses.example import example_account
        >>> before, after = (logit_attribution(*example_account(seed=seed), target=0) for seed in (1, 2))
        >>> change = after.minus(before)
        >>> abs(change.logit - (after.logit - before.logit)) < 1e-9, abs(change.gap) < 1e-9
        (True, True)
        """
        shapes = [(tuple(one.sources.shape), tuple(one.patches.shape)) for one in (self, before)]
        if shapes[0] != shapes[1]:
            raise VitvizError(
                f"Logit accounts of shapes {shapes[0]} and {shapes[1]} cannot be compared;"
                " expected the same shape."
            )
        both = self.deviation is not None and before.deviation is not None
        ratio = self.deviation / before.deviation if held and both else 1.0
        ratios = {name: 1.0 if name in _WHOLE else ratio for name in vars(self) if name != "deviation"}
        result = {
            name: _difference(getattr(self, name), getattr(before, name), own) for name, own in ratios.items()
        }
        divided = self.total - (self.norm_bias + self.head_bias)
        return Attribution(**result | {"norm": (1 - ratio) * divided + self.norm - before.norm})

    @property
    def constants(self) -> dict[str, Value]:
        """Terms that no head contributes, by name; equal for every patch."""
        result = {"start": self.start, "MLPs": _value(self.mlps.sum(dim=-1))}
        result |= {"projections' biases": _value(self.projection_biases.sum(dim=-1))}
        result |= {"norm bias": self.norm_bias, "head bias": self.head_bias}
        result |= {} if self.pool is None else {"attention pooling": self.pool.total}
        return result | ({"norm": self.norm} if self.norm else {})

    @property
    def total(self) -> Value:
        """The sum of all terms, in logits: contributions of all heads plus the constants."""
        return _value(self.heads.sum(dim=(-2, -1))) + sum(self.constants.values())

    @property
    def gap(self) -> Value:
        """Unexplained rest: logit - total."""
        return self.logit - self.total

    def rows(self) -> list[dict]:
        """Return one row per term, layers and heads from 0 or None; the rows add up to `total`."""

        def row(line, logits, layer=None, head=None):
            return {"line": line, "layer": layer, "head": head, "logits": float(logits)}

        result = [row("start", self.start)]
        for layer, heads in enumerate(self.heads):
            result += [row("head", share, layer, head) for head, share in enumerate(heads)]
            result.append(row("projection bias", self.projection_biases[layer], layer))
            result.append(row("mlp", self.mlps[layer], layer))
        if self.pool is not None:
            result.append(row("pooling", self.pool.total))
        result += [row("norm", self.norm)] if self.norm else []
        return [*result, row("norm's bias", self.norm_bias), row("head's bias", self.head_bias)]


def _value(value: Any) -> Any:
    """Return a tensor without axes as a number; other values stay unchanged."""
    return value.item() if isinstance(value, Tensor) and value.ndim == 0 else value


_WHOLE = ("logit", "norm_bias", "head_bias")  # terms that no deviation divides


def _difference(after, before, ratio: float):
    """Return ratio * after - before of one term: a number, a tensor (dropped patches are 0), or pooling's."""
    if isinstance(after, PoolingContributions):
        parts = zip(vars(after).values(), vars(before).values(), strict=True)
        return PoolingContributions(*(_difference(*pair, ratio) for pair in parts))
    if isinstance(after, Tensor):
        return after.nan_to_num() * ratio - before.nan_to_num()
    return None if after is None else after * ratio - before


def logit_attribution(
    trace: Trace, readout: ReadoutStage, target: TargetLike, relative: bool = False
) -> Attribution:
    """Return the direct logit attribution of a class, a difference of two classes, or a direction.

    Args:
        trace: the trace, with recorded residual writes.
        readout: the readout of the same model.
        target: class number from 0, label, (a, b) for a rather than b, or a direction (a tensor).
        relative: attribute the logit minus the mean over all classes.

    Returns:
        `Attribution`, in logits; its heads are (layer, head), its sources (layer, head, token), its patches
            (row, col).

    Raises:
        VitvizError: the target does not exist.
        UnsupportedModel: the trace lacks what the attribution needs.

    Source: see the module.

    >>> from vitviz.analyses.example import example_account
    >>> trace, readout = example_account(seed=1)
    >>> account = logit_attribution(trace, readout, target=0)
    >>> account.sources.shape, abs(account.gap) < 1e-9
    (torch.Size([2, 2, 4]), True)
    """
    return attribution_of(logit_terms(trace, readout), target, relative)


def attribution_of(ledger: LogitTerms, target: TargetLike, relative: bool = False) -> Attribution:
    """Return the attribution of a target from the class-independent terms of `logit_terms`.

    Use this for several classes of one trace. Args and Returns are those of `logit_attribution`. Raises
    VitvizError for a target that does not exist.

    >>> from vitviz.analyses.example import example_account
    >>> ledger = logit_terms(*example_account(seed=1))
    >>> round(attribution_of(ledger, (0, 1)).logit - attribution_of(ledger,
    ...     0).logit + attribution_of(ledger, 1).logit, 9)
    0.0
    """
    return attribution_of_target(ledger, resolve_target(ledger.trace, ledger.readout, target, relative))


def attribution_of_predictions(ledger: LogitTerms, relative: bool = False) -> Attribution:
    """Return the attribution of the largest logit; in a batch, that of each image's own largest logit.

    Raises VitvizError for `relative` where a mean of the logits has no meaning. See `attribution_of`.

    >>> from vitviz.analyses.example import example_account
    >>> ledger = logit_terms(*example_account(seed=1))
    >>> attribution_of_predictions(ledger).logit == ledger.trace.logits.max()
    tensor(True)
    """
    trace, readout = ledger.trace, ledger.readout
    largest = trace.logits.argmax(dim=-1)
    largest = int(largest) if largest.ndim == 0 else largest
    return attribution_of_target(ledger, resolve_class_targets(trace, readout, [largest], relative))


def attribution_of_target(ledger: LogitTerms, target: Target) -> Attribution:
    """Return the attribution of a target that `resolve_target` or `resolve_class_targets` returned."""
    trace, readout, carried = ledger.trace, ledger.readout, ledger.carried
    basis, norm_bias, pool = directions(ledger, target.direction)
    at_heads, *constants = zip(*(projection.back(basis) for projection in readout.layers), strict=True)
    sources = _sources(ledger, at_heads)
    biases = sources.new_zeros(sources.shape[:-2], dtype=torch.float64)
    for weights, parts in zip((carried.added, carried.projected), constants, strict=True):
        if any(one is not None for one in parts):
            none = basis.new_zeros(basis.shape[:-1])
            parts = torch.stack([none if one is None else one for one in parts], dim=-2)
            biases = biases + (weights * parts).sum(dim=-1, dtype=torch.float64)
    entered, readers = trace.tokens[trace.without.at or 0], readout.pooling.readers
    starts = sources.new_zeros(entered.shape[:-1])
    starts[..., readers] = (trace.written.weights * (entered[..., readers, :] @ basis.mT)).sum(dim=-1)
    result = dict(
        logit=target.logit, start=starts.sum(dim=-1, dtype=torch.float64),
        heads=sources.sum(dim=-1, dtype=torch.float64), sources=trace.on_tokens(sources),
        projection_biases=biases, mlps=_dot(basis.unsqueeze(-3), trace.written.mlps),
        norm_bias=norm_bias, head_bias=target.bias,
        patches=trace.on_grid(sources.sum(dim=(-3, -2), dtype=torch.float64)),
        starts=trace.on_tokens(starts), attentions=_dot(basis.unsqueeze(-3), trace.written.attention),
        pool=pool, deviation=_deviation(ledger),
    )  # fmt: skip
    return Attribution(**{name: _value(value) for name, value in result.items()})


def _deviation(ledger: LogitTerms) -> Float[Tensor, "*image"] | None:
    """Return the last norm's deviation if a single deviation divides all that is read, otherwise None."""
    pooling, weights = ledger.readout.pooling, ledger.trace.written.weights
    if ledger.readout.attention_pooling is not None:
        return None
    if pooling.fc_norm is None:  # the deviation of the single reader, whose weight is 1
        alone = pooling.norm is not None and weights.shape[-2:] == (1, 1)
        return 1 / weights[..., 0, 0].double() if alone else None
    alone = pooling.norm is None and ledger.carried.deviation.shape[-2:] == (1, 1)
    return ledger.carried.deviation[..., 0, 0] if alone else None


def directions(
    ledger: LogitTerms, direction: Float[Tensor, "*image slot width"]
) -> tuple[
    Float[Tensor, "*image slot2 width2"], Float[Tensor, "*image"] | float, PoolingContributions | None
]:
    """Return each slot's direction at the tokens, the norm biases' contribution, and pooling's terms.

    The directions do not include the weights of the tokens.
    """
    pooling, own = ledger.readout.pooling, ledger.readout.attention_pooling
    norm_bias, pool = 0.0, None
    if pooling.fc_norm is not None:
        norm_bias = pooling.fc_norm.constant(direction).sum(dim=-1).double()
        direction = pooling.fc_norm.back(direction) / ledger.carried.deviation
    if own is not None:
        direction, pool = _attention_pooling_terms(own, ledger, direction[..., 0, :])
    if pooling.norm is not None:
        norm_bias = norm_bias + pooling.norm.constant(direction).sum(dim=-1).double()
        direction = pooling.norm.back(direction)
    return direction, norm_bias, pool


def _attention_pooling_terms(
    own: AttentionPooling, ledger: LogitTerms, direction: Float[Tensor, "*image width2"]
) -> tuple[Float[Tensor, "*image slot width"], PoolingContributions]:
    """Return the direction at the normed tokens for each head of attention pooling, and pooling's terms."""
    trace, pooling = ledger.trace, ledger.readout.pooling
    heads, written = trace.pooling.heads, trace.written
    # at the values of its heads, concatenated
    along = direction if own.projection is None else (direction.unsqueeze(-2) @ own.projection).squeeze(-2)
    by_head = along.unflatten(-1, (heads, -1))
    basis = (by_head.unsqueeze(-2) @ own.value.unflatten(0, (heads, -1))).squeeze(-2)
    shares = pooling.shares(trace.length, trace.pooling)
    read = shares.mT * (trace.pooling.v @ by_head.unsqueeze(-1)).squeeze(-1)
    by_token = read.new_zeros(*read.shape[:-1], trace.length)
    by_token[..., pooling.readers] = read
    positions = None if own.positions is None else (own.positions @ basis.mT).flatten(-2)
    products = (
        (along, own.value_bias), (direction, own.projection_bias), (shares.flatten(-2), positions),
        (direction, written.pool_mlp),
    )  # fmt: skip
    result = (0.0 if two is None else _value((one * two).sum(dim=-1).double()) for one, two in products)
    return basis, PoolingContributions(*result, trace.on_tokens(by_token))


def head_direction(
    ledger: LogitTerms, basis: Float[Tensor, "slot width"], layer: int, head: int
) -> Float[Tensor, "token dim"]:
    """Return d_j = sum_s (sum_i c_is A_ij) r_s by token j; a head adds sum_j <d_j, v_j> to the logit."""
    account, heads = ledger.carried.layers[layer], ledger.trace.layers[layer].heads
    along = ledger.readout.layers[layer].back(basis)[0].unflatten(1, (heads, -1))[:, head]
    if account.gated is not None:
        return torch.einsum("sjd,sd->jd", account.gated[head], along)
    return account.carried[head].mT @ along


def _sources(
    ledger: LogitTerms, at_heads: Sequence[Float[Tensor, "*image slot inner"]]
) -> Float[Tensor, "*image layer head token"]:
    """Return all heads' contributions by source token; `at_heads` has the directions at heads, by layer."""
    result, accounts = [], ledger.carried.layers
    for account, attention, one in zip(accounts, ledger.trace.layers, at_heads, strict=True):
        by_head, values = one.unflatten(-1, (attention.heads, -1)), contributed_values(attention)
        if account.gated is None:
            result.append(by_head.transpose(-3, -2) @ values.mT)
        else:
            result.append(torch.einsum("...hsjd,...hjd,...shd->...hj", account.gated, values, by_head))
    sources = torch.stack(result, dim=result[0].ndim - (3 if accounts[0].gated is None else 2))
    if accounts[0].gated is None:
        sources = (torch.stack([one.carried for one in accounts], dim=-4) * sources).sum(dim=-2)
    return sources


def _dot(
    basis: Float[Tensor, "*#part slot width"], written: Float[Tensor, "*part slot width"]
) -> Float[Tensor, "*part"]:
    """Return the float64 dot product of written vectors with the directions, summed over slots."""
    return (written.double() * basis).sum(dim=(-1, -2))


AS_IT_IS = (
    "Logit attribution is not available for {checkpoint}: the contributions miss the model's"
    " logits by {found} of the largest logit, and the tolerance is {allowed}. vitviz probably"
    " does not support part of this architecture, so it shows no result."
)
IN_FLOAT32 = (
    "Logit attribution is not available for {checkpoint}: even in float32, the contributions miss"
    " the model's logits by {found} of the largest logit, and the tolerance is {allowed}. vitviz"
    " probably does not support part of this architecture, so it shows no result."
)
TOLERANCE = 1e-4  # fraction of the largest logit
ROUNDING = 4.0  # factor of the largest effect of the precision on any logit of the first image


def largest_gap(ledger: LogitTerms) -> tuple[float, float]:
    """Return the largest unexplained rest of a few classes' logits, and of layers' attention outputs."""
    logits = ledger.trace.logits
    classes = {int(logits.argmax()), int(logits.argmin()), 0, len(logits) // 2}
    accounts = [attribution_of(ledger, one) for one in sorted(classes)]
    left = (one.heads.sum(dim=1) + one.projection_biases - one.attentions for one in accounts)
    within = max(one.abs().max().item() for one in left)
    return max((abs(one.gap) for one in accounts), key=lambda gap: (gap != gap, gap)), within


def check_balance(ledger: LogitTerms) -> None:
    """Raise UnsupportedModel, with the gap, if the terms do not add up; do nothing without logits."""
    trace = ledger.trace
    if trace.logits is None or ledger.readout.head is None:
        return
    gap, within = largest_gap(ledger)
    largest = trace.size
    allowed, deviation = TOLERANCE * largest, trace.deviation
    if deviation is not None and deviation.logits is not None:
        if deviation.gap is not None and not deviation.gap <= TOLERANCE:
            details = {"found": f"{deviation.gap:.1e}", "allowed": f"{TOLERANCE:.0e}"}
            raise UnsupportedModel(LocalizedText(IN_FLOAT32, checkpoint=trace.checkpoint, **details))
        allowed = max(allowed, ROUNDING * deviation.logits)
    if not max(gap, within) <= allowed:
        details = {"found": f"{max(gap, within) / largest:.1e}", "allowed": f"{allowed / largest:.0e}"}
        raise UnsupportedModel(LocalizedText(AS_IT_IS, checkpoint=trace.checkpoint, **details))
