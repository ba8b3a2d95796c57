"""The trace of one image's forward pass.

One pass at full speed leaves the queries, keys, values and tokens of every layer. Attention is computed from
them on demand, one layer or one block of rows at a time, because N x N numbers for all layers would exhaust
the memory. A trace holds no model, so it can be cached and pickled, and can outlive the model.
"""

from collections.abc import Iterator, Sequence
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
    """Return a tensor, or each tensor of a tuple, in storage of its own."""
    if isinstance(value, tuple):
        return tuple(map(_owned, value))
    view = isinstance(value, Tensor) and value.untyped_storage().nbytes() > value.nbytes
    return value.clone() if view else value


class _Pickled:
    """Pickles its own numbers only: tensors of one batch are views of storage that all its traces share."""

    def __getstate__(self) -> dict:
        return {name: _owned(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Bias:
    """An additive term of one layer's attention scores, added before the softmax.

    A relative-position bias is kept as its small table and the index shared by all layers, and is expanded on
    demand. Any other additive mask is kept as given.
    """

    table: Float[Tensor, "head entry"] | None = None  # of all images of a batch
    index: Tensor | None = None  # (query, key) -> entry
    dense: Float[Tensor, "*#image #head #query key"] | None = None

    def rows(
        self, rows: slice | Tensor = slice(None), heads: slice = slice(None)
    ) -> Float[Tensor, "*#image head query key"]:
        """Return the bias of some queries and heads; one row or head if all share it."""
        if self.dense is None:
            return self.table[heads][:, self.index[rows]]
        places = zip(self.dense.shape[-3:-1], (heads, rows), strict=True)
        places = (slice(None) if size == 1 else some for size, some in places)
        return self.dense[(..., *places, slice(None))]


@dataclass(frozen=True)
class Attention(_Pickled):
    """Record of one attention call: after query-key norm, rotary embedding and relative bias.

    In a `TraceBatch` all tensors have a leading image axis.
    """

    q: Float[Tensor, "*image head query dim"]
    k: Float[Tensor, "*image head key dim"]
    v: Float[Tensor, "*image head key dim2"]
    scale: float
    bias: Bias | None = None
    replaced: tuple[int, ...] = ()  # heads whose weighted values the model replaced
    given: Float[Tensor, "*image replaced query dim2"] | None = None  # the values that replaced them

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.q.shape[-3]

    def weights(
        self, rows: slice | Tensor = slice(None), heads: slice = slice(None)
    ) -> Float[Tensor, "*image head rows key"]:
        """Return softmax(q k^T scale + bias); rows sum to 1.

        `rows`: the queries, a slice or indices. `heads`: a slice.
        """
        q, k = self.q[..., heads, rows, :], self.k[..., heads, :, :]
        with torch.autocast(q.device.type, enabled=False):
            scores = q.new_empty(q[..., 0, 0].numel(), q.shape[-2], k.shape[-2])
            scores = scores.baddbmm_(q.flatten(0, -3), k.flatten(0, -3).mT, beta=0, alpha=self.scale)
            scores = scores.unflatten(0, q.shape[:-2])
            if self.bias is not None:
                scores = scores + self.bias.rows(rows, heads)
            return torch.softmax(scores, dim=-1)

    def output(self) -> Float[Tensor, "*image head query dim2"]:
        """Return the values that the model continued with: weighted values, or their replacements."""
        handed = self.weights() @ self.v
        if self.replaced:
            handed[..., list(self.replaced), :, :] = self.given
        return handed


class InFloat32(Sequence):
    """Tensors or attention calls of a batch in the model's precision, converted to float32 where read."""

    def __init__(self, stored: Sequence):
        self.stored = tuple(stored)  # in the model's precision

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return tuple(map(to_float32, self.stored[index]))
        return to_float32(self.stored[index])


def to_float32(part: Any) -> Any:
    """Return a tensor, or the tensors of an attention call, in float32; its bias is in float32 already."""
    if isinstance(part, Attention):
        q, k, v, given = map(to_float32, (part.q, part.k, part.v, part.given))
        return replace(part, q=q, k=k, v=v, given=given)
    return None if part is None else part.float()


def to_device(part: Any, device: torch.device | str, kinds: Any) -> Any:
    """Return a dataclass of `kinds` with every tensor on a device; other values stay unchanged."""
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, tuple | InFloat32):
        return tuple(to_device(one, device, kinds) for one in part)
    if isinstance(part, kinds):
        return replace(part, **{name: to_device(value, device, kinds) for name, value in vars(part).items()})
    return part


def select_images(part: Any, images: int | slice) -> Any:
    """Return views of one image of a batch's part, without the image axis, or of some images."""
    if isinstance(part, Tensor):
        return part[images]
    if isinstance(part, tuple):
        return tuple(select_images(one, images) for one in part)
    if isinstance(part, InFloat32):
        return tuple(to_float32(select_images(one, images)) for one in part.stored)
    if isinstance(part, Bias):
        shared = part.dense is None or part.dense.shape[0] == 1
        index = (0 if isinstance(images, int) else slice(None)) if shared else images
        return part if part.dense is None else Bias(dense=part.dense[index])
    if isinstance(part, Attention | ResidualWrites):
        return replace(part, **{name: select_images(value, images) for name, value in vars(part).items()})
    return part


def copy_to_cpu(recorded):
    """Return a copy on the CPU of a survey's trace, which is on its model's device."""
    return to_device(recorded, "cpu", Trace | Attention | Bias | ResidualWrites)


@dataclass(frozen=True)
class ModelInput:
    """The image as the model receives it, and the position of its crop in the upload."""

    picture: UInt8[np.ndarray, "height width 3"]
    box: tuple[float, float, float, float]  # left, top, right, bottom of the crop, in pixels of the upload
    upload: tuple[int, int]  # width and height of the upright upload
    retouched: ImageEdits = NONE  # the edits applied to the upload
    # The model's input values, 0 to 1, if 8 bits would round them; None if `picture` is exact. A model that
    # does not read RGB has them in all its channels, and `picture` shows some.
    exact: Float[np.ndarray, "height width channel"] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes in memory of the picture and, if there are any, of the exact values."""
        return self.picture.nbytes + (0 if self.exact is None else self.exact.nbytes)


@dataclass(frozen=True)
class Deviation:
    """Largest differences between a precision and float32 on one image, as probabilities from 0 to 1.

    `attention` is over all layers, heads, queries and keys. `classes` is over all classes.
    """

    attention: float
    classes: float | None  # None for a model without a classifier
    logits: float | None = None  # the largest difference of any logit
    # The gap of the float32 model's logit attribution, relative to the largest logit.
    gap: float | None = None


@dataclass(frozen=True)
class ResidualWrites(_Pickled):
    """Vectors added to the tokens that the classifier reads (the readers), for logit attribution.

    Separate hooks record them. They are stored summed over the readers, weighted as each slot of the readout
    weighs the readers, with the final norm's deviation held: see `vitviz.analyses.readout_stage`. Only the
    numbers of norms and gates between a head and the residual stream are kept for each reader; they are None
    without such layers.
    """

    weights: Float[Tensor, "*image reader slot"]
    attention: Float[Tensor, "*image layer slot width"]  # the attention branch, as added
    mlps: Float[Tensor, "*image layer slot width"]  # the MLP branch, as added
    # deviations of the norm between heads and projection, and of the norm after the attention branch
    inner: Float[Tensor, "*image layer reader"] | None = None
    post: Float[Tensor, "*image layer reader"] | None = None
    gates: Float[Tensor, "*image layer reader inner"] | None = None  # factors of the heads' numbers
    pool_mlp: Float[Tensor, "*image width2"] | None = None  # attention pooling's own MLP


def sequence_places(grid: Grid, kept: Sequence[int]) -> Tensor:
    """Return the sequence positions of the prefix tokens and the kept patches."""
    return torch.cat([torch.arange(grid.prefix), grid.prefix + torch.tensor(kept, dtype=torch.long)])


@dataclass(frozen=True, eq=False, kw_only=True)
class _PassRecord:
    """What a pass records (a `TraceBatch` with an image axis first), and its tokens' places on the grid."""

    layers: Sequence[Attention]
    # input of the first block, then the output of every block
    tokens: Sequence[Float[Tensor, "*image token width"]]
    patch_embedding: Float[Tensor, "*image patch width"]  # E x_p, before the position embedding
    # after the position embedding; None where none is added
    position_embedded: Float[Tensor, "*image patch width"] | None
    logits: Float[Tensor, "*image class"] | None
    pooling: Attention | None = None  # attention pooling (MAP); its queries are not tokens of the sequence
    # Weight of each token in y, if it depends on the image (a maximum).
    read: Float[Tensor, "*image token"] | None = None
    written: ResidualWrites | None = None  # None if the model's blocks or its readout are not supported
    # equal for every image
    checkpoint: str
    grid: Grid
    # kind of the readout: "class", "average", "attention", … (vitviz.traces.readout.NAMES)
    pool: str
    labels: tuple[str, ...] = field(default=(), repr=False)
    milliseconds: float = 0.0
    first_pass: bool = False  # the first pass at this size, so `milliseconds` includes the warm-up
    device: str = "cpu"
    readout: Readout | None = None  # the readout in full; None in a trace that does not come from a model
    dtype: str = "float32"  # precision of the model's computation
    # Deviation of `dtype` from float32 on the checkpoint's first image; None in float32.
    deviation: Deviation | None = None
    kept: tuple[int, ...] | None = None  # remaining patches, from 0; None if none was dropped
    without: Ablation = Ablation()  # the ablation of this pass
    # classes given by the user, which `logits` belong to; None for the model's own
    classes: Classes | None = None
    own_head_type: HeadType = "softmax"  # type of the model's own outputs

    @property
    def head_type(self) -> HeadType:
        """Type of the logits: the given classes' score, else the type of the model's own head."""
        return self.own_head_type if self.classes is None else self.classes.score

    @property
    def length(self) -> int:
        """Number of tokens of the pass; equals `grid.tokens` if no patch was dropped."""
        return self.grid.tokens if self.kept is None else self.grid.prefix + len(self.kept)

    @property
    def places(self) -> slice | Tensor:
        """Positions of the pass's tokens among all tokens of the grid."""
        return slice(None) if self.kept is None else sequence_places(self.grid, self.kept)

    def on_tokens(self, values: Float[Tensor, "*lead length"]) -> Float[Tensor, "*lead token"]:
        """Return values of the pass's tokens for all tokens of the grid: NaN where a patch was dropped.

        Without dropped patches the values are returned without a copy.
        """
        if self.kept is None:
            return values
        whole = values.new_full((*values.shape[:-1], self.grid.tokens), float("nan"))
        whole[..., self.places.to(values.device)] = values
        return whole

    def on_grid(self, values: Float[Tensor, "*lead length"]) -> Float[Tensor, "*lead row col"]:
        """Return values of the pass's patches as a map: NaN where a patch was dropped, no prefix tokens."""
        return self.on_tokens(values)[..., self.grid.prefix :].unflatten(-1, (self.grid.rows, self.grid.cols))

    def layer(self, layer: int) -> Attention:
        """Return one layer's attention call; layers count from 0. Raises IndexError for an unknown layer."""
        if whole_number(layer, least=0) is None or layer >= len(self.layers):
            detail = f"{self.checkpoint} has layers 0 to {len(self.layers) - 1}"
            raise IndexError(f"Layer {layer} does not exist: {detail}.")
        return self.layers[layer]

    @property
    def quantity(self) -> str:
        """Name of the numbers of `top` and `scores`: "probability" of a class, or "value" of an output."""
        return "value" if self.head_type == "value" else "probability"

    def scores(self, logits: Float[Tensor, "*row class"] | None = None) -> Float[Tensor, "*row class"]:
        """Return the probabilities of logits in float64; the values themselves for a head of values.

        `logits`: the trace's own by default.
        """
        return scores_of(self.logits if logits is None else logits, self.head_type)

    def require_logits(self, otherwise: str) -> Float[Tensor, "*image class"]:
        """Return the logits; raise VitvizError without a classifier.

        `otherwise` completes the message: what is impossible without one.
        """
        if self.logits is None:
            raise VitvizError(f"{self.checkpoint} has no classifier, so {otherwise}.")
        return self.logits


# a trace equals only itself: comparing tensors field by field has no single result
@dataclass(frozen=True, eq=False, kw_only=True)
class Trace(_PassRecord, _Pickled, NotebookDisplay):
    """The result of one forward pass: one image, no batch axis, float32 on the CPU, detached.

    Values that the model computed in another `dtype` are converted to float32, so all analyses compute in
    float32. Layers count from 0 here, from 1 on the page and in the paper.

    If patches were dropped, `kept` holds the numbers of the remaining patches and the sequence is shorter:
    `layers`, `tokens`, `readout`, `read` and `written` have `length` tokens, prefix first. `grid`,
    `patch_embedding` and `position_embedded` still describe the whole image. `on_tokens` and `on_grid` map
    back to the whole grid.
    """

    view: ModelInput

    def attention(self, layer: int) -> Float[Tensor, "head query key"]:
        """Return one layer's attention after the softmax: (head, query, key), rows sum to 1.

        Args:
            layer: counts from 0; raises IndexError for an unknown layer.
        """
        return self.layer(layer).weights()

    def attention_rows(
        self, layer: int, block: int = 512
    ) -> Iterator[tuple[int, slice, Float[Tensor, "rows key"]]]:
        """Yield one layer's attention in blocks of rows: (head, rows, weights).

        For analyses that must not hold N x N numbers. `block` is the number of rows. Raises IndexError for an
        unknown layer.
        """
        attention = self.layer(layer)
        for head in range(attention.heads):
            for start in range(0, self.length, block):
                rows = slice(start, min(start + block, self.length))
                yield head, rows, attention.weights(rows, slice(head, head + 1))[0]

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the `count` most probable classes with their probabilities, in descending order.

        If `head_type` is "value", return the outputs with the largest values, which are not probabilities.
        The list is empty without a classifier, and holds all classes if `count` exceeds their number. Raises
        VitvizError if `count` is not a whole number from 0.
        """
        if whole_number(count) is None:
            expected = "expected how many classes to name, a whole number from 0"
            raise VitvizError(f"top({quoted(count)}) is not valid; {expected}.")
        if self.logits is None or self.logits.numel() == 0:
            return []
        scores, classes = self.scores().topk(min(int(count), self.logits.numel()))
        return list(zip(map(self.named, classes.tolist()), scores.tolist(), strict=True))

    @property
    def prediction(self) -> int | None:
        """Predicted class; for a single output 0 is no and 1 is yes. None without a prediction."""
        if self.logits is None or not self.logits.numel() or self.head_type == "value":
            return None
        return int(predictions_of(self.logits, self.head_type))

    def named(self, index: int) -> str:
        """Return a class's label, or its number if the labels do not belong to the logits."""
        if len(self.labels) == self.logits.numel():
            return self.labels[index]
        return f"output {index}" if self.head_type == "value" else f"class {index}"

    def probabilities(self, logits: Float[Tensor, "*row class"] | None = None) -> Float[Tensor, "*row class"]:
        """Return the probabilities of logits, the trace's own by default, in float64.

        `head_type` decides between the softmax over the classes and a sigmoid of each logit. Raises
        VitvizError for a head whose outputs are values.
        """
        if self.head_type == "value":
            raise VitvizError(f"{NO_DECISION.format(name=self.checkpoint)}; `scores` has the values.")
        return self.scores(logits)

    @property
    def size(self) -> float:
        """The largest |logit|, to which unexplained rests are compared.

        For given classes it is at least the logit of a cosine of 1, and without logits 0.
        """
        largest = 0.0 if self.logits is None else self.logits.abs().max().item()
        return largest if self.classes is None else max(largest, self.classes.scale)

    @property
    def nbytes(self) -> int:
        """Memory of this trace in bytes, for caches with a byte limit."""
        tensors = [*self.tokens, self.patch_embedding]
        for attention in (*self.layers, *([self.pooling] if self.pooling else [])):
            tensors += [attention.q, attention.k, attention.v, attention.given]
            if attention.bias is not None:
                tensors += [attention.bias.table, attention.bias.dense]
        tensors += [self.position_embedded, self.read, *(vars(self.written).values() if self.written else ())]
        # views of one storage count once
        whole = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
        return sum({one.data_ptr(): one.nbytes() for one in whole}.values()) + self.view.nbytes


@dataclass(frozen=True, eq=False, kw_only=True)
class TraceBatch(_PassRecord, _Pickled):
    """The result of one forward pass of several images of equal grid and sequence length.

    The fields are those of `Trace` with a leading image axis. `batch[i]` is the trace of one image, by views;
    `for trace in batch` yields all.
    """

    view: tuple[ModelInput, ...]

    def __len__(self) -> int:
        return len(self.view)

    def __getitem__(self, image: int) -> Trace:
        shared = {"view": self.view[image], "labels": self.labels}  # IndexError after the last ends a loop
        own = {name: select_images(value, image) for name, value in vars(self).items() if name not in shared}
        return Trace(**shared, **own)
