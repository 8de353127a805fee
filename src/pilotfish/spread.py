"""Many jobs on one event loop, so many at a time: `await spread(tasks, play, at_once=512)`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def spread(jobs: Sequence[T], work: Callable[[T], Awaitable[None]], at_once: int) -> None:
    """Do all jobs, so many at a time and with no more asyncio tasks than that; the first error ends the rest."""
    rest = iter(jobs)

    async def worker() -> None:
        for job in rest:
            await work(job)

    workers: list[asyncio.Task[None]] = []
    try:
        for _ in range(min(at_once, len(jobs))):
            workers.append(asyncio.create_task(worker()))
            await asyncio.sleep(0)  # the first calls are on their way while the last workers are made
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
