"""A clock that jumps: what waits on it goes on after half a millisecond, and finds that all its time has passed."""

from __future__ import annotations

import asyncio

from pilotfish.engine.limits import Clock


class JumpingClock(Clock):
    """Begins at 0 and notes every wait."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        until = self.time + seconds
        self.waits.append(seconds)
        await asyncio.sleep(0.0005)
        self.time = max(self.time, until)
