"""Session states: concurrent actions of one visitor change only their own parts and undo none of the others.

A listener gets the session as it was when it began. One that waits for a download ends long after others that
began later; its answer, made from what it began with, would take theirs back. So an answer counts only if
nothing was answered in between; otherwise it is made once more from the newest state, which is quick, because
what took long is kept by now. It does not order two choices of the same thing: of these the last to end
stays.

Gradio keeps a page's state too, with a copy of every component (up to a megabyte a page), and so only for the
last pages. A page that it has forgotten comes with an empty state, and is known here by Gradio's name for it.
"""

import secrets
import threading
from collections.abc import Callable
from typing import Any

from gradio.utils import LRUCache

from vitviz.server.security import request_context
from vitviz.server.security.scheduler import one_answer

State = dict[str, Any]


class Sessions:
    """Latest state of every visitor; the oldest visitors are evicted first."""

    def __init__(self, most: int = 20_000):
        self._newest: LRUCache[str, State] = LRUCache(most)
        self._lock = threading.Lock()

    def begun(self, state: State) -> State:
        """Return the initial state of a page that has just been opened."""
        return {**state, "session": request_context.page() or secrets.token_hex(8), "version": 0}

    def newest(self, state: State) -> State:
        """Return the state after the visitor's last settled result, or the given state."""
        with self._lock:
            newest = self._newest.get(state.get("session") or request_context.page() or "", state)
        return state if state.get("version") == newest.get("version") else newest

    def settled(self, state: State, make: Callable[[State], list]) -> list:
        """`make(state)`, which begins with the state that it leaves, from one that nobody changed meanwhile.

        A listener that can be cancelled does not settle: nobody would hear of what it leaves.
        """
        state = self.newest(state)
        while True:
            with one_answer():
                page = make(state)
            with self._lock:
                newest = self._newest.get(state.get("session", ""), state)
                if newest.get("version") == state.get("version"):
                    page[0] = {**page[0], "version": state.get("version", 0) + 1}
                    if "session" in page[0]:
                        self._newest[page[0]["session"]] = page[0]
                    return page
            state = newest
