"""Capture attention inputs by intercepting torch's attention function.

timm's attention calls torch's `scaled_dot_product_attention`. A torch-function mode around the forward pass
intercepts each call's queries, keys, values, mask and scale as the model uses them (after query-key norm,
rotary embedding and relative bias), while the fused kernel runs at full speed. Hooks on each block identify
the current layer and record the residual stream. The mode is local to a thread, and the hooks dispatch to the
calling thread's pass (`hooks`), so passes on one model run concurrently.

Attention that is computed in any other way is not captured. Therefore `check_truth` compares the capture with
the tensor that the model goes on with; if they differ, the model is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitviz.engine.forward import hooks
from vitviz.engine.forward.branches import BRANCHES, branches_of
from vitviz.engine.forward.edits import Edit
from vitviz.engine.forward.own_model import require_known
from vitviz.engine.forward.recording import AttentionInput, Call, Recording, TensorChange, transformer_blocks
from vitviz.errors import UnsupportedModel
from vitviz.traces import cancellation, progress


class Pass:
    """Listener of one forward pass: records the pass and applies changes.

    A pass belongs to the thread that creates it and is used once. `changes` are functions by hook point:
    ("mlp", 3) changes the MLP output of the fourth block, ("heads", 3) the output of its attention call. They
    are called in order before the tensor is recorded. An `edit`'s changes come first, and may drop patches.
    """

    def __init__(
        self, layers: int, check: bool, changes: Mapping[tuple[str, int], Sequence[TensorChange]],
        edit: Edit | None = None,
    ):  # fmt: skip
        self.recording = Recording(calls=[[] for _ in range(layers)], tokens=[], entered=[None] * layers)
        # (layer, tokens) of an attention call whose output has not entered a module yet
        self._awaited: tuple[int, int] | None = None
        self._check, self._changes, self._edit = check, changes, edit

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        """Handle a hook event; a returned value replaces the hooked tensor."""
        if moment in BRANCHES:
            return self.recording.branches and self.recording.branches.record(moment, args, output)
        if moment in ("attn", "mlp"):
            return self._changed(moment, layer, output)
        return getattr(self, f"_{moment}")(layer, args, output)

    def attend(
        self, layer: int | None, kernel, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
        scale=None, **others,
    ) -> Tensor:  # fmt: skip
        """Run and record an attention call; return the possibly changed output."""
        if is_causal or others.get("enable_gqa"):
            raise UnsupportedModel(
                "This model's attention is causal or shares keys between heads; vitviz supports plain"
                " Vision Transformers, whose tokens all attend to each other."
            )
        edit = self._edit
        if edit is not None and layer is not None:
            attn_mask = edit.mask(attn_mask, query)
        call = Call(query, key, value, attn_mask, query.shape[-1] ** -0.5 if scale is None else float(scale))
        output = kernel(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **others)
        if layer is None:
            self.recording.outside.append(call)
            return output
        self.recording.calls[layer].append(call)
        self._awaited = (layer, query.shape[-2]) if self._check else None
        output = self._changed("heads", layer, output)
        if edit is not None and edit.heads.get(layer):
            call.replaced, call.given = edit.heads[layer], output[:, list(edit.heads[layer])]
        return output

    def _patches(self, layer: int, args: tuple, output: Any) -> None:
        """Record the patch embedding as (batch, patch, width), with row and column axes flattened."""
        embedded = output[0] if isinstance(output, tuple) else output
        # Models of dynamic size keep row and column axes until positions are added.
        if embedded.ndim == 4:
            embedded = rearrange(embedded, "batch row col width -> batch (row col) width")
        self.recording.patch_embedding = embedded

    def _positions(self, layer: int, args: tuple, output: Any) -> None:
        """Record the tokens after the position embedding was added."""
        self.recording.position_embedded = args[0]

    def _input(self, layer: int, args: tuple, named: Any) -> tuple | None:
        """Change a block's input tokens and record those of the first block.

        Returns the changed (positional, named) arguments; None leaves them as they are.
        """
        entering = self._changed("input", layer, args[0])
        if layer == 0:
            self.recording.tokens.append(entering)
        if self._edit is None:
            return None if entering is args[0] else ((entering, *args[1:]), named)
        if layer and self._edit.without.at == layer:
            self.recording.tokens[-1] = entering
        return (entering, *args[1:]), self._edit.select_rows(named)

    def _entering(self, layer: int, args: tuple, output: Any) -> None:
        """Record, for the truth check, sampled rows of the first module input after attention."""
        if self._awaited is not None and self._awaited[0] == layer and args:
            self.recording.entered[layer] = AttentionInput.sampled(args[0], *self._awaited)
            self._awaited = None

    def _output(self, layer: int, args: tuple, output: Any) -> Any:
        """Apply the changes at a block's output, record the resulting tokens and return them."""
        result = self._changed("output", layer, output)
        self.recording.tokens.append(result)
        progress.tell(layer + 1, len(self.recording.calls))
        return result

    def _changed(self, moment: str, layer: int, tensor: Any) -> Any:
        """Return the tensor after all changes at a hook point."""
        own = () if self._edit is None else self._edit.changes.get((moment, layer), ())
        for change in (*own, *self._changes.get((moment, layer), ())):
            result = change(tensor)
            tensor = tensor if result is None else result
        return tensor


class AttentionInterceptor(TorchFunctionMode):
    """Torch-function mode that passes fused attention calls, or `every` torch call, to a pass with the layer.

    The pass has `on_event`, as a listener of `hooks`, and `attend(layer, call, …)`, which makes the call;
    `layer` is None outside all layers.
    """

    def __init__(self, owner: Any, every: bool):
        super().__init__()
        self._owner, self._every, self._layer = owner, every, None

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        """Forward a hook event to the pass and keep the current layer; raise Stopped if cancelled."""
        if moment in ("input", "attn"):
            cancellation.check()
        self._layer = None if moment == "output" else self._layer
        result = self._owner.on_event(moment, layer, args, output)
        self._layer = layer if moment == "input" else self._layer
        return result

    def __torch_function__(self, func, types, args=(), kwargs=None):
        # A user's hook may run another pass inside this one; only the innermost pass handles the call.
        ours = self._every or func is F.scaled_dot_product_attention
        if ours and hooks.innermost_listener() is self:
            return self._owner.attend(self._layer, func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def listening(
    model: nn.Module, blocks: list[nn.Module], listener: Any, check=False, every=False
) -> Iterator[None]:
    """Send hook events and attention calls (or `every` torch call) of this thread's passes to `listener`."""
    require_known(model, "how its heads and MLPs write into its tokens")
    seam = AttentionInterceptor(listener, every)
    with hooks.hooks_installed(model, blocks, seam, check), seam:
        yield


@contextmanager
def recording(
    model: nn.Module, *, check: bool = False,
    changes: Mapping[tuple[str, int], Sequence[TensorChange]] | None = None, edit: Edit | None = None,
) -> Iterator[Recording]:  # fmt: skip
    """Record a forward pass of this thread inside the `with`; `check` also records what `check_truth` needs.

    That is the input of the module after each attention call. Hooks and mode are always removed on exit.
    Several threads may record one model at once. Raises UnsupportedModel if the model has no blocks or its
    attention is not plain, and Stopped during the pass if the computation was cancelled
    (`vitviz.traces.cancellation`).
    """
    blocks = transformer_blocks(model)
    listener = Pass(len(blocks), check, changes or {}, edit)
    listener.recording.branches = branches_of(model, blocks)
    with listening(model, blocks, listener, check):
        yield listener.recording
