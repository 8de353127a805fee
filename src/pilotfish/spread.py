"""Many jobs on one event loop, so many at a time: `episodes = await spread(tasks, play, at_once=512)`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def spread(jobs: Sequence[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """What comes of each job, in order: so many at a time, with no more asyncio tasks than that. The first error ends
    the rest."""
    done: list[Any] = [None] * len(jobs)
    rest = enumerate(jobs)

    async def worker() -> None:
        for at, job in rest:
            done[at] = await work(job)

    workers: list[asyncio.Task[None]] = []
    try:
        for _ in range(min(at_once, len(jobs))):
            workers.append(asyncio.create_task(worker()))
            await asyncio.sleep(0)  # the first calls are on their way while the last workers are made
        await asyncio.gather(*workers)
        return done
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
