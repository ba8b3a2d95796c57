"""Intercepted requests. A test of a race holds a request instead of sleeping."""

import re

from playwright.sync_api import Error


class HeldRequests:
    """Requests that match a pattern and are held until they are released."""

    def __init__(self, page, pattern: str, unless: str = "nothing"):
        self._page, self._routes, self._released, self._unless = page, [], False, unless
        page.route(
            re.compile(pattern),
            lambda route: (
                route.continue_()
                if self._released or unless in route.request.url
                else self._routes.append(route)
            ),
        )

    def __len__(self) -> int:
        """Return the number of held requests."""
        return len(self._routes)

    def wait(self) -> None:
        """Wait until a request is held."""
        while not self._routes:
            self._page.wait_for_timeout(20)

    def release(self) -> None:
        self._released = True
        for route in self._routes:
            try:
                route.continue_()
            except Error:  # the page has cancelled the request
                continue
