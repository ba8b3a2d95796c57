"""Show what happens inside a Vision Transformer.

>>> import vitviz
>>> inspector = vitviz.load("vitviz-tiny")
>>> trace = inspector.trace(vitviz.sample_image("chelsea"))
>>> trace.attention(0).shape[0] == inspector.model.blocks[0].attn.num_heads
True

Importing vitviz does not load Gradio. torch and timm are loaded on first use.
"""

from typing import TYPE_CHECKING

from vitviz.traces.public import __all__, __dir__, __getattr__, __version__

if TYPE_CHECKING:  # isort: off
    from vitviz.analyses import token_components
    from vitviz.analyses.saliency import METHODS
    from vitviz.diagnostics.check import check
    from vitviz.engine import Checkpoint, Inspector, load
    from vitviz.engine.studies.circuits import (
        edge_ablation,
        attribution_paths,
        attention_score_attribution,
        sufficient_edges,
        upstream_contributions,
    )
    from vitviz.engine.studies.perturbation import perturbation
    from vitviz.engine.studies.saliency import patch_scores, saliency, faithfulness
    from vitviz.engine.studies.attribution import embedding_filters, logit_attribution
    from vitviz.engine.studies.text import text
    from vitviz.engine.images.editing import edit_image
    from vitviz.errors import AssumedWarning, VitvizError
    from vitviz.notebook import show
    from vitviz.notebook.results import (
        attention_distance,
        checkpoints,
        cka,
        training_snapshots,
        logit_lens,
        overlay,
    )
    from vitviz.notebook.results import (
        filter_responses,
        position_similarity,
        rollout,
        token_norms,
        token_similarity,
    )
    from vitviz.export import animation, figure, video
    from vitviz.traces.classes import Classes
    from vitviz.traces.grid import Grid
    from vitviz.traces.allocator import keep_freed_memory
    from vitviz.traces.runs import Ablation
    from vitviz.traces.samples import sample_image
    from vitviz.traces.trace import Trace
    from vitviz.surveys import heads_in_words, survey
