# ruff: noqa: F401 (names for editors; __all__ is computed)
"""What can be said about a Vision Transformer: pure functions of tensors, a Grid or a Trace, one idea a file.

The names below are found when they are first used, so that importing this package loads neither torch nor
einops: the page is built before the engine is. Nothing here knows timm, Gradio or a model.

>>> from vitviz import analyses
>>> from vitviz.grid import Grid
>>> round(analyses.uniform_distance(Grid(14, 14, (16, 16), ("class",)), renormalise=True), 3)
116.492
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Filters": "filters",
    "display_scaled": "filters",
    "principal_filters": "filters",
    "raw_filters": "filters",
    "position_similarity": "position",
    "Distances": "distance",
    "attention_distance": "distance",
    "distances": "distance",
    "pixel_distances": "distance",
    "prefix_mass": "distance",
    "uniform_distance": "distance",
    "mean_attention": "rollout",
    "rollout": "rollout",
    "rollout_row": "rollout",
    "Sweep": "sweep",
    "sweep": "sweep",
    "attended_by": "one_token",
    "attends_to": "one_token",
    "attention_entropy": "entropy",
    "SkipRatios": "branches",
    "skip_ratios": "branches",
    "Grams": "cka",
    "cka": "cka",
    "cka_error": "cka",
    "grams_of": "cka",
    "hsic": "cka",
    "Effects": "effects",
    "agreement": "effects",
    "Evidence": "evidence",
    "account_of": "evidence",
    "evidence": "evidence",
    "Ledger": "ledger",
    "ledger_of": "ledger",
    "lens_kind": "lens",
    "lens_patches": "lens",
    "lens_probabilities": "lens",
    "lens_shares": "lens",
    "Tail": "tail",
    "Basis": "components",
    "Components": "components",
    "basis_of": "components",
    "token_components": "components",
    "aligned": "component_colours",
    "colours_of": "component_colours",
    "own_colours": "component_colours",
    "steady": "component_colours",
    "whitened": "component_colours",
    "over_grid": "depth",
    "over_sequence": "depth",
    "patches_at": "depth",
    "place": "depth",
    "present": "depth",
    "tokens_at": "depth",
    "Largest": "norms",
    "Usual": "norms",
    "largest_activations": "norms",
    "token_norms": "norms",
    "usual_norms": "norms",
    "mean_and_error": "occlusion",
    "patches_kept": "occlusion",
    "permutation": "occlusion",
    "piece_sides": "occlusion",
    "shuffled_pieces": "occlusion",
    "attention_received": "received",
    "HeadEntropy": "redundancy",
    "Redundancy": "redundancy",
    "head_entropy": "redundancy",
    "head_redundancy": "redundancy",
    "patch_cosines": "similarity",
    "token_cosines": "similarity",
    "token_similarity": "similarity",
    "WorkedRow": "worked",
    "worked_row": "worked",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from vitviz.analyses.branches import SkipRatios, skip_ratios
    from vitviz.analyses.cka import Grams, cka, cka_error, grams_of, hsic
    from vitviz.analyses.component_colours import aligned, colours_of, own_colours, steady, whitened
    from vitviz.analyses.components import Basis, Components, basis_of, token_components
    from vitviz.analyses.depth import over_grid, over_sequence, patches_at, place, present, tokens_at
    from vitviz.analyses.distance import (
        Distances,
        attention_distance,
        distances,
        pixel_distances,
        prefix_mass,
        uniform_distance,
    )
    from vitviz.analyses.effects import Effects, agreement
    from vitviz.analyses.entropy import attention_entropy
    from vitviz.analyses.evidence import Evidence, account_of, evidence
    from vitviz.analyses.filters import Filters, display_scaled, principal_filters, raw_filters
    from vitviz.analyses.ledger import Ledger, ledger_of
    from vitviz.analyses.lens import lens_kind, lens_patches, lens_probabilities, lens_shares
    from vitviz.analyses.norms import Largest, Usual, largest_activations, token_norms, usual_norms
    from vitviz.analyses.occlusion import (
        mean_and_error,
        patches_kept,
        permutation,
        piece_sides,
        shuffled_pieces,
    )
    from vitviz.analyses.one_token import attended_by, attends_to
    from vitviz.analyses.position import position_similarity
    from vitviz.analyses.received import attention_received
    from vitviz.analyses.redundancy import HeadEntropy, Redundancy, head_entropy, head_redundancy
    from vitviz.analyses.rollout import mean_attention, rollout, rollout_row
    from vitviz.analyses.similarity import patch_cosines, token_cosines, token_similarity
    from vitviz.analyses.sweep import Sweep, sweep
    from vitviz.analyses.tail import Tail
    from vitviz.analyses.worked import WorkedRow, worked_row


class _Package(ModuleType):
    """`rollout`, `sweep` and `cka` name a file and a function; as attributes of the package, the functions.

    Importing a file sets the package's attribute of that name to the file; that is passed over where a
    function has it.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"vitviz.analyses has no {name!r}; it has {', '.join(__all__)}.")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
