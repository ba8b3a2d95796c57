"""Under which names the app is served: a page of another name may not use it through a visitor's browser.

A stranger's site can let its own name lead to 127.0.0.1 (DNS rebinding); what its page then asks comes from
the same origin in the browser's eyes. Only the name in the request tells. Starlette's TrustedHostMiddleware
was tried: it reads `[::1]:7860` as `[`, does not look at the origin, and its refusal does not say what to do.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit


class Hosts:
    """The names that are answered: all, where the app is served to a network and nothing else was said.

    >>> hosts = Hosts("127.0.0.1", ["vit.example.org", "*.lab.example"])
    >>> [hosts.serves(name) for name in ("localhost:7860", "[::1]:7860", "vit.example.org", "evil.example")]
    [True, True, True, False]
    >>> Hosts("0.0.0.0", []).serves("any.example")
    True
    """

    def __init__(self, bound: str, allowed: Iterable[str] = (), share: bool = False):
        self._allowed = {name.lower().strip(".") for name in allowed}
        self._all = "*" in self._allowed or (not self._allowed and not _local(_name(bound) or bound))
        self._allowed.add((_name(bound) or bound).lower())
        if share:
            self._allowed.add("*.gradio.live")  # where Gradio's public links lead

    def serves(self, host: str | None) -> bool:
        """Whether a `Host` header names this app."""
        return self._all or self._known(_name(host))

    def trusts(self, origin: str | None) -> bool:
        """Whether an `Origin` header names this app; none does, for what no script of a page has sent."""
        return self._all or origin is None or self._known(_name(origin.partition("://")[2]))

    def _known(self, name: str) -> bool:
        if _local(name) or name in self._allowed:
            return True
        return any(known.startswith("*.") and name.endswith(known[1:]) for known in self._allowed)


def _name(host: str | None) -> str:
    """The name without port and brackets; '' for what is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".") if host else ""
    except ValueError:
        return ""


def _local(name: str) -> bool:
    """Whether a name leads to this machine whatever a name server says."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
