"""A model run again with one thing taken out of its last attention and everything that the ledger holds,
held.

This is the account's definition done to the model itself, by hooks on timm's own modules: deviations of
norms, gates, the last block's MLP and attention pooling's weights and MLP keep their values, while a head's
share of one source token is missing. What the logits lose must be that line.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode


class _Calls(TorchFunctionMode):
    """Every attention call in the open: number -> what becomes of its weights; calls whose q and k are given
    are held.
    """

    def __init__(self, change=None, held=None):
        super().__init__()
        self.change, self.held, self.seen = change or {}, held or {}, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        q, k, v = args[:3]
        number = len(self.seen)
        q, k = self.held.get(number, (q, k))
        mask = kwargs.get("attn_mask")
        scores = q @ k.mT * (kwargs.get("scale") or q.shape[-1] ** -0.5)
        weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
        self.seen.append((q, k))
        return self.change.get(number, lambda weights: weights)(weights) @ v


class Held:
    """One picture through a model whose downstream statistics are those of the untouched pass."""

    def __init__(self, model: nn.Module, pixels: torch.Tensor):
        self.model, self.pixels, block = model, pixels, model.blocks[-1]
        self.last = len(model.blocks) - 1
        after = type(block).__name__ in ("ResPostBlock", "ResPostRelPosBlock", "EvaBlockPostNorm")
        attention, pool = getattr(block, "attn", None), getattr(model, "attn_pool", None)
        norms = [
            getattr(attention, "norm", None),
            block.norm1 if after else None,
            model.norm,
            getattr(model, "fc_norm", None),
        ]
        self.norms = [norm for norm in norms if norm is not None and not isinstance(norm, nn.Identity)]
        self.fixed = [block.mlp_out_proj if hasattr(block, "mlp_out_proj") else block.drop_path2]
        self.fixed += [pool.mlp] if pool is not None and pool.mlp is not None else []
        self.inputs, self.outputs = {}, {}
        handles = [
            norm.register_forward_pre_hook(lambda module, args: self.inputs.update({module: args[0]}))
            for norm in self.norms
        ]
        handles += [
            one.register_forward_hook(lambda module, args, output: self.outputs.update({module: output}))
            for one in self.fixed
        ]
        with torch.no_grad(), _Calls() as calls:
            self.logits = model(pixels)[0]
        self.pooling = {number: calls.seen[number] for number in range(self.last + 1, len(calls.seen))}
        for handle in handles:
            handle.remove()

    def without(self, head: int, source: int | None = None) -> torch.Tensor:
        """The logits without a head of the last block, or without what it reads from one token."""

        def taken(weights):
            weights = weights.clone()
            weights[:, head, :, slice(None) if source is None else source] = 0
            return weights

        handles = [norm.register_forward_hook(self._held_norm) for norm in self.norms]
        handles += [
            one.register_forward_hook(lambda module, args, output: self.outputs[module]) for one in self.fixed
        ]
        with torch.no_grad(), _Calls({self.last: taken}, self.pooling):
            logits = self.model(self.pixels)[0]
        for handle in handles:
            handle.remove()
        return logits

    def _held_norm(self, module, args, output):
        before, x = self.inputs[module], args[0]
        if isinstance(module, nn.LayerNorm):
            variance = before.var(dim=-1, unbiased=False, keepdim=True)
            x = x - x.mean(dim=-1, keepdim=True)
        else:
            variance = before.pow(2).mean(dim=-1, keepdim=True)
        x = x / torch.sqrt(variance + module.eps) * module.weight
        return x if getattr(module, "bias", None) is None else x + module.bias
