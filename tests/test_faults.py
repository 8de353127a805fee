"""Outages between engine and server: what is retried leaves no trace in an episode, and no reward is 0 for an outage.

The short form runs with all tests; `pytest -m faults` also runs the long one: more tasks, more draws, two servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fault_proxy import FAULTS, FaultProxy
from jumping import JumpingClock
from mock_server import Call, Failure, MockServer
from pilotfish.engine.base import Refused
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.episode import Episode, Journal, Scopes, Team, play
from pilotfish.task import Task
from pilotfish.team import Member, Sampling
from pilotfish.topology import find
from pilotfish.verify.verdict import Verdict
from stage import journal

pytestmark = pytest.mark.faults

GREEDY = Sampling(temperature=0.0, max_tokens=64)
TOPOLOGIES = ("hint", "critic", "leader")
SEATS = ("collaborator", "actor", "leader", "agent-1", "agent-2")
PLACES = 2
"""Most calls of each seat in flight: few, so that on a slow machine none of them takes its whole time limit."""


def speak(body: Mapping[str, Any]) -> str:
    """Words that depend on all that was asked; about half of the numbers in them are right."""
    asked = json.dumps(body["messages"])
    number = int(hashlib.sha256(asked.encode()).hexdigest(), 16)
    return f"<think>so</think><answer>{number % 2}</answer> it is {number % 2}"


async def judge(task: Task, answer: str, form: str) -> Verdict:
    """1 for an answer that ends as the gold answer does."""
    return Verdict(float(answer.strip()[-1:] == task.answer), answer)


def team(urls: list[str], **options: Any) -> Team:
    members = {name: Member(name, "mock", sampling=GREEDY) for name in SEATS}
    defaults = {"retries": 30, "timeout_s": 2.0, "concurrency": PLACES, "clock": JumpingClock()}
    engines = {name: OpenAIEngine(model=name, base_url=urls, **{**defaults, **options}) for name in SEATS}
    return Team(members, dict(engines))


def played(urls: list[str], tasks: int, record: Journal, **options: Any) -> list[Episode]:
    """All topologies on all tasks at once."""

    async def main() -> list[Episode]:
        one = team(urls, **options)
        episodes = [
            play(
                Task(f"sum-{n}", f"What is {n} + {n}?", "1"), find(name), one, record, Scopes(f"sum-{n}/0"), judge=judge
            )
            for name in TOPOLOGIES
            for n in range(tasks)
        ]
        try:
            return await asyncio.gather(*episodes)
        finally:
            for engine in one.engines.values():
                await engine.close()

    return asyncio.run(main())


def told(episodes: list[Episode]) -> list[Any]:
    """What an episode says, whatever it took."""
    return [
        (one.id, one.answer, one.verdict.reward, [(placed.position, placed.turn.text) for placed in one.turns])
        for one in episodes
    ]


@contextlib.contextmanager
def stormy(servers: int, **options: Any) -> Iterator[tuple[list[MockServer], list[FaultProxy]]]:
    """Servers, each behind a proxy that lets calls fail."""
    with contextlib.ExitStack() as stack:
        behind = [stack.enter_context(MockServer(reply=speak)) for _ in range(servers)]
        proxies = [stack.enter_context(FaultProxy(server.base_url, **options)) for server in behind]
        yield behind, proxies


def check_episodes_are_those_of_a_calm_day(tasks: int, servers: int, seed: int) -> None:
    with MockServer(reply=speak) as server, journal() as record:
        calm = played([server.base_url], tasks, record)
        calls = server.answered
    with stormy(servers, share=0.3, seed=seed) as (behind, proxies), journal() as record:
        episodes = played([proxy.base_url for proxy in proxies], tasks, record)
        attempts = [attempt for turn in record.turns() for attempt in turn.attempts]
        late = sum("no answer within" in attempt.error for attempt in attempts)
        late -= sum(proxy.faulted["hang"] for proxy in proxies)
        faults = sum(sum(proxy.faulted.values()) for proxy in proxies)
        answered = sum(server.answered for server in behind)
    assert told(episodes) == told(calm)
    assert {one.verdict.reward for one in calm} == {0.0, 1.0}
    assert calls <= answered <= calls + late  # none, unless this machine has too much to do
    assert faults > calls / 4
    assert len(attempts) >= faults  # each fault is on the bill; who met a door that was shut counts too


def test_with_30_percent_of_calls_failing_episodes_at_temperature_0_are_the_same() -> None:
    check_episodes_are_those_of_a_calm_day(tasks=12, servers=1, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("servers", [1, 2])
def test_many_episodes_are_the_same_through_many_faults_on_one_server_and_on_two(seed: int, servers: int) -> None:
    check_episodes_are_those_of_a_calm_day(tasks=60, servers=servers, seed=seed)


@pytest.mark.parametrize("name", FAULTS)
def test_an_outage_is_no_verdict_and_never_a_0(name: str) -> None:
    with MockServer(reply=speak) as server, journal() as record:
        calm = {one.id: one for one in played([server.base_url], 4, record)}
    with stormy(1, share=0.3, seed=3, faults=[name]) as (_, proxies), journal() as record:
        episodes = played([proxies[0].base_url], 4, record, retries=0, timeout_s=0.3)
    lost = [one for one in episodes if one.verdict.reward is None]
    assert lost
    for one in episodes:
        whole = all(placed.turn.answered for placed in one.turns)  # a leader goes on without an agent that is absent
        if one.verdict.reward is not None and whole:
            assert one.verdict.reward == calm[one.id].verdict.reward
        assert whole or one.topology == "leader" or one.verdict.reward is None


def test_when_nothing_answers_all_verdicts_are_missing_and_all_tries_are_counted() -> None:
    with stormy(1, share=1.0, faults=["500", "HTML error page"]) as (behind, proxies), journal() as record:
        episodes = played([proxies[0].base_url], 2, record, retries=2)
        turns = list(record.turns())
        assert [one.verdict.reward for one in episodes] == [None] * len(episodes)
        assert sum(len(turn.attempts) for turn in turns) == proxies[0].calls == 3 * len(turns)
        assert behind[0].calls == 0


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "Incorrect API key provided"),
        (404, "The model `mock` does not exist"),
        (400, "This model's maximum context length is 4096 tokens"),
    ],
)
def test_what_no_retry_mends_stops_at_once_in_the_servers_own_words(status: int, words: str) -> None:
    def refuse(call: Call) -> Failure:
        return Failure(status, json.dumps({"error": {"message": words}}))

    with MockServer(fault=refuse) as server, journal() as record:
        with pytest.raises(Refused) as refused:
            played([server.base_url], 1, record, concurrency=1)
        assert list(record.episodes()) == []
        assert server.calls <= 5  # one for each member that was asked at the same time
    assert f"{status}: {words}" in str(refused.value)


def test_a_key_that_is_withdrawn_in_the_middle_costs_the_calls_in_flight_and_no_words() -> None:
    with MockServer(reply=speak) as server, journal() as record:
        calm = played([server.base_url], 12, record)
        calls = server.calls
    withdrawn = Failure(401, '{"error": {"message": "this key was rotated"}}')
    with MockServer(reply=speak, latency=0.005) as server, journal() as record:
        server.fault = lambda call: withdrawn if call.number > calls // 2 else None
        with pytest.raises(Refused, match="401: this key was rotated"):
            played([server.base_url], 12, record)
        assert {turn.outcome for turn in record.turns()} == {"answered"}
        assert None not in {one.verdict.reward for one in record.episodes()}
        kept, server.fault = server.answered, None
        assert told(played([server.base_url], 12, record)) == told(calm)
        assert calls // 3 < kept
        assert server.answered <= calls + len(SEATS) * PLACES  # so many are in flight


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_was_cut_or_filtered_is_an_answer(reason: str) -> None:
    def cut(body: Mapping[str, Any]) -> dict[str, Any]:
        return {"message": {"content": None}, "finish_reason": reason}

    with MockServer(reply=cut) as server, journal() as record:
        episodes = played([server.base_url], 1, record)
        assert server.calls == len(list(record.turns()))
    assert [one.verdict.reward for one in episodes] == [0.0] * len(episodes)
    assert {placed.turn.completion.finish_reason for one in episodes for placed in one.turns} == {reason}
