"""What the server counts, for Prometheus. No label holds anything that a client has written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

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

    def use(self, used: Mapping[str, Usage], members: Mapping[str, Member]) -> None:
        """Count what an answer used."""
        for name, usage in used.items():
            self.tokens.labels(name, "prompt").inc(usage.prompt)
            self.tokens.labels(name, "completion").inc(usage.completion)
            self.cost.labels(name).inc(usage.cost(members[name].price))

    def page(self) -> bytes:
        return generate_latest(self.registry)
