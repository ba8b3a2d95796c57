"""Session states: concurrent actions of one visitor change only their own parts and do not undo each other.

A listener gets the session as it was when the listener began. A listener that waits for a download ends long
after others that began later; a result computed from its initial state would undo theirs. So a result counts
only if no other result was settled in between; otherwise it is computed again from the newest state, which is
fast, because slow parts are cached by then. Two choices of the same thing are not ordered: the one that ends
last wins.

Gradio keeps a page's state too, with a copy of every component (up to a megabyte per page), and so only for
the most recent pages. A page that Gradio has evicted arrives with an empty state; this class finds its state
by Gradio's session name.
"""

import secrets
import threading
from collections.abc import Callable
from typing import Any

from gradio.utils import LRUCache

from vitviz.server.security import request_context
from vitviz.server.security.scheduler import as_one_request

State = dict[str, Any]


class Sessions:
    """Latest state of every visitor; the oldest visitors are evicted first."""

    def __init__(self, most: int = 20_000):
        self._newest: LRUCache[str, State] = LRUCache(most)
        self._lock = threading.Lock()

    def with_session(self, state: State) -> State:
        """Return a new page's state with its session and version 0 added; nothing is stored."""
        return {**state, "session": request_context.page_session() or secrets.token_hex(8), "version": 0}

    def newest(self, state: State) -> State:
        """Return the newest settled state of the visitor's session; `state` if there is no newer one."""
        with self._lock:
            newest = self._newest.get(state.get("session") or request_context.page_session() or "", state)
        return state if state.get("version") == newest.get("version") else newest

    def settled(self, state: State, make: Callable[[State], list]) -> list:
        """Return `make(state)` for the newest state, repeated if another request changed it meanwhile.

        The first value of the result is the new state. Listeners that can be cancelled must not settle: the
        page would not receive the state.
        """
        state = self.newest(state)
        while True:
            with as_one_request():
                page = make(state)
            with self._lock:
                newest = self._newest.get(state.get("session", ""), state)
                if newest.get("version") == state.get("version"):
                    page[0] = {**page[0], "version": state.get("version", 0) + 1}
                    if "session" in page[0]:
                        self._newest[page[0]["session"]] = page[0]
                    return page
            state = newest
