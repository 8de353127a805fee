"""The tries of one call: again after a fault that a retry can mend, and a second beside one that takes long.

Hedging is that second try, at another server where there is one: the first answer wins. The other try is cancelled,
which closes its connection, and is recorded like any try that did not answer. A server may bill it, and nobody will say
what: it is put on the bill as if it had used what the answer did. This cuts a long tail of latencies and costs a few
calls twice, so it is done only where it is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.engine.base import Attempt, CallFailed, Completion, Refused, TooLong
from pilotfish.engine.endpoints import Endpoint, Endpoints
from pilotfish.engine.limits import Clock
from pilotfish.engine.retry import wait_before
from pilotfish.engine.wire import Fault
from pilotfish.team import Usage


@dataclass(frozen=True, slots=True)
class Try:
    """One request and what came of it."""

    endpoint: Endpoint
    seconds: float
    outcome: Completion | Fault

    @property
    def attempt(self) -> Attempt:
        if isinstance(self.outcome, Fault):
            return Attempt(self.seconds, self.outcome.why, self.outcome.usage)
        return Attempt(self.seconds, "")


class Sent:
    """Where and when a try was sent; `wait` returns once it was."""

    def __init__(self, clock: Clock) -> None:
        self.endpoint: Endpoint | None = None
        self._clock = clock
        self._at = 0.0
        self._event = asyncio.Event()

    def to(self, endpoint: Endpoint) -> None:
        self.endpoint, self._at = endpoint, self._clock.now()
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    def lost(self, used: Usage) -> list[Try]:
        """The try as it is recorded when the other one ended first; nothing if it was still in line.

        Args:
            used: what the other one did; nobody will say what this one has used, and it was asked the same.
        """
        if self.endpoint is None:
            return []
        fault = Fault("the try beside it answered first", usage=replace(used, estimated=bool(used.total)))
        return [Try(self.endpoint, self._clock.now() - self._at, fault)]


Ask = Callable[[Endpoint | None, Sent], Awaitable[Try]]
"""Makes one try: the server to avoid, and what to tell when it is sent."""


async def retried(
    make: Callable[[Endpoint | None], Awaitable[list[Try]]],
    endpoints: Endpoints,
    clock: Clock,
    *,
    model: str,
    retries: int,
    told: Callable[[], bool],
) -> Completion:
    """Try until there is an answer.

    Args:
        make: makes a try, or a hedged one; the last of what it returns counts. It takes the server to avoid.
        endpoints: the servers.
        clock: waits before a retry.
        model: who is asked, for errors.
        retries: tries after the first.
        told: whether some of an answer was given on already: another try would say it twice.

    Raises:
        CallFailed: no answer after all retries.
        Refused: what no retry mends, in the server's own words.
    """
    attempts: list[Attempt] = []
    failed, avoid = 0, None
    while True:
        *lost, last = await make(avoid)
        attempts += [one.attempt for one in lost]
        outcome, avoid = last.outcome, last.endpoint
        if isinstance(outcome, Completion):
            return replace(outcome, seconds=last.seconds, attempts=tuple(attempts))
        if outcome.final:
            raise (TooLong if outcome.too_long else Refused)(f"{model} at {avoid}: {outcome.why}")
        attempts.append(last.attempt)
        failed += 1
        if failed > retries or told():
            why = f"{model} at {avoid}: no answer in {len(attempts)} tries; the last: {outcome.why}"
            raise CallFailed(why, tuple(attempts))
        # What a server asked for is waited for in line, with all others, and may be too short, as a 0 is.
        # Another server can be tried at once.
        wait = wait_before(failed)
        if wait > (outcome.retry_after_s or 0.0) and not (failed == 1 and endpoints.another_works(avoid)):
            await clock.sleep(wait)


async def hedged(ask: Ask, after_s: float, clock: Clock) -> list[Try]:
    """One try, and a second beside it if the first has not ended after that many seconds.

    Args:
        ask: makes a try.
        after_s: seconds from when the first was sent; its wait for a place does not count.
        clock: waits.

    Returns:
        The tries that were sent; the last one counts.
    """
    sent = [Sent(clock), Sent(clock)]
    tries: list[asyncio.Future[Any]] = [asyncio.ensure_future(ask(None, sent[0]))]
    late: asyncio.Future[Any] = asyncio.ensure_future(_late(sent[0], after_s, clock))
    try:
        await asyncio.wait([tries[0], late], return_when=asyncio.FIRST_COMPLETED)
        if tries[0].done():
            return [tries[0].result()]
        tries.append(asyncio.ensure_future(ask(sent[0].endpoint, sent[1])))
        return await _first(tries, sent)
    finally:
        await _cancelled([late, *tries])


async def _first(tries: list[asyncio.Future[Any]], sent: list[Sent]) -> list[Try]:
    """Wait for an answer, or for what cannot be mended, or for both to fail."""
    ended: dict[int, Try] = {}
    while len(ended) < len(tries):
        await asyncio.wait([one for one in tries if not one.done()], return_when=asyncio.FIRST_COMPLETED)
        for number, one in enumerate(tries):
            if number in ended or not one.done():
                continue
            outcome = one.result().outcome
            ended[number] = one.result()
            if isinstance(outcome, Completion) or outcome.final:
                lost = [
                    other for at, place in enumerate(sent) if at not in ended for other in place.lost(outcome.usage)
                ]
                return [*lost, *ended.values()]
    return list(ended.values())


async def _late(sent: Sent, after_s: float, clock: Clock) -> None:
    await sent.wait()
    await clock.sleep(after_s)


async def _cancelled(tasks: list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
