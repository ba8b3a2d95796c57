"""Extract a model's readout (all computation between heads and logits) as a frozen value, part by part.

The computation between a head and the residual stream differs between model families. The classes of timm's
blocks tell which parts it has. A logit's attribution, which must sum to the logit, tells whether these parts
are understood. Models that are not understood are refused.
"""

from weakref import WeakKeyDictionary

import torch
from timm.layers import AttentionPoolLatent, RmsNorm, RmsNormFp32
from timm.models.deit import VisionTransformerDistilled
from torch import Tensor, nn

from vitviz.analyses import readout_stage as stages
from vitviz.analyses.readout_stage import Head, Norm, Pooling, Projection, ReadoutStage
from vitviz.analyses.upstream import Reader, Side
from vitviz.engine.cosine import CosineHead
from vitviz.engine.device import inference_context
from vitviz.engine.formats.huggingface import ClassAndMeanReadout, ClassOnlyReadout
from vitviz.engine.forward.own_model import UNKNOWN, OwnModel, require_known
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.localized_text import LocalizedText, message_of, not_applicable

PRE_NORM = ("Block", "EvaBlock", "RelPosBlock")  # x + branch(norm(x))
POST_NORM = ("ResPostBlock", "ResPostRelPosBlock", "EvaBlockPostNorm")  # x + norm(branch(x))
PARALLEL = "ParallelScalingBlock"  # attention and MLP read the same tokens
NO_WAY = "its blocks are of the type {kind}, whose path from head to residual stream is not known"
OTHER_LOGITS = (
    "its final norm and classifier, applied to its last tokens, miss its logits by {found}, so its forward"
    " pass does more than vitviz repeats here"
)
NOT_REPEATED = (
    "{name} gives this image other logits than the trace has (difference {found:.2g}): the trace is of a pass"
    " with hooks, an experiment or other weights. Trace the image again without them."
)
# by whether the classifier is part of the stage
_known: dict[bool, WeakKeyDictionary[nn.Module, tuple[tuple, dict[torch.device, ReadoutStage]]]] = {
    True: WeakKeyDictionary(),
    False: WeakKeyDictionary(),
}
_supported: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
_poolings: WeakKeyDictionary[nn.Module, Pooling | None] = WeakKeyDictionary()
CPU = torch.device("cpu")
EVERY = Pooling("average", ((0, None),), None, None)  # keeps all tokens


def readout_stage_of(
    model: nn.Module, name: str, device: torch.device = CPU, classifier: bool = True
) -> ReadoutStage:
    """Return the readout at a model's present input size; cached for each model and device.

    The result shares weights that are float32 on the CPU. Without `classifier`, only its `layers` are the
    model's. Raises UnsupportedModel, "not applicable, because ...", for a model that is not understood.
    """
    # weights may have been replaced or changed
    weights = tuple((parameter.data_ptr(), parameter._version) for parameter in model.parameters())
    known = _known[classifier]
    if model not in known or known[model][0] != weights:
        try:
            stage = _stage(model, name) if classifier else _stage_of_blocks(model, name)
        except _NotUnderstood as reason:
            raise UnsupportedModel(not_applicable(name, message_of(reason))) from None
        known[model] = weights, {CPU: stage}
    there = known[model][1]
    if device not in there:
        there[device] = there[CPU].on(device)
    return there[device]


def _stage(model: nn.Module, name: str) -> ReadoutStage:
    """Return the complete readout of a model."""
    pooling, width = pooling_of(model), int(getattr(model, "embed_dim", None) or model.num_features)
    layers, attends = tuple(map(projection_of, model.blocks)), pooling.kind == "attention"
    pool = attention_pooling_of(model) if attends else None
    features = (2 if pooling.kind == "class and average" else 1) * width
    return ReadoutStage(name, pooling, layers, head_of(model, pooling), pool, features)


def _stage_of_blocks(model: nn.Module, name: str) -> ReadoutStage:
    """Return the projections of a model's blocks, without a classifier, whatever the model pools."""
    if isinstance(model, OwnModel):
        raise _NotUnderstood(UNKNOWN.format(part="its blocks"))
    return ReadoutStage(name, EVERY, tuple(map(projection_of, model.blocks)), None)


def supports_blocks(model: nn.Module) -> bool:
    """Return True if vitviz supports the computation between heads and residual stream in every block.

    Cached for each model, because a GPU would otherwise copy weights in each pass.
    """
    if model not in _supported:
        try:
            _stage_of_blocks(model, "")
            _supported[model] = True
        except _NotUnderstood:
            _supported[model] = False
    return _supported[model]


def pooling_or_none(model: nn.Module) -> Pooling | None:
    """Return the pooling of the classifier; None if vitviz does not support the pooling or a block.

    Cached as `supports_blocks`.
    """
    if model not in _poolings:
        try:
            _poolings[model] = pooling_of(model) if supports_blocks(model) else None
        except _NotUnderstood:
            _poolings[model] = None
    return _poolings[model]


