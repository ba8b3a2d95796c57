"""vitviz shows what happens inside a Vision Transformer.

>>> import vitviz
>>> inspector = vitviz.load("vitviz-tiny")
>>> trace = inspector.trace(vitviz.sample_image("chelsea"))
>>> trace.attention(0).shape[0] == inspector.model.blocks[0].attn.num_heads
True

Importing it loads neither Gradio nor, until something is used, torch and timm.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOMES = {
    "checkpoints": "vitviz.notebook.results",
    "film": "vitviz.notebook.results",
    "load": "vitviz.engine",
    "Checkpoint": "vitviz.engine",
    "Inspector": "vitviz.engine",
    "Grid": "vitviz.grid",
    "Trace": "vitviz.trace",
    "attention_distance": "vitviz.notebook.results",
    "rollout": "vitviz.notebook.results",
    "token_components": "vitviz.analyses",
    "token_norms": "vitviz.notebook.results",
    "token_similarity": "vitviz.notebook.results",
    "embedding_filters": "vitviz.models",
    "evidence": "vitviz.models",
    "experiment": "vitviz.experiments",
    "lens": "vitviz.notebook.results",
    "position_similarity": "vitviz.notebook.results",
    "animation": "vitviz.prints",
    "figure": "vitviz.prints",
    "relevance": "vitviz.maps",
    "trial": "vitviz.maps",
    "METHODS": "vitviz.analyses.relevance",
    "sample_image": "vitviz.samples",
    "cka": "vitviz.notebook.results",
    "survey": "vitviz.surveys",
    "keep_freed_memory": "vitviz.heap",
    "AssumedWarning": "vitviz.errors",
    "overlay": "vitviz.notebook.results",
    "show": "vitviz.notebook",
    "VitvizError": "vitviz.errors",
    "Without": "vitviz.runs",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from vitviz.analyses import token_components
    from vitviz.analyses.relevance import METHODS
    from vitviz.engine import Checkpoint, Inspector, load
    from vitviz.errors import AssumedWarning, VitvizError
    from vitviz.experiments import experiment
    from vitviz.grid import Grid
    from vitviz.heap import keep_freed_memory
    from vitviz.maps import relevance, trial
    from vitviz.models import embedding_filters, evidence
    from vitviz.notebook import show
    from vitviz.notebook.results import (
        attention_distance,
        checkpoints,
        cka,
        film,
        lens,
        overlay,
        position_similarity,
        rollout,
        token_norms,
        token_similarity,
    )
    from vitviz.prints import animation, figure
    from vitviz.runs import Without
    from vitviz.samples import sample_image
    from vitviz.surveys import survey
    from vitviz.trace import Trace


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"vitviz has no {name!r}; it has {', '.join(__all__)}.")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
