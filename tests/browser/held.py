"""Requests held back on their way, so that a race is looked at and not slept through."""

import re

from playwright.sync_api import Error


class Held:
    """Requests of a kind that are kept on their way until they are let go."""

    def __init__(self, page, pattern: str, unless: str = "nothing"):
        self._page, self._routes, self._free, self._unless = page, [], False, unless
        page.route(
            re.compile(pattern),
            lambda route: (
                route.continue_() if self._free or unless in route.request.url else self._routes.append(route)
            ),
        )

    def __len__(self) -> int:
        """How many have come."""
        return len(self._routes)

    def wait(self) -> None:
        """Until one is on its way."""
        while not self._routes:
            self._page.wait_for_timeout(20)

    def let_go(self) -> None:
        self._free = True
        for route in self._routes:
            try:
                route.continue_()
            except Error:  # the page has given it up by now
                continue
