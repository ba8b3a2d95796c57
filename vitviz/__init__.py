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
    "checkpoints": "vitviz.engine",
    "film": "vitviz.engine",
    "load": "vitviz.engine",
    "Checkpoint": "vitviz.engine",
    "Inspector": "vitviz.engine",
    "Grid": "vitviz.grid",
    "Trace": "vitviz.trace",
    "attention_distance": "vitviz.analyses",
    "rollout": "vitviz.analyses",
    "token_components": "vitviz.analyses",
    "token_norms": "vitviz.analyses",
    "token_similarity": "vitviz.analyses",
    "embedding_filters": "vitviz.models",
    "evidence": "vitviz.models",
    "figure": "vitviz.prints",
    "lens": "vitviz.models",
    "position_similarity": "vitviz.models",
    "relevance": "vitviz.maps",
    "trial": "vitviz.maps",
    "METHODS": "vitviz.analyses.relevance",
    "sample_image": "vitviz.samples",
    "survey": "vitviz.surveys",
    "keep_freed_memory": "vitviz.heap",
    "overlay": "vitviz.figures.overlay",
    "VitvizError": "vitviz.errors",
    "Without": "vitviz.runs",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from vitviz.analyses import attention_distance, rollout, token_components, token_norms, token_similarity
    from vitviz.analyses.relevance import METHODS
    from vitviz.engine import Checkpoint, Inspector, checkpoints, film, load
    from vitviz.errors import VitvizError
    from vitviz.figures.overlay import overlay
    from vitviz.grid import Grid
    from vitviz.heap import keep_freed_memory
    from vitviz.maps import relevance, trial
    from vitviz.models import embedding_filters, evidence, lens, position_similarity
    from vitviz.prints import figure
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
