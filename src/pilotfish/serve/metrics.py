"""What the server counts, for Prometheus. No label holds anything that a client has written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from pilotfish.engine.base import Completion, Engine, Wrapped, accounted
from pilotfish.episode import Team
from pilotfish.serve.places import Places
from pilotfish.team import Member, Usage

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counters of one server.

    Args:
        places: whose playing and waiting are shown.
    """

    def __init__(self, places: Places) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("pilotfish_requests", "Answered requests", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "pilotfish_episode_seconds", "Seconds of an episode", ["model"], buckets=SECONDS, registry=registry
        )
        self.tokens = Counter("pilotfish_tokens", "Tokens, by member", ["member", "kind"], registry=registry)
        self.cost = Counter("pilotfish_cost", "Money, in the recipe's currency", ["member"], registry=registry)
        playing = Gauge("pilotfish_episodes_playing", "Episodes that are played", registry=registry)
        playing.set_function(lambda: places.playing)
        waiting = Gauge("pilotfish_requests_waiting", "Requests in line", registry=registry)
        waiting.set_function(lambda: places.waiting)
        tasks = Gauge("pilotfish_tasks", "Tasks of the event loop", registry=registry)
        tasks.set_function(lambda: len(asyncio.all_tasks()))

    def counted(self, team: Team) -> Team:
        """The team, with the calls of its members counted."""
        seats = team.members.items()
        return replace(team, engines={name: Counted(team.engines[name], member, self.use) for name, member in seats})

    def use(self, member: Member, used: Usage | None) -> None:
        """Count what a call used, where it is known."""
        if used is None:
            return
        self.tokens.labels(member.name, "prompt").inc(used.prompt)
        self.tokens.labels(member.name, "completion").inc(used.completion)
        self.cost.labels(member.name).inc(used.cost(member.price))

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Counted(Wrapped):
    """A member's engine whose calls are counted as they end: they are paid, also where nobody waits for the answer of
    their episode any more.

    Args:
        engine: that is asked.
        member: that asks.
        use: counts what a call used.
    """

    def __init__(self, engine: Engine, member: Member, use: Callable[[Member, Usage | None], None]) -> None:
        super().__init__(engine)
        self._member = member
        self._use = use

    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        return await accounted(ask, partial(self._use, self._member))
