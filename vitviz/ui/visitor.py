"""Whether anybody still waits for an answer: a page may be closed in the middle of a long download."""

from __future__ import annotations

from gradio.context import LocalContext

from vitviz.errors import VitvizError


class Gone(VitvizError):
    """The page that asked has been closed."""


def require_visitor() -> None:
    """Raises Gone once the page that the running listener works for has been closed; nothing outside of a listener."""
    blocks, number = LocalContext.blocks.get(None), LocalContext.event_id.get(None)
    # Gradio gives up what waits in its queue and generators between two steps, but tells no function that runs.
    event = blocks._queue.event_ids_to_events.get(number) if blocks and number else None
    if event is not None and not event.alive:
        raise Gone("The page that asked for this has been closed.")
