"""How much a server is asked: so many requests and tokens a minute, and so many calls at once.

Plain arithmetic on a clock's seconds: whoever waits does so elsewhere (`endpoints.py`).

    limits = RateLimits(requests_per_minute=500, tokens_per_minute=200_000)
    limits.wait(1_200, now)     # seconds until a request of about 1,200 tokens may go
    limits.take(1_200)
    limits.correct(1_200, 950)  # the server counted 950
"""

from __future__ import annotations

import asyncio
import time


class Clock:
    """Seconds, and waiting for them. A test puts one in its place that jumps."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Bucket:
    """So many a minute, evenly: what some seconds bring may go at once, and at least one.

    An amount above that goes when the bucket is full and leaves a debt, so the minute's sum holds for any amount.
    """

    def __init__(self, per_minute: float, seconds: float = 1.0) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, self._rate * seconds)
        self._level = self._most
        self._at = 0.0

    def wait(self, amount: float, now: float) -> float:
        """Seconds until an amount may be taken."""
        self._fill(now)
        missing = min(amount, self._most) - self._level
        return missing / self._rate if missing > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        """Take an amount; a negative one is given back."""
        self._level -= amount

    def _fill(self, now: float) -> None:
        # What was given back may stand above the bucket's rim; only time stops there.
        if self._level < self._most:
            self._level = min(self._most, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now


class RateLimits:
    """Requests and tokens a minute; None is no limit.

    Args:
        requests_per_minute: most tries a minute; retries are requests too.
        tokens_per_minute: most tokens a minute, of prompts and answers together.
    """

    def __init__(self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None) -> None:
        self._requests = Bucket(requests_per_minute) if requests_per_minute else None
        self._tokens = Bucket(tokens_per_minute) if tokens_per_minute else None

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until a request of so many tokens may go."""
        requests = self._requests.wait(1, now) if self._requests else 0.0
        return max(requests, self._tokens.wait(tokens, now) if self._tokens else 0.0)

    def take(self, tokens: int) -> None:
        """One request goes, of about so many tokens."""
        if self._requests:
            self._requests.take(1)
        if self._tokens:
            self._tokens.take(tokens)

    def correct(self, taken: int, used: int) -> None:
        """Put what the server counted in place of what was taken."""
        if self._tokens:
            self._tokens.take(used - taken)


class Window:
    """How many calls may be at a server at once: halved when it is overloaded, grown with every answer.

    It starts at the most and is back there after about thirty rounds of answers: an overload that lasts costs few
    refused tries, and one that has passed is soon forgotten. Calls that were sent before a halving do not halve again:
    they report the same overload.
    """

    GROWTH = 1 / 32
    """Share of the most that is added in a round of answers."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.round = 0
        """How often it was halved; whoever sends a call notes it."""
        self._size = float(most)

    @property
    def size(self) -> int:
        return int(self._size)

    def answered(self) -> None:
        self._size = min(self.most, self._size + max(1.0, self.most * self.GROWTH) / self._size)

    def overloaded(self, sent_in: int) -> None:
        """A call was refused because the server has too much to do.

        Args:
            sent_in: `round` when the call was sent.
        """
        if sent_in == self.round:
            self._size = max(1.0, self._size / 2)
            self.round += 1
