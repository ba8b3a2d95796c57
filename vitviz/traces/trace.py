"""The record of one picture's forward pass.

One pass at full speed leaves queries, keys, values and tokens of every layer; attention is computed from them
when somebody looks, a layer (or a block of rows) at a time, because keeping N x N for all layers is what
makes other tools run out of memory. It holds no model, so it can be cached, pickled and outlive it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vitviz.errors import VitvizError, quoted, whole_number
from vitviz.traces.classes import Classes
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.grid import Grid
from vitviz.traces.head_type import NO_DECISION, HeadType, predictions_of, scores_of
from vitviz.traces.image_edits import NONE, ImageEdits
from vitviz.traces.readout import Readout
from vitviz.traces.runs import Ablation


def _owned(value: Any) -> Any:
    """A tensor, or each of several, in a storage of its own."""
    if isinstance(value, tuple):
        return tuple(map(_owned, value))
    view = isinstance(value, Tensor) and value.untyped_storage().nbytes() > value.nbytes
    return value.clone() if view else value


class _Pickled:
    """Pickled with its own numbers alone: tensors of one batch are views of what all its traces share."""

    def __getstate__(self) -> dict:
        return {name: _owned(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Bias:
    """What a model adds to the scores of one layer before the softmax.

    A relative-position bias is kept as its small table and the index shared by all layers, and expanded on
    demand; any other additive mask is kept as it was given.
    """

    table: Float[Tensor, "head entry"] | None = None
    index: Tensor | None = None  # (query, key) -> entry
    dense: Float[Tensor, "#head #query key"] | None = None

    def rows(
        self, rows: slice | Tensor = slice(None), heads: slice = slice(None)
    ) -> Float[Tensor, "head query key"]:
        """The part that belongs to some of the queries and heads; one row or head where all share it."""
        if self.dense is None:
            return self.table[heads][:, self.index[rows]]
        places = zip(self.dense.shape, (heads, rows), strict=False)
        return self.dense[tuple(slice(None) if size == 1 else some for size, some in places)]


@dataclass(frozen=True)
class Attention(_Pickled):
    """One attention call as the model made it: after query-key norm, rotary embedding and relative bias."""

    q: Float[Tensor, "head query dim"]
    k: Float[Tensor, "head key dim"]
    v: Float[Tensor, "head key dim2"]
    scale: float
    bias: Bias | None = None
    replaced: tuple[int, ...] = ()  # heads whose weighted values the model did not go on with
    given: Float[Tensor, "replaced query dim2"] | None = None  # what it went on with instead

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    def weights(
        self, rows: slice | Tensor = slice(None), heads: slice = slice(None)
    ) -> Float[Tensor, "head rows key"]:
        """softmax(q k^T scale + bias) for some queries (a slice, or numbers) and heads: rows sum to 1."""
        with torch.autocast(self.q.device.type, enabled=False):
            scores = torch.matmul(self.q[heads, rows] * self.scale, self.k[heads].mT)
            if self.bias is not None:
                scores = scores + self.bias.rows(rows, heads)
            return torch.softmax(scores, dim=-1)

    def output(self) -> Float[Tensor, "head query dim2"]:
        """What the model goes on with: the weighted values, or what was put in their place."""
        handed = self.weights() @ self.v
        if self.replaced:
            handed[list(self.replaced)] = self.given
        return handed


def to_device(part: Any, device: torch.device | str, kinds: Any) -> Any:
    """A dataclass of such kinds with every tensor in it on a device; what is anything else is not moved."""
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, tuple):
        return tuple(to_device(one, device, kinds) for one in part)
    if isinstance(part, kinds):
        return replace(part, **{name: to_device(value, device, kinds) for name, value in vars(part).items()})
    return part


def on_cpu(recorded):
    """A trace of a survey, which lies where its model is, as one that all are given."""
    return to_device(recorded, "cpu", Trace | Attention | Bias | ResidualWrites)


@dataclass(frozen=True)
class ModelInput:
    """The picture as the model gets it, and where that lies in the upload."""

    picture: UInt8[np.ndarray, "height width 3"]
    box: tuple[float, float, float, float]  # left, top, right, bottom of the crop, in pixels of the upload
    upload: tuple[int, int]  # width and height of the upright upload
    retouched: ImageEdits = NONE  # what the upload was painted over with
    # The values from 0 to 1 that the model gets, where 8 bits round them; None where the image says it all.
    exact: Float[np.ndarray, "height width 3"] | None = None

    @property
    def nbytes(self) -> int:
        return self.picture.nbytes + (0 if self.exact is None else self.exact.nbytes)


@dataclass(frozen=True)
class Deviation:
    """How far a precision took a model from float32 on one picture: probabilities' largest differences.

    From 0 to 1: `attention` over all layers, heads, queries and keys, `classes` over all classes.
    """

    attention: float
    classes: float | None  # None for a model without a classifier
    logits: float | None = None  # the largest difference of any logit
    # How far the float32 model's account of its logits fails to add up, of the largest logit.
    gap: float | None = None


@dataclass(frozen=True)
class ResidualWrites(_Pickled):
    """What was added to the tokens that the classifier reads (its readers), for the account of a logit.

    Recorded by hooks of their own, and kept summed over the readers with the weight that each slot of the
    readout gives them, the final norm's deviation held: see `vitviz.analyses.readout_stage`. What is kept for
    each reader are the numbers of norms and gates between a head and the residual stream; None without any.
    """

    weights: Float[Tensor, "reader slot"]
    attention: Float[Tensor, "layer slot width"]  # the attention branch as it was added
    mlps: Float[Tensor, "layer slot width"]  # the MLP branch as it was added
    inner: Float[Tensor, "layer reader"] | None = None  # deviation of the norm between heads and projection
    post: Float[Tensor, "layer reader"] | None = None  # deviation of the norm behind the attention branch
    gates: Float[Tensor, "layer reader inner"] | None = None  # what each number of the heads is multiplied by
    pool_mlp: Float[Tensor, " width2"] | None = None  # attention pooling's own MLP


@dataclass(frozen=True, eq=False)  # a trace is itself: comparing tensors field by field has no single answer
class Trace(_Pickled, NotebookDisplay):
    """Everything one forward pass leaves behind; one image, no batch axis, float32 on the CPU, detached.

    What the model computed in another `dtype` is kept in float32 too, so that everything made of it is
    computed so. Layers count from 0 here, from 1 on the page and in the paper.

    Where patches were left out, `kept` has the numbers of those that stayed, and the sequence is shorter:
    `layers`, `tokens`, `readout`, `read` and `written` are of its `length` tokens, prefix first. `grid` stays
    that of the picture, as do `patch_embedding` and `position_embedded`; `on_tokens`, `on_grid` lead back.
    """

    checkpoint: str
    grid: Grid
    view: ModelInput
    layers: tuple[Attention, ...]
    tokens: tuple[Float[Tensor, "token width"], ...]  # input of the first block, then every block's output
    patch_embedding: Float[Tensor, "patch width"]  # E x_p, before the position embedding
    position_embedded: Float[Tensor, "patch width"] | None  # after it; None where none is added
    logits: Float[Tensor, "class"] | None
    # what the classifier reads, the name of `readout`: "class", "average", "attention", …
    # (vitviz.traces.readout.NAMES)
    pool: str
    pooling: Attention | None = None  # attention pooling (MAP): its queries are no tokens of the sequence
    labels: tuple[str, ...] = field(default=(), repr=False)
    milliseconds: float = 0.0
    first_pass: bool = False  # at this size, so that its time is not what a pass takes
    device: str = "cpu"
    readout: Readout | None = None  # the same in full; None in a trace that is not from a model
    # How much of y each token is, where that depends on the picture (a maximum).
    read: Float[Tensor, " token"] | None = None
    dtype: str = "float32"  # in which the model computed
    # Of that from float32, on the checkpoint's first picture; None in float32.
    deviation: Deviation | None = None
    written: ResidualWrites | None = None  # None where the model's blocks or its readout are not understood
    kept: tuple[int, ...] | None = None  # patches that stayed, from 0; None where none was left out
    without: Ablation = Ablation()  # what was taken away from this pass
    classes: Classes | None = None  # given ones, which the logits are of; None for the model's own
    own_head_type: HeadType = "softmax"  # what the model's own outputs are

    @property
    def head_type(self) -> HeadType:
        """What the logits are read as: given classes say it, else the model's own head."""
        return self.own_head_type if self.classes is None else self.classes.score

    @property
    def length(self) -> int:
        """How many tokens the pass had; `grid.tokens` where no patch was left out."""
        return self.grid.tokens if self.kept is None else self.grid.prefix + len(self.kept)

    @property
    def places(self) -> slice | Tensor:
        """Where the tokens of the pass stand among all of the grid's."""
        if self.kept is None:
            return slice(None)
        prefix = self.grid.prefix
        return torch.cat([torch.arange(prefix), prefix + torch.tensor(self.kept, dtype=torch.long)])

    def on_tokens(self, values: Float[Tensor, "*lead length"]) -> Float[Tensor, "*lead token"]:
        """Numbers of the pass's tokens, for all tokens of the grid: NaN where a patch was left out.

        Nothing is copied where none was.
        """
        if self.kept is None:
            return values
        whole = values.new_full((*values.shape[:-1], self.grid.tokens), float("nan"))
        whole[..., self.places.to(values.device)] = values
        return whole

    def on_grid(self, values: Float[Tensor, "*lead length"]) -> Float[Tensor, "*lead row col"]:
        """Numbers of the pass's patches as a map, NaN where one was left out; prefix tokens do not appear."""
        return self.on_tokens(values)[..., self.grid.prefix :].unflatten(-1, (self.grid.rows, self.grid.cols))

    def layer(self, layer: int) -> Attention:
        """One layer's attention call, counted from 0; IndexError for one that does not exist."""
        if not 0 <= layer < len(self.layers):
            raise IndexError(
                f"Layer {layer} does not exist: {self.checkpoint} has layers 0 to {len(self.layers) - 1}."
            )
        return self.layers[layer]

    def attention(self, layer: int) -> Float[Tensor, "head query key"]:
        """The attention of every head of one layer after the softmax (row = query, sums to 1)."""
        return self.layer(layer).weights()

    def attention_rows(
        self, layer: int, block: int = 512
    ) -> Iterator[tuple[int, slice, Float[Tensor, "rows key"]]]:
        """The same in blocks of a head's rows: (head, rows, weights), for what must not hold N x N."""
        attention = self.layer(layer)
        for head in range(attention.heads):
            for start in range(0, self.length, block):
                rows = slice(start, min(start + block, self.length))
                yield head, rows, attention.weights(rows, slice(head, head + 1))[0]

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """The likeliest classes with their probabilities, likeliest first; empty without a classifier.

        Where `head_type` is "value", the outputs with the largest values, which are no probabilities.
        VitvizError for a count that is no whole number from 0; more than there are classes are all.
        """
        if whole_number(count) is None:
            raise VitvizError(
                f"Given top({quoted(count)}); expected how many classes to name, a whole number from 0."
            )
        if self.logits is None or self.logits.numel() == 0:
            return []
        scores, classes = self.scores().topk(min(int(count), self.logits.numel()))
        return list(zip(map(self.named, classes.tolist()), scores.tolist(), strict=True))

    @property
    def quantity(self) -> str:
        """What `top` and `scores` give, by name: each class's "probability", or an output's "value"."""
        return "value" if self.head_type == "value" else "probability"

    @property
    def prediction(self) -> int | None:
        """The predicted class, of a single output 0 for no and 1 for yes; None where none is predicted."""
        if self.logits is None or not self.logits.numel() or self.head_type == "value":
            return None
        return int(predictions_of(self.logits, self.head_type))

    def named(self, index: int) -> str:
        """A class by its label, or by its number where the labels are not those of the logits."""
        if len(self.labels) == self.logits.numel():
            return self.labels[index]
        return f"output {index}" if self.head_type == "value" else f"class {index}"

    def probabilities(self, logits: Float[Tensor, "*row class"] | None = None) -> Float[Tensor, "*row class"]:
        """What logits, its own or others, say in float64: by a softmax, or a sigmoid each (`head_type`).

        VitvizError for a head whose outputs are values.
        """
        if self.head_type == "value":
            raise VitvizError(f"{NO_DECISION.format(name=self.checkpoint)}; `scores` has the values.")
        return self.scores(logits)

    def scores(self, logits: Float[Tensor, "*row class"] | None = None) -> Float[Tensor, "*row class"]:
        """The probabilities of logits, its own or others, in float64; of a head of values these values."""
        return scores_of(self.logits if logits is None else logits, self.head_type)

    def require_logits(self, otherwise: str) -> Float[Tensor, " class"]:
        """Its logits; VitvizError, which says what is not there otherwise, where it has no classifier."""
        if self.logits is None:
            raise VitvizError(f"{self.checkpoint} has no classifier, so {otherwise}.")
        return self.logits

    @property
    def size(self) -> float:
        """How large its logits are, to measure a gap by: the largest, or what a cosine of 1 would give."""
        largest = 0.0 if self.logits is None else self.logits.abs().max().item()
        return largest if self.classes is None else max(largest, self.classes.scale)

    @property
    def nbytes(self) -> int:
        """The memory that this record holds, for caches bounded in bytes."""
        tensors = [*self.tokens, self.patch_embedding]
        for attention in (*self.layers, *([self.pooling] if self.pooling else [])):
            tensors += [attention.q, attention.k, attention.v, attention.given]
            if attention.bias is not None:
                tensors += [attention.bias.table, attention.bias.dense]
        tensors += [self.position_embedded, self.read, *(vars(self.written).values() if self.written else ())]
        whole = [tensor.untyped_storage() for tensor in tensors if tensor is not None]  # of views once
        return sum({one.data_ptr(): one.nbytes() for one in whole}.values()) + self.view.nbytes
