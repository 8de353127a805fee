"""Several servers of one deployment: who gets a call, who is left out, who is tried again."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from yarl import URL

from jumping import JumpingClock
from mock_server import Call, Failure, MockServer
from pilotfish.engine import wire
from pilotfish.engine.base import CallFailed, Completion, Refused
from pilotfish.engine.endpoints import FIRST_REST_S, LEFT_OUT_AFTER, LONGEST_REST_S, Endpoint
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.team import Sampling

T = TypeVar("T")
GREEDY = Sampling(temperature=0.0, max_tokens=64)


def run(urls: list[str], use: Callable[[OpenAIEngine], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        engine = OpenAIEngine(**{"model": "mock", "base_url": urls, "clock": JumpingClock(), **options})
        try:
            return await use(engine)
        finally:
            await engine.close()

    return asyncio.run(main())


async def one_by_one(engine: OpenAIEngine, calls: int) -> list[Completion]:
    return [await engine.complete([{"role": "user", "content": str(i)}], GREEDY, i) for i in range(calls)]


async def at_once(engine: OpenAIEngine, calls: int) -> list[Completion]:
    asked = (engine.complete([{"role": "user", "content": str(i)}], GREEDY, i) for i in range(calls))
    return await asyncio.gather(*asked)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where connections are refused; nobody else can take it meanwhile."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{closed.getsockname()[1]}/v1"


def test_the_least_loaded_server_gets_the_next_call() -> None:
    def held(call: Call) -> bool:
        return one.calls + other.calls < 6

    with MockServer(held=held) as one, MockServer(held=held) as other:
        run([one.base_url, other.base_url], lambda engine: at_once(engine, 6), concurrency=5)
        assert (one.calls, other.calls) == (3, 3)


def test_a_slow_server_keeps_its_places_and_the_quick_one_gets_the_rest() -> None:
    """One is so slow that it has its first five calls until the other one has answered all the rest."""
    with (
        MockServer(held=lambda call: quick.answered < 55) as slow,
        MockServer(held=lambda call: quick.most_in_flight < 5) as quick,
    ):
        run([slow.base_url, quick.base_url], lambda engine: at_once(engine, 60), concurrency=5)
        assert (slow.answered, quick.answered) == (5, 55)
        assert slow.most_in_flight == quick.most_in_flight == 5


def test_the_answer_does_not_depend_on_the_server() -> None:
    def reply(body: dict[str, Any]) -> str:
        return f"{body['messages'][0]['content']} at {body['seed']}"

    with MockServer(reply=reply) as one, MockServer(reply=reply) as other:
        alone = run([one.base_url], lambda engine: at_once(engine, 20))
        together = run([one.base_url, other.base_url], lambda engine: at_once(engine, 20))
        assert other.answered
    assert [said.text for said in together] == [said.text for said in alone]


@pytest.mark.parametrize("fault", ["refused", "reset", "500"])
def test_a_dead_server_costs_a_few_tries_and_no_wait_and_is_then_left_out(fault: str, nobody: str) -> None:
    clock = JumpingClock()
    with MockServer(fault=lambda call: fault) as broken, MockServer() as works:
        dead = nobody if fault == "refused" else broken.base_url
        completions = run([dead, works.base_url], lambda engine: one_by_one(engine, 40), clock=clock)
        assert works.answered == 40
    assert sum(len(said.attempts) for said in completions) == LEFT_OUT_AFTER
    assert clock.waits == []


def test_a_server_that_was_left_out_is_tried_with_one_call_and_taken_back_when_it_answers() -> None:
    broken = True
    clock = JumpingClock()

    async def use(engine: OpenAIEngine) -> list[int]:
        nonlocal broken
        tried = []
        await one_by_one(engine, 10)
        for rest in (FIRST_REST_S, FIRST_REST_S, 2 * FIRST_REST_S):
            before = one.calls
            clock.time += rest
            await at_once(engine, 12)
            tried.append(one.calls - before)
        broken = False
        clock.time += LONGEST_REST_S
        await at_once(engine, 12)
        await at_once(engine, 12)
        return tried

    with MockServer(fault=lambda call: "500" if broken else None) as one, MockServer() as other:
        tried = run([one.base_url, other.base_url], use, clock=clock)
        assert one.answered > 5
    assert tried == [1, 0, 1]  # rests double


def test_calls_that_were_in_flight_when_a_server_went_out_do_not_make_its_rest_longer() -> None:
    clock = JumpingClock()

    async def use(engine: OpenAIEngine) -> int:
        await at_once(engine, 20)
        before = one.calls
        clock.time += FIRST_REST_S
        await at_once(engine, 12)
        return one.calls - before

    with MockServer(fault=lambda call: "500") as one, MockServer() as other:
        assert run([one.base_url, other.base_url], use, clock=clock, concurrency=20) == 1
        assert one.calls == 10 + 1
    assert clock.waits == []


def test_a_fault_now_and_then_leaves_nobody_out() -> None:
    with MockServer(fault=lambda call: "500" if call.number % 3 == 0 else None) as one, MockServer() as other:
        run([one.base_url, other.base_url], lambda engine: one_by_one(engine, 60))
        assert one.answered >= 40


def test_when_all_are_dead_all_are_tried_and_the_call_fails_as_an_outage() -> None:
    async def use(engine: OpenAIEngine) -> None:
        for _ in range(3):
            with pytest.raises(CallFailed) as failed:
                await one_by_one(engine, 1)
            assert len(failed.value.attempts) == 7

    with MockServer(fault=lambda call: "500") as one, MockServer(fault=lambda call: "500") as other:
        run([one.base_url, other.base_url], use)
        assert one.calls + other.calls == 21
        assert min(one.calls, other.calls) > 5


def test_while_one_server_asks_for_patience_the_other_one_answers() -> None:
    clock = JumpingClock()
    patience = Failure(429, headers={"Retry-After": "600"})
    with MockServer(fault=lambda call: patience) as one, MockServer() as other:
        run([one.base_url, other.base_url], lambda engine: one_by_one(engine, 20), clock=clock)
        assert (one.calls, other.answered) == (1, 20)
    assert clock.time == 0.0


def test_a_long_pause_is_told_once_for_all_calls_that_met_it(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint(URL("http://127.0.0.1:8000/v1"), 8)
    for seconds in (20.0, 600.0, 601.0):
        endpoint.failed(wire.Fault("slow down", retry_after_s=seconds, status=429), 0, now=1000.0 * (seconds > 20))
    (said,) = caplog.messages
    assert re.fullmatch(r"127\.0\.0\.1:8000 asked for patience: nobody calls it for 6\d\d s", said)


def test_an_error_of_the_set_up_names_its_server() -> None:
    wrong = Failure(404, '{"error": {"message": "The model `mock` does not exist"}}')
    with MockServer(latency=0.05) as one, MockServer(fault=lambda call: wrong) as other:
        port = other.base_url.split(":")[-1].removesuffix("/v1")
        with pytest.raises(Refused, match=f":{port}: 404: The model `mock` does not exist"):
            run([one.base_url, other.base_url], lambda engine: at_once(engine, 4))


def test_a_cancelled_wait_for_a_paused_server_leaves_the_line_to_others() -> None:
    class Patient(JumpingClock):
        async def sleep(self, seconds: float) -> None:
            waits.set()
            await over.wait()
            await super().sleep(seconds)

    waits, over = asyncio.Event(), asyncio.Event()

    async def use(engine: OpenAIEngine) -> str:
        first = asyncio.create_task(one_by_one(engine, 1))
        second = asyncio.create_task(one_by_one(engine, 1))
        await waits.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        over.set()
        return (await second)[0].text

    patience = Failure(429, headers={"Retry-After": "60"})
    with MockServer(fault=lambda call: patience if call.number == 1 else None) as server:
        assert run([server.base_url], use, clock=Patient(), concurrency=1) == "ok"
