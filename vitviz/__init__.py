"""vitviz shows what happens inside a Vision Transformer.

>>> import vitviz
>>> inspector = vitviz.load("vitviz-tiny")
>>> trace = inspector.trace(vitviz.sample_image("chelsea"))
>>> trace.attention(0).shape[0] == inspector.model.blocks[0].attn.num_heads
True

Importing it loads neither Gradio nor, until something is used, torch and timm.
"""

from typing import TYPE_CHECKING

from vitviz.record.public import __all__, __dir__, __getattr__, __version__

if TYPE_CHECKING:  # isort: off
    from vitviz.analyses import token_components
    from vitviz.analyses.relevance import METHODS
    from vitviz.engine import Checkpoint, Inspector, load
    from vitviz.engine.asking.circuits import edge_effects, paths, score_account, smallest_part, writers
    from vitviz.engine.asking.experiments import experiment
    from vitviz.engine.asking.maps import patch_scores, relevance, trial
    from vitviz.engine.asking.models import embedding_filters, evidence
    from vitviz.engine.asking.text import text
    from vitviz.engine.pictures.retouched import retouched
    from vitviz.errors import AssumedWarning, VitvizError
    from vitviz.notebook import show
    from vitviz.notebook.results import attention_distance, checkpoints, cka, film, lens, overlay
    from vitviz.notebook.results import position_similarity, rollout, token_norms, token_similarity
    from vitviz.prints import animation, figure, video
    from vitviz.record.classes import Classes
    from vitviz.record.grid import Grid
    from vitviz.record.heap import keep_freed_memory
    from vitviz.record.runs import Without
    from vitviz.record.samples import sample_image
    from vitviz.record.trace import Trace
    from vitviz.surveys import heads_in_words, survey
