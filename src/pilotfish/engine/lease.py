"""Waves on a shared device: engines that live on one device take turns, each with everything that waits for it.

With policy and actor on one GPU (or one CPU), all hints first and then all answers is as fast as starting each answer
the moment its hint ends, or faster, because batches stay wide; with the actor elsewhere it is the other way round. So
engines in process are leased, engines behind an API are not: where a member lives decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pilotfish.engine.base import Completion, Engine, Wrapped


class Device:
    """Who is at work on a device: calls of one engine run together, another engine's wait until these have ended."""

    def __init__(self) -> None:
        self._holder: Engine | None = None
        self._holding = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def enter(self, engine: Engine) -> None:
        while self._holding and self._holder is not engine:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._holder = engine
        self._holding += 1

    def leave(self) -> None:
        self._holding -= 1
        if not self._holding:
            self._holder = None  # a device that nobody uses keeps no engine, and so no weights, in memory
            waiting, self._waiting = self._waiting, []
            for turn in waiting:
                if not turn.done():
                    turn.set_result(None)


class Leased(Wrapped):
    """An engine whose calls take turns with those of other engines on its device."""

    def __init__(self, engine: Engine, device: Device) -> None:
        super().__init__(engine)
        self.device = device

    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        await self.device.enter(self.engine)
        try:
            return await ask()
        finally:
            self.device.leave()