def pooling_of(model: nn.Module) -> Pooling:
    """Return the pooling of the classifier, in the order of timm's own `forward_head`."""
    if isinstance(model, OwnModel):
        raise _NotUnderstood(UNKNOWN.format(part="its readout"))
    norm, fc_norm = norm_of(getattr(model, "norm", None)), norm_of(getattr(model, "fc_norm", None))
    prefix, kind = int(getattr(model, "num_prefix_tokens", 0)), getattr(model, "global_pool", "") or ""
    include, attention = bool(getattr(model, "pool_include_prefix", False)), getattr(model, "attn_pool", None)
    if isinstance(model, VisionTransformerDistilled):
        class_only = isinstance(model, ClassOnlyReadout)
        return Pooling(*("class", ((0, 1),)) if class_only else ("distilled", ((0, 1), (1, 2))), norm, None)
    if isinstance(model, ClassAndMeanReadout):
        if fc_norm is not None:
            raise _NotUnderstood(LocalizedText("a norm is applied to class token and mean together"))
        return Pooling("class and average", ((0, 1), (prefix, None)), norm, None)
    if attention is not None:
        if not isinstance(attention, AttentionPoolLatent):
            given = type(attention).__name__
            raise _NotUnderstood(
                LocalizedText("its attention pooling is a {kind}, which is not supported", kind=given)
            )
        first = 0 if include or not hasattr(model, "pool_include_prefix") else prefix
        return Pooling("attention", ((first, None),), norm, fc_norm, mean_latent=attention.pool == "avg")
    if kind == "token" or (kind == "" and getattr(model, "cls_token", None) is not None):
        return Pooling("class", ((0, 1),), norm, fc_norm)
    if kind in ("avg", ""):
        return Pooling("average", ((0 if include else prefix, None),), norm, fc_norm)
    raise _NotUnderstood(
        LocalizedText(
            "its classifier pools by {kind}, which is not a weighted sum of tokens", kind=repr(kind)
        )
    )


def head_of(model: nn.Module, pooling: Pooling) -> Head | None:
    """Return the linear classifier, or the cosines of given classes; None for a model without either."""
    head = getattr(model, "head", None)
    if not getattr(model, "num_classes", 0) or isinstance(head, nn.Identity) or head is None:
        return None
    if isinstance(head, CosineHead) and isinstance(head.own, nn.Linear | nn.Identity):
        rows, added = frozen_copy(head.scores.weight), frozen_copy(head.scores.bias)
        projection, bias = (frozen_copy(getattr(head.own, name, None)) for name in ("weight", "bias"))
        weights = rows if projection is None else rows @ projection.to(rows)
        constant = torch.zeros_like(added) if bias is None else rows @ bias.to(rows)
        slots = weights.chunk(2 if pooling.kind == "class and average" else 1, dim=1)
        return Head(slots, constant, length=stages.Length(projection, bias, added))
    heads = [head, model.head_dist] if pooling.kind == "distilled" else [head]
    if not all(isinstance(head, nn.Linear) for head in heads):
        kind = type(head).__name__
        raise _NotUnderstood(LocalizedText("its classifier is a {kind}, not a linear map", kind=kind))
    weights, factor = [frozen_copy(head.weight) for head in heads], 1 / len(heads)
    zeros = torch.zeros(len(weights[0]))
    biases = [zeros if head.bias is None else frozen_copy(head.bias) for head in heads]
    if pooling.kind == "class and average":
        weights = list(weights[0].chunk(2, dim=1))
    return Head(tuple(weights), biases[0] if factor == 1 else torch.stack(biases).mean(dim=0), factor)


def projection_of(block: nn.Module) -> Projection:
    """Return the computation from a block's heads to the residual stream; raise for an unsupported block."""
    kind = type(block).__name__
    if kind == PARALLEL:
        if (projection := block.attn_out_proj) is None:
            raise _NotUnderstood(LocalizedText("its blocks project heads and MLP by one matrix"))
        return Projection(frozen_copy(projection.weight), frozen_copy(projection.bias), scale_of(block.ls))
    if kind not in PRE_NORM + POST_NORM:
        raise _NotUnderstood(LocalizedText(NO_WAY, kind=kind))
    attention = block.attn
    inner, gate = norm_of(getattr(attention, "norm", None)), getattr(attention, "gate", None)
    if inner is not None and gate is not None:
        raise _NotUnderstood(LocalizedText("its attention has a norm and a gate in sequence"))
    post = norm_of(block.norm1) if kind in POST_NORM else None
    scale = scale_of(getattr(block, "ls1", getattr(block, "gamma_1", None)))
    weight, bias = map(frozen_copy, (attention.proj.weight, attention.proj.bias))
    return Projection(weight, bias, scale, inner, post)


