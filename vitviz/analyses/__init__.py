# ruff: noqa: F401, I001 (names for editors; __all__ is computed)
"""Analyses of a Vision Transformer: pure functions of tensors, a Grid or a Trace, with one idea per file.

The names below are imported on first use, so importing this package loads neither torch nor einops: the page
is built before the engine. No analysis knows timm, Gradio or a model.

>>> from vitviz import analyses
>>> from vitviz.traces.grid import Grid
>>> round(analyses.uniform_distance(Grid(14, 14, (16, 16), ("class",)), renormalise=True), 3)
116.492
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vitviz.traces.public import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)

if TYPE_CHECKING:
    from vitviz.analyses.cka import Grams, cka, cka_error, grams_of, hsic
    from vitviz.analyses.components import Basis, Components, Scatter, alignment_rotation, fit_basis
    from vitviz.analyses.components import scores_to_colours
    from vitviz.analyses.components import patch_mean_colours, align_layers, token_components, whiten_scores
    from vitviz.analyses.depth import LargestActivations, TypicalNorms, largest_activations
    from vitviz.analyses.depth import to_grid, to_sequence
    from vitviz.analyses.depth import SkipRatios, patches_at, patch_index, present_patches, skip_ratios
    from vitviz.analyses.depth import token_norms, tokens_at, typical_norms
    from vitviz.analyses.distance import Distances, attention_distance, distances
    from vitviz.analyses.distance import pixel_distances, prefix_mass, uniform_distance
    from vitviz.analyses.effects import AblationEffects, agreement
    from vitviz.analyses.logit_account import Attribution, attribution_of, attribution_of_predictions
    from vitviz.analyses.logit_account import logit_attribution
    from vitviz.analyses.perturbation import mean_and_error, patches_kept, permutation
    from vitviz.analyses.perturbation import piece_sides, shuffled_pieces
    from vitviz.analyses.filters import FilterComponents, component_count, display_scaled
    from vitviz.analyses.filters import filter_responses, principal_filters, raw_filters
    from vitviz.analyses.logit_attribution import LogitTerms, logit_terms
    from vitviz.analyses.logit_lens import lens_kind, lens_patches, lens_probabilities, lens_shares
    from vitviz.analyses.one_token import WorkedRow, attended_by, attends_to, attention_received, worked_row
    from vitviz.analyses.redundancy import HeadEntropy, Redundancy
    from vitviz.analyses.redundancy import attention_entropy, head_entropy, head_redundancy, head_statistics
    from vitviz.analyses.rollout import mean_attention, rollout, rollout_row
    from vitviz.analyses.similarity import patch_cosines, position_similarity, token_cosines, token_similarity
    from vitviz.analyses.sweep import Sweep, sweep
    from vitviz.analyses.readout_stage import ReadoutStage
    from vitviz.analyses.words import HeadsInWords, Spread, heads_in_words, head_features


class _Package(ModuleType):
    """Keeps `rollout`, `sweep` and `cka`, which name a file and a function, as functions of the package.

    Importing a file would set the attribute of its name to the module; names of functions are left unchanged.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
