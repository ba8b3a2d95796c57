"""Ablate every head and MLP individually, in batches, recomputing only the layers from the ablated one on.

The input of a layer does not depend on ablations in that layer or later ones. The tokens that enter every
layer are therefore kept from one pass. For a head of layer l, blocks from l on are run again, with the same
additional arguments (rotary tables, shared bias). Only logits are recorded.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vitviz.analyses.effects import AblationEffects
from vitviz.analyses.target import classes_of, score_of
from vitviz.engine.ablation import mean_outputs, replacement_outputs
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import inference_context, memory_guard
from vitviz.engine.forward import capture, hooks
from vitviz.engine.forward.edits import heads_of, replacement_value
from vitviz.engine.images.preprocess import Prepared
from vitviz.engine.readout_stages import require_same_logits
from vitviz.engine.runner import ForwardRunner
from vitviz.errors import require_whole
from vitviz.traces.runs import Ablation

BATCH = 16  # parts per batch


class _AblatingPass:
    """Listener of a pass through some blocks that ablates part i in image i of the batch; records nothing."""

    def __init__(self, change: Callable[[str, Tensor], Tensor], layer: int):
        self._change, self._at = change, layer

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        """Return the ablated MLP output at the chosen layer; None, no change, at any other hook."""
        return self._change("mlp", output) if moment == "mlp" and layer == self._at else None

    def attend(self, layer: int | None, kernel, *args, **named) -> Tensor:
        """Run an attention call; at the chosen layer, return its head outputs after ablation."""
        output = kernel(*args, **named)
        return self._change("heads", output) if layer == self._at else output


class _UnablatedPass:
    """Inputs of all blocks for an image, and replacements for parts.

    Listens to the unablated pass.
    """

    def __init__(
        self, forward: ForwardRunner, prepared: Prepared, size: tuple[int, int], heads_as: str, mlps=True,
        other=None,
    ):  # fmt: skip
        self.model, self.heads_as = forward.placed.at(size), heads_as
        self.given: list[tuple[tuple, dict[str, Any]]] = []  # a block's positional and named arguments
        self.blocks = capture.transformer_blocks(self.model)
        layers, heads = range(len(self.blocks)), range(heads_of(self.blocks[0]))
        own = [None] if mlps and isinstance(hooks.mlp_of(self.blocks[0]), nn.Module) else []
        self.parts: list[int | None] = [*heads, *own]  # of every layer: heads, then None for the MLP
        everything = Ablation(
            heads=list(itertools.product(layers, heads)), mlps=layers if own else (), heads_as=heads_as,
            other="other" if heads_as == "other" else None,
        )  # fmt: skip
        self.instead = replacement_outputs(forward, size, everything, other, None)
        with capture.listening(self.model, self.blocks, self):
            self.whole = self.model(forward.pixels([prepared]))  # logits without ablation
        own = self.from_block(0, self.given[0][0][0])
        require_same_logits(forward.placed.checkpoint.name, own, self.whole, forward.placed.dtype)

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> None:
        """Keep a copy of each block's input tokens with the block's other arguments."""
        if moment == "input":
            self.given.append(((args[0].detach().clone(), *args[1:]), dict(output)))

    def attend(self, layer: int | None, kernel, *args, **named) -> Tensor:
        """Run an attention call unchanged and return its output."""
        return kernel(*args, **named)

    def without(self, layer: int, parts: list[int | None]) -> Tensor:
        """Return the logits (part, class) with each of these parts of a layer ablated alone."""

        def change(kind: str, output: Tensor) -> Tensor:
            known: Mapping[int, Tensor] = self.instead.heads if kind == "heads" else self.instead.mlps
            mean, changed = known.get(layer), output.clone()
            for image, part in enumerate(parts):
                if (part is None) == (kind == "mlp"):
                    own = mean if mean is None else mean[0] if part is None else mean[0, part]
                    where = image if part is None else (image, part)
                    changed[where] = replacement_value(self.heads_as, output[where], own)
            return changed

        with capture.listening(self.model, self.blocks, _AblatingPass(change, layer)):
            return self.from_block(layer, self.given[layer][0][0].expand(len(parts), -1, -1).contiguous())

    def from_block(self, layer: int, tokens: Tensor) -> Tensor:
        """Return the logits of tokens that enter a block: later blocks, final norm and classifier."""
        for block, (args, named) in list(zip(self.blocks, self.given, strict=True))[layer:]:
            tokens = block(tokens, *args[1:], **named)
        return self.model.forward_head(self.model.norm(tokens))


@contextmanager
def _passing(forward: ForwardRunner) -> Iterator[None]:
    """Run passes in the `with` without gradients; raise OutOfMemory if memory runs out."""
    placed = forward.placed
    name = f"Ablating parts of {placed.checkpoint.name}"
    with inference_context(placed.device, placed.dtype), memory_guard(placed.device, name):
        yield


@in_float32()
def sweep_parts(
    forward: ForwardRunner, prepared: Prepared, size: tuple[int, int], target: Any, heads_as: str, mlps: bool,
    other: Any, batch: int, progress: Callable[[int, int], bool | None] | None,
) -> AblationEffects:  # fmt: skip
    """Return the effects of all heads and MLPs on a target.

    An effect is the target's score minus its score with the part ablated; NaN for parts not reached.
    `progress(done, total)` is called after every batch and ends the sweep by returning False. Raises
    VitvizError for an invalid request, Stopped if cancelled.
    """
    require_whole("batch", batch)
    stands = mean_outputs(forward, size).sentence if heads_as == "mean" else ""
    trace = forward.traces([prepared], size)[0]
    trace.require_logits("there is no prediction whose change could be measured")
    classes = classes_of(trace, target)
    with _passing(forward):
        ready = _UnablatedPass(forward, prepared, size, heads_as, mlps, other)
        whole = score_of(ready.whole.double().cpu(), classes)
        layers, parts = len(ready.blocks), ready.parts
        effects = torch.full((layers, heads_of(ready.blocks[0]) + 1), float("nan"), dtype=torch.float64)
        done, of, firsts = 0, layers * len(parts), range(0, len(parts), batch)
        # the last layers first: they need the fewest blocks
        for layer, first in itertools.product(reversed(range(layers)), firsts):
            some = parts[first : first + batch]
            without = score_of(ready.without(layer, some).double().cpu(), classes)
            effects[layer, [-1 if part is None else part for part in some]] = whole - without
            done += len(some)
            if progress is not None and progress(done, of) is False:
                break
    return AblationEffects(whole.item(), effects[:, :-1].float(), effects[:, -1].float(), heads_as, stands)


@in_float32()
def layer_effects(
    forward: ForwardRunner, prepared: Prepared, size: tuple[int, int], layer: int, heads_as: str
) -> Tensor:
    """Return the drop of every logit when one part of a layer is ablated: (heads and MLP, class).

    The MLP's row is the last, and NaN if there is none.

    Raises IndexError for an unknown layer.
    """
    with _passing(forward):
        ready = _UnablatedPass(forward, prepared, size, heads_as)
        if not 0 <= layer < len(ready.blocks):
            detail = f"{forward.placed.checkpoint.name} has layers 0 to {len(ready.blocks) - 1}"
            raise IndexError(f"Layer {layer} does not exist: {detail}.")
        heads = heads_of(ready.blocks[0])
        effects = ready.whole.new_full((heads + 1, ready.whole.shape[-1]), float("nan"))
        for first in range(0, len(ready.parts), BATCH):
            some = ready.parts[first : first + BATCH]
            rows = [-1 if part is None else part for part in some]
            effects[rows] = ready.whole - ready.without(layer, some)
    return effects.float().cpu()
