"""Oracle for logit attribution: the model run again with one term removed and all linearised statistics
frozen.

Hooks on timm's own modules apply the definition of the attribution. Deviations of norms, gates, the last
layer's MLP, and the weights and MLP of attention pooling keep their values, while a head's contribution from
one source token is removed. The change of the logits must equal that contribution.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode


class _OpenAttention(TorchFunctionMode):
    """Compute every attention call unfused.

    `change` maps call numbers to functions of the weights. `held` maps call numbers to fixed queries and
    keys.
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


class FrozenStatistics:
    """One image through a model whose downstream statistics are those of the original pass."""

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
            module_to_freeze.register_forward_hook(
                lambda module, args, output: self.outputs.update({module: output})
            )
            for module_to_freeze in self.fixed
        ]
        with torch.no_grad(), _OpenAttention() as calls:
            self.logits = model(pixels)[0]
        self.pooling = {number: calls.seen[number] for number in range(self.last + 1, len(calls.seen))}
        for handle in handles:
            handle.remove()

    def logits_without(self, head: int, source: int | None = None) -> torch.Tensor:
        """Return the logits without a head of the last layer, or without the head's contribution from one
        token.
        """

        def zero_weights(weights):
            weights = weights.clone()
            weights[:, head, :, slice(None) if source is None else source] = 0
            return weights

        handles = [norm.register_forward_hook(self._frozen_norm) for norm in self.norms]
        handles += [
            module_to_freeze.register_forward_hook(lambda module, args, output: self.outputs[module])
            for module_to_freeze in self.fixed
        ]
        with torch.no_grad(), _OpenAttention({self.last: zero_weights}, self.pooling):
            logits = self.model(self.pixels)[0]
        for handle in handles:
            handle.remove()
        return logits

    def _frozen_norm(self, module, args, output):
        before, x = self.inputs[module], args[0]
        if isinstance(module, nn.LayerNorm):
            variance = before.var(dim=-1, unbiased=False, keepdim=True)
            x = x - x.mean(dim=-1, keepdim=True)
        else:
            variance = before.pow(2).mean(dim=-1, keepdim=True)
        x = x / torch.sqrt(variance + module.eps) * module.weight
        return x if getattr(module, "bias", None) is None else x + module.bias
