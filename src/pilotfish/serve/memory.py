"""A journal in memory: what is asked for one request is shared within it, and forgotten with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from pilotfish.episode import Episode, Journal, Turn


class Memory(Journal):
    """Turns of one request; equal calls in flight wait for one another, as in a run's journal."""

    def __init__(self) -> None:
        super().__init__(Path())
        self._turns: dict[str, Turn] = {}

    def _look(self) -> None:
        """There are no files."""

    def find(self, key: str) -> Turn | None:
        return self._turns.get(key)

    def asked_by(self, episode: str) -> list[str]:
        return []

    async def _ask(self, ask: Callable[[], Awaitable[Turn]]) -> Turn:
        turn = await ask()
        self._turns[turn.key] = turn
        return turn

    async def finish(self, episode: Episode) -> None:
        """Nothing is kept of it: whoever played it has it."""
