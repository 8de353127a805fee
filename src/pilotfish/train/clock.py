"""Where a step's seconds go.

clock = Clock()
with clock.part("rollout"): ...
clock.lap()      # {"seconds/step": 3.2, "seconds/rollout": 2.0, "seconds/learn": 1.2}
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds of a step, in all and by part."""

    def __init__(self) -> None:
        self._parts: dict[str, float] = {}
        self._since = time.monotonic()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block's seconds under a name."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._parts[name] = self._parts.get(name, 0.0) + time.monotonic() - started

    def lap(self) -> dict[str, float]:
        """Seconds since the last lap. What is in no part is `learn`: the loss, the backward pass and the update."""
        now = time.monotonic()
        whole, parts = now - self._since, self._parts
        self._parts, self._since = {}, now
        named = {f"seconds/{name}": value for name, value in parts.items()}
        return {"seconds/step": whole, **named, "seconds/learn": whole - sum(parts.values())}
