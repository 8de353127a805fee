"""Which server gets the next call, and when: the addresses of one deployment, and the line before them.

    place = await endpoints.enter(tokens)                 # waits for the limits, a pause, and a free place
    outcome = None
    try:
        outcome = await ask(place.endpoint.url)
    finally:
        endpoints.leave(place, outcome)

The least loaded server goes first. One that fails `LEFT_OUT_AFTER` times in a row is left out while another one works,
and tried again with a single call after a while. A server that says `Retry-After` gets no call from anybody until then.
The line is first come, first served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from yarl import URL

from pilotfish.engine.address import proxy
from pilotfish.engine.base import Completion
from pilotfish.engine.limits import Clock, RateLimits, Window
from pilotfish.engine.retry import wait_before
from pilotfish.engine.wire import Fault

LEFT_OUT_AFTER = 5
"""Faults in a row after which a server is left out."""
FIRST_REST_S = 2.0
LONGEST_REST_S = 60.0
TOLD_PAUSE_S = 30.0
"""A pause from here on is told: else a run would stand still and not say why."""

_log = logging.getLogger(__name__)


class Endpoint:
    """One server: where it is, what is there, and how it has been doing."""

    def __init__(self, url: URL, most: int) -> None:
        self.url = url
        self.proxy = proxy(url)
        self.window = Window(most)
        self.in_flight = 0
        self.opens_at = 0.0
        """Until then it asked not to be called."""
        self.back_at = 0.0
        """Until then it is left out."""
        self._faults = 0
        self._rests = 0

    def __str__(self) -> str:
        return f"{self.url.host}:{self.url.port}"

    def has_room(self, now: float) -> bool:
        return self.opens_at <= now and self.in_flight < self.window.size

    def left_out(self, now: float) -> bool:
        """Whether it failed too often; when its rest is over, one call at a time finds out."""
        return self._faults >= LEFT_OUT_AFTER and (now < self.back_at or self.in_flight > 0)

    def answered(self) -> None:
        self._faults = self._rests = 0
        self.window.answered()

    def failed(self, fault: Fault, sent_in: int, now: float) -> None:
        """A try did not answer.

        Args:
            fault: what went wrong.
            sent_in: the window's round when the try was sent.
            now: the clock's seconds.
        """
        if fault.overload:
            self.window.overloaded(sent_in)
        if fault.retry_after_s is not None:
            self._pause(now, wait_before(1, fault.retry_after_s))
        if fault.status != 429:  # a server that asks for patience is alive
            self._faults += 1
        # Calls that were in flight when it went out do not make its rest longer.
        if self._faults >= LEFT_OUT_AFTER and now >= self.back_at:
            self.back_at = now + min(LONGEST_REST_S, FIRST_REST_S * 2 ** min(self._rests, 16))
            self._rests += 1

    def _pause(self, now: float, seconds: float) -> None:
        if seconds >= TOLD_PAUSE_S and self.opens_at <= now:
            _log.warning("%s asked for patience: nobody calls it for %.0f s", self, seconds)
        self.opens_at = max(self.opens_at, now + seconds)


@dataclass(frozen=True, slots=True)
class Place:
    """A try's place at a server."""

    endpoint: Endpoint
    round: int
    tokens: int


class Endpoints:
    """The servers of one deployment, for one event loop.

    Args:
        urls: where requests are posted to.
        concurrency: most calls at each server at once.
        limits: requests and tokens a minute, of all servers together.
        clock: tells seconds and waits.
    """

    def __init__(self, urls: Sequence[URL], concurrency: int, limits: RateLimits, clock: Clock) -> None:
        self.all = tuple(Endpoint(url, concurrency) for url in urls)
        self._limits = limits
        self._clock = clock
        self._line = asyncio.Lock()
        self._changed = asyncio.Event()
        self._closed = False

    async def enter(self, tokens: int = 0, avoid: Endpoint | None = None) -> Place:
        """Wait for a place.

        Args:
            tokens: about how many the call will use.
            avoid: the server to go to only when no other has room.
        """
        async with self._line:
            while not self._closed:
                now = self._clock.now()
                wait = self._limits.wait(tokens, now)
                endpoint = None if wait else self._choose(avoid, now)
                if endpoint is not None:
                    self._limits.take(tokens)
                    return self._placed(endpoint, tokens)
                await self._change(wait or self._next_opening(now))
        return self._placed(self.all[0], 0)

    def leave(self, place: Place, outcome: Completion | Fault | None) -> None:
        """Give a place back; `outcome` is None for a call that was cancelled."""
        endpoint = place.endpoint
        endpoint.in_flight -= 1
        if isinstance(outcome, Completion):
            endpoint.answered()
            self._limits.correct(place.tokens, outcome.usage.total)
        elif outcome is not None and not outcome.final:
            endpoint.failed(outcome, place.round, self._clock.now())
            if outcome.overload:
                self._limits.correct(place.tokens, 0)
        self._changed.set()

    def another_works(self, than: Endpoint) -> bool:
        """Whether there is a server besides this one that is neither paused nor left out."""
        now = self._clock.now()
        return any(other is not than and other.opens_at <= now and not other.left_out(now) for other in self.all)

    def close(self) -> None:
        """Let all who wait go on; what they ask then fails."""
        self._closed = True
        self._changed.set()

    def _placed(self, endpoint: Endpoint, tokens: int) -> Place:
        endpoint.in_flight += 1
        return Place(endpoint, endpoint.window.round, tokens)

    def _choose(self, avoid: Endpoint | None, now: float) -> Endpoint | None:
        working = [endpoint for endpoint in self.all if not endpoint.left_out(now)]
        free = [endpoint for endpoint in working or self.all if endpoint.has_room(now)]
        return min(free, key=lambda endpoint: (endpoint is avoid, endpoint.in_flight), default=None)

    def _next_opening(self, now: float) -> float | None:
        """Seconds until a pause or a rest is over."""
        times = [at for endpoint in self.all for at in (endpoint.opens_at, endpoint.back_at) if at > now]
        return min(times) - now if times else None

    async def _change(self, seconds: float | None) -> None:
        """Wait until a place is given back, or that many seconds."""
        self._changed.clear()
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._changed.wait())]
        if seconds is not None:
            waits.append(asyncio.ensure_future(self._clock.sleep(seconds)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
