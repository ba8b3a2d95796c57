"""Saliency methods: functions of `Passes` that return a `SaliencyMap` of the patches' relevance.

`METHODS` holds all of them by name, the controls last. Each docstring gives the formula, the source and what
the map does not show; those of `dense.MAPS` are in their module. LRP's rules with halved gradients (AttnLRP)
are omitted: patents are claimed on them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from vitviz.analyses.protocol import TITLES
from vitviz.analyses.saliency import attention_maps, dense, direct, linear
from vitviz.analyses.saliency.dense import likeliest_class as likeliest_class
from vitviz.analyses.saliency.linear import check_steps as check_steps
from vitviz.analyses.saliency.linear import integrated_gradients as integrated_gradients
from vitviz.analyses.saliency.passes import Passes, SaliencyMap
from vitviz.errors import VitvizError, quoted

_MAPS = {**vars(attention_maps), **vars(direct), **vars(linear), **dense.MAPS}
METHODS: Mapping[str, Callable[..., SaliencyMap]] = MappingProxyType({name: _MAPS[name] for name in TITLES})
CONTROLS = ("random", "centre")
DEPTHS = ("frozen", "input_gradient")  # methods that can be read at several places
STEPPED = "integrated_gradients"


def saliency_map(
    passes: Passes, method: str = "frozen", at: str | int | None = None, steps: int | None = None
) -> SaliencyMap:
    """Return the saliency map of one method, by name.

    Args:
        passes: passes of one image and target.
        method: a name in `METHODS`.
        at: for `DEPTHS`: 'tokens', 'pixels' or a layer; None for the method's default.
        steps: for `STEPPED`: number of nodes of its path; None doubles them until the map is stable.

    Raises:
        VitvizError: the method or the place does not exist, or a setting belongs to another method.
        UnsupportedModel: the method does not apply; the message gives the reason.
    """
    function = METHODS.get(method) if isinstance(method, str) else None
    if function is None:
        raise VitvizError(f"There is no method {quoted(method)}; expected one of {', '.join(METHODS)}.")
    if steps is not None and method != STEPPED:
        raise VitvizError(f"steps={quoted(steps)} is not valid for {method}; only {STEPPED} uses it.")
    if method in DEPTHS:
        return function(passes) if at is None else function(passes, at)
    if at not in (None, "tokens"):
        expected = f"expected it for {' or '.join(DEPTHS)}"
        raise VitvizError(
            f"at={quoted(at)} is not valid for {method}, which reads one place only; {expected}."
        )
    return function(passes, steps) if method == STEPPED else function(passes)
