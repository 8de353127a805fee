"""The `scripted` engine: what it says, counts, and how it fails."""

from __future__ import annotations

import asyncio

import pytest

from pilotfish.engine.base import CallFailed, Completion, Refused
from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.team import Messages, Sampling, Usage


def ask(text: str) -> Messages:
    return [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]


def complete(engine: ScriptedEngine, text: str, sampling: Sampling = Sampling(), seed: int = 0) -> Completion:  # noqa: B008
    return asyncio.run(engine.complete(ask(text), sampling, seed))


def test_a_function_sees_messages_sampling_and_seed() -> None:
    engine = ScriptedEngine(lambda messages, sampling, seed: f"{messages[-1]['content']} {sampling.temperature} {seed}")
    assert complete(engine, "hi", Sampling(temperature=0.5), seed=3).text == "hi 0.5 3"


def test_a_function_may_be_async() -> None:
    async def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        await asyncio.sleep(0)
        return "later"

    assert complete(ScriptedEngine(reply), "hi").text == "later"


def test_a_mapping_answers_the_exact_message_or_the_longest_key_in_it() -> None:
    engine = ScriptedEngine({"2 + 2": "4", "2 + 2 + 2": "6", "say 2 + 2": "exact"})
    assert [complete(engine, text).text for text in ("so 2 + 2?", "so 2 + 2 + 2?", "say 2 + 2")] == ["4", "6", "exact"]
    with pytest.raises(Refused, match="no reply for '3 \\+ 3'"):
        complete(engine, "3 + 3")


def test_a_sequence_is_said_in_the_order_of_the_calls_and_then_refuses() -> None:
    delays = iter([0.003, 0.0])
    engine = ScriptedEngine(["one", "two"], latency=lambda messages, sampling, seed: next(delays))

    async def both() -> list[str]:
        return [
            done.text for done in await asyncio.gather(*(engine.complete(ask("x"), Sampling(), i) for i in range(2)))
        ]

    assert asyncio.run(both()) == ["one", "two"]
    with pytest.raises(Refused, match="all 2 replies"):
        complete(engine, "x")


def test_a_bare_string_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="give a function"):
        ScriptedEngine("yes")


def test_tokens_are_words() -> None:
    assert complete(ScriptedEngine(["one  two\nthree"]), "a b c").usage == Usage(prompt=5, completion=3)


def test_stop_and_max_tokens_end_an_answer() -> None:
    engine = ScriptedEngine(lambda messages, sampling, seed: "a b END c STOP")
    stopped = complete(engine, "x", Sampling(stop=("STOP", "END")))
    assert (stopped.text, stopped.finish_reason) == ("a b ", "stop")
    cut = complete(engine, "x", Sampling(max_tokens=2))
    assert (cut.text, cut.finish_reason, cut.usage.completion) == ("a b", "length", 2)
    assert complete(engine, "x", Sampling(max_tokens=5)).finish_reason == "stop"


def test_failures_are_counted_and_take_no_reply_from_the_script() -> None:
    outcomes = iter([True, Refused("wrong key"), None])
    engine = ScriptedEngine(["first"], fail=lambda messages, sampling, seed: next(outcomes))
    with pytest.raises(CallFailed, match="scripted outage"):
        complete(engine, "a")
    with pytest.raises(Refused, match="wrong key"):
        complete(engine, "b")
    assert complete(engine, "c").text == "first"
    assert engine.calls == 3
    assert [messages[-1]["content"] for messages in engine.asked] == ["a", "b", "c"]


def test_calls_are_in_flight_together_and_cancelled_ones_leave() -> None:
    engine = ScriptedEngine(lambda messages, sampling, seed: "ok", latency=60.0)

    async def start_and_cancel(calls: int) -> None:
        tasks = [asyncio.create_task(engine.complete(ask("x"), Sampling(), i)) for i in range(calls)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(start_and_cancel(5))
    asyncio.run(start_and_cancel(3))
    assert engine.most_at_once == 5


def test_version_can_be_set_as_a_policys_is() -> None:
    engine = ScriptedEngine(["x"], identity=None, version=2)
    engine.version = 3
    assert (engine.identity, engine.version) == (None, 3)
