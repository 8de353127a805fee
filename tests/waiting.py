"""Waits in tests for what another thread does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(happens: Callable[[], bool]) -> None:
    """Lets other threads go on until they have done what is waited for."""
    while not happens():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
