"""Places: so many episodes at once, so many requests in line behind them, and no more.

places = Places(playing=64, waiting=256)
async with places.taken(1): ...            # waits for its turn, first come first served
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pilotfish.serve.errors import ApiError

RETRY_S = 2.0
"""When a client that found the server full may try again."""


class Places:
    """Counts who plays and who waits.

    Args:
        playing: most episodes at once.
        waiting: most requests in line.
    """

    def __init__(self, playing: int, waiting: int) -> None:
        self.most = playing
        self._free = playing
        self._longest = waiting
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def playing(self) -> int:
        return self.most - self._free

    @property
    def waiting(self) -> int:
        return len(self._line)

    @asynccontextmanager
    async def taken(self, places: int) -> AsyncIterator[None]:
        """Hold places for the block.

        Raises:
            ApiError: the line is full, or there are not so many places.
        """
        if places > self.most:
            why = f"{places} episodes at once are asked for, and this server plays {self.most}"
            raise ApiError(400, why, "over_limit")
        await self._enter(places)
        try:
            yield
        finally:
            self._leave(places)

    async def _enter(self, places: int) -> None:
        if not self._line and self._free >= places:
            self._free -= places
            return
        if len(self._line) >= self._longest:
            why = f"{self.playing} episodes are played and {self.waiting} requests wait, which is all this server takes"
            raise ApiError(503, f"{why}; try again", "server_full", retry_after=RETRY_S)
        turn = asyncio.get_running_loop().create_future()
        self._line.append((places, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn came as it left
                self._leave(places)
            else:
                self._call()
            raise

    def _leave(self, places: int) -> None:
        self._free += places
        self._call()

    def _call(self) -> None:
        """Let in who stands first, while there is room; those who have left stand there no more."""
        self._line = deque(one for one in self._line if not one[1].cancelled())
        while self._line and self._line[0][0] <= self._free:
            places, turn = self._line.popleft()
            self._free -= places
            turn.set_result(None)
