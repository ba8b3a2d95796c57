"""Endpoints for programs: what the page shows, as JSON, for `gradio_client` and any other HTTP client.

Names, parameters and shapes are a promise (docs/api.md has an example of each); the page's own listeners are
private. Type hints and docstrings become Gradio's documentation, so they are real objects here and not
strings: this folder does without `from __future__ import annotations`. Layers and heads count from 1, as on
the page; patches from 0, row by row.
"""

import logging
from collections.abc import Callable
from functools import wraps

import gradio as gr

from vitviz.errors import VitvizError
from vitviz.ui.serving import derived
from vitviz.ui.serving.endpoints.checkpoints import OfCheckpoints
from vitviz.ui.serving.endpoints.pictures import OfPictures
from vitviz.ui.serving.endpoints.prints import OfPrints
from vitviz.ui.serving.endpoints.trials import OfTrials
from vitviz.ui.serving.limits import one_answer
from vitviz.ui.serving.spoken import UNEXPECTED, without_paths
from vitviz.ui.serving.studio import Studio

log = logging.getLogger("vitviz")


class Endpoints(OfPictures, OfPrints, OfTrials, OfCheckpoints):
    """The endpoints over one studio. An error is a sentence for the caller."""


PUBLIC = (
    "predict",
    "rollout",
    "attention_distance",
    "patch_attention",
    "filters",
    "position_similarity",
    "without",
    "lens",
    "figure",
    "film",
    "trial",
    "checkpoints",
)


def publish(studio: Studio) -> None:
    """Adds the endpoints to the page that is being built."""
    endpoints = Endpoints(studio)
    for name in PUBLIC:
        gr.api(_spoken(getattr(endpoints, name)), api_name=name)
    for view in derived.answering():
        gr.api(_spoken(derived.endpoint(view, endpoints.subject_of, studio.reading)), api_name=view.slug)


def _spoken(fn: Callable) -> Callable:
    """The same, with what it refuses as Gradio's error, whose text reaches the caller; else it is logged."""

    @wraps(fn)
    def answer(*given, **named):
        try:
            with one_answer():
                return fn(*given, **named)
        except VitvizError as error:
            raise gr.Error(without_paths(str(error)), print_exception=False) from error
        except Exception as error:  # a mistake of ours, which would reach the caller as "error: null"
            log.exception("An endpoint failed")
            raise gr.Error(UNEXPECTED, print_exception=False) from error

    return answer
