"""Event loops for tests that need one."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def run(coroutine: Coroutine) -> Any:
    """Run a coroutine in a separate thread.

    A browser that an earlier test left open keeps its event loop running in the test's own thread.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