def reader_of(block: nn.Module) -> Reader:
    """Return the queries', keys' and values' maps of a block's attention.

    The block's kind must be one that `projection_of` accepts.
    """
    parallel, attention = type(block).__name__ == PARALLEL, getattr(block, "attn", block)
    norm = block.in_norm if parallel else None if type(block).__name__ in POST_NORM else block.norm1
    if parallel or getattr(attention, "qkv", None) is not None:
        joint = block.in_proj if parallel else attention.qkv
        begin = len(joint.weight) - 3 * attention.num_heads * attention.head_dim if parallel else 0
        weights = joint.weight[begin:].chunk(3)
        apart = [getattr(attention, f"{name}_bias", None) for name in "qkv"]
        biases = apart if joint.bias is None else joint.bias[begin:].chunk(3)
    else:
        ones = [getattr(attention, f"{name}_proj") for name in "qkv"]
        weights, biases = [joint.weight for joint in ones], [joint.bias for joint in ones]
    norms = [norm_of(getattr(attention, f"{name}_norm", None)) for name in "qk"]
    both = (map(frozen_copy, weights), map(frozen_copy, biases))
    sides = map(Side, *both, (*norms, None), (True, True, False))
    return Reader(norm_of(norm), dict(zip(("query", "key", "value"), sides, strict=True)))


def attention_pooling_of(model: nn.Module) -> stages.AttentionPooling:
    """Return the weights of attention pooling with a learned query."""
    pool = model.attn_pool
    inner, projected = pool.kv.weight.shape[0] // 2, isinstance(pool.proj, nn.Linear)
    value = pool.kv.weight[inner:], None if pool.kv.bias is None else pool.kv.bias[inner:]
    projection = (pool.proj.weight, pool.proj.bias) if projected else (None, None)
    return stages.AttentionPooling(*map(frozen_copy, (*value, *projection, pool.pos_embed)))


def apply_readout(model: nn.Module, tokens: Tensor, pre_logits: bool = False) -> Tensor:
    """Apply final norm, pooling and head to tokens of one or several images; return their logits.

    `pre_logits` returns the head's input instead. The result is float32 on the tokens' device.
    """
    require_known(model, "its readout")
    weights = next(model.parameters())
    with inference_context(weights.device):
        last = tokens.reshape(-1, *tokens.shape[-2:]).to(weights.device, weights.dtype)
        result = model.forward_head(model.norm(last), pre_logits=pre_logits).to(tokens.device, torch.float32)
        return result.reshape(*tokens.shape[:-2], *result.shape[1:])


def require_same_logits(name: str, read: Tensor, logits: Tensor, dtype: str) -> None:
    """Raise UnsupportedModel unless the logits read from a model's last tokens are the model's.

    The tolerance is 1 % of the largest logit, 10 % in bfloat16.
    """
    found = (read.float() - logits.to(read.device).float()).abs().max().item()
    if found > (0.1 if dtype == "bfloat16" else 0.01) * logits.abs().max().item() + 1e-5:
        raise UnsupportedModel(not_applicable(name, LocalizedText(OTHER_LOGITS, found=f"{found:.2g}")))


def require_repeated(name: str, logits: Tensor, expected: Tensor, dtype: str = "float32") -> None:
    """Raise VitvizError unless a plain pass gives the trace's logits, within 0.1 %, 10 % in bfloat16."""
    found = (logits.cpu().float() - expected.cpu().float()).abs().max().item()
    if found > (0.1 if dtype == "bfloat16" else 1e-3) * expected.abs().max().item() + 1e-5:
        raise VitvizError(NOT_REPEATED.format(name=name, found=found))


def norm_of(module: nn.Module | None) -> Norm | None:
    """Return a norm as a value; None for no norm."""
    if module is None or isinstance(module, nn.Identity):
        return None
    if isinstance(module, nn.LayerNorm):
        return Norm(frozen_copy(module.weight), frozen_copy(module.bias), module.eps)
    if isinstance(module, (RmsNorm, RmsNormFp32, nn.RMSNorm)):
        eps = torch.finfo(torch.float32).eps if module.eps is None else module.eps
        return Norm(frozen_copy(module.weight), None, eps, centred=False)
    raise _NotUnderstood(
        LocalizedText("it normalises by {kind}, which is not known", kind=type(module).__name__)
    )


def scale_of(part: nn.Module | nn.Parameter | None) -> Tensor | None:
    """Return LayerScale's factors, stored as a module or as a bare parameter."""
    if part is None or isinstance(part, nn.Identity):
        return None
    return frozen_copy(part if isinstance(part, Tensor) else part.gamma)


def frozen_copy(weight: Tensor | None) -> Tensor | None:
    """Return a read-only weight in at least float32 on the CPU; copied only if it is not so already."""
    return None if weight is None else at_least_float32(weight.detach().cpu())


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return a tensor in float32, or unchanged if it is float64."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class _NotUnderstood(Exception):
    """The end of a sentence that begins with "not applicable, because"."""
