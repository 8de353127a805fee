"""Hedging: a second try beside one that takes long, only where it is asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from mock_server import Call, Fault, MockServer
from pilotfish.engine.base import CallFailed, Completion, Refused
from pilotfish.engine.limits import Clock
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.team import Messages, Sampling, Usage
from waiting import until

T = TypeVar("T")
GREEDY = Sampling(temperature=0.0, max_tokens=64)
ASKED: Messages = [{"role": "user", "content": "2 + 2?"}]
BESIDE = "the try beside it answered first"


class ShortClock(Clock):
    """Any wait is short: it ends once that is true which the second try has to come after, and 0.02 s have passed."""

    def __init__(self, ready: Callable[[], bool] = lambda: True) -> None:
        self.ready = ready
        self.waits = 0

    async def sleep(self, seconds: float) -> None:
        self.waits += 1
        await asyncio.sleep(0.02)
        await until(self.ready)


def asked(*servers: MockServer) -> ShortClock:
    """A clock for a second try that begins once a server has the first one."""
    return ShortClock(lambda: any(server.calls for server in servers))


def run(urls: list[str], use: Callable[[OpenAIEngine], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        settings = {"model": "mock", "base_url": urls, "clock": ShortClock(), "hedge_after_s": 0.02, **options}
        engine = OpenAIEngine(**settings)
        try:
            return await use(engine)
        finally:
            await engine.close()

    return asyncio.run(main())


def complete(urls: list[str], **options: Any) -> Completion:
    return run(urls, lambda engine: engine.complete(ASKED, GREEDY, 1), **options)


def first(fault: Fault) -> Callable[[Call], Fault]:
    return lambda call: fault if call.number == 1 else None


def test_a_straggler_gets_a_second_try_and_the_first_answer_wins() -> None:
    async def use(engine: OpenAIEngine) -> Completion:
        said = await engine.complete(ASKED, GREEDY, 1)
        await until(lambda: server.closed_early == 1)
        return said

    with MockServer(reply="4", fault=first("hang")) as server:
        said = run([server.base_url], use, clock=asked(server))
        assert server.calls == 2
        assert server.requests[0].body == server.requests[1].body
    assert (said.text, [attempt.error for attempt in said.attempts]) == ("4", [BESIDE])
    assert said.attempts[0].seconds > said.seconds + 0.019, "it began so much earlier, and ended with the other"


def test_the_try_that_lost_is_on_the_bill_as_if_it_had_used_what_the_answer_did() -> None:
    with MockServer(reply="one two three", fault=first("hang")) as server:
        said = complete([server.base_url], clock=asked(server))
    assert said.usage == Usage(prompt=3, completion=3)
    assert said.attempts[0].usage == Usage(prompt=3, completion=3, estimated=True)
    assert said.billed == Usage(prompt=6, completion=6, estimated=True)


def test_the_second_try_goes_to_another_server() -> None:
    with MockServer(fault=lambda call: "hang") as one, MockServer(reply="4") as other:
        assert complete([one.base_url, other.base_url], clock=asked(one)).text == "4"
        assert (one.calls, other.calls) == (1, 1)


def test_the_first_try_may_still_win() -> None:
    with (
        MockServer(fault=lambda call: "hang") as other,
        MockServer(reply="first", held=lambda call: not other.calls) as one,
    ):
        said = complete([one.base_url, other.base_url])
        assert other.calls == 1
    assert (said.text, [attempt.error for attempt in said.attempts]) == ("first", [BESIDE])


def test_a_quick_answer_gets_no_second_try() -> None:
    with MockServer() as server:
        assert complete([server.base_url], hedge_after_s=100.0, clock=Clock()).attempts == ()
        assert server.calls == 1


def test_nothing_is_hedged_unless_it_is_asked_for() -> None:
    with MockServer(latency=0.1) as server:
        complete([server.base_url], hedge_after_s=None)
        assert server.calls == 1


def test_a_fault_of_one_try_waits_for_the_other() -> None:
    def latency(call: Call) -> float:
        return 0.05 if call.number == 2 else 0.0

    def held(call: Call) -> bool:
        return server.calls < 2

    with MockServer(reply="4", latency=latency, held=held, fault=first("500")) as server:
        said = complete([server.base_url], clock=asked(server))
        assert server.calls == 2
    assert said.text == "4"
    assert ["500" in attempt.error for attempt in said.attempts] == [True]


def test_two_faults_are_two_attempts_of_one_retry() -> None:
    def held(call: Call) -> bool:
        """Until it is one of a pair."""
        return server.calls < call.number + call.number % 2

    with MockServer(held=held, fault=lambda call: "500") as server, pytest.raises(CallFailed) as failed:
        complete([server.base_url], retries=1)
    assert len(failed.value.attempts) == server.calls == 4


def test_what_no_retry_mends_stops_at_once_though_the_other_try_is_out() -> None:
    def fault(call: Call) -> Fault:
        return "hang" if call.number == 1 else "401"

    with MockServer(fault=fault) as server, pytest.raises(Refused, match="401"):
        complete([server.base_url], clock=asked(server))
    assert server.calls == 2


def test_the_wait_for_a_place_is_not_the_servers_time() -> None:
    let_go, clock = threading.Event(), ShortClock(lambda: False)

    async def use(engine: OpenAIEngine) -> None:
        calls = [asyncio.create_task(engine.complete(ASKED, GREEDY, i)) for i in range(8)]
        await until(lambda: server.in_flight == 1 and clock.waits > 0)
        for _ in range(99):  # the others have come as far as they can
            await asyncio.sleep(0)
        assert clock.waits == 1
        let_go.set()
        await asyncio.gather(*calls)

    with MockServer(held=lambda call: not let_go.is_set()) as server:
        run([server.base_url], use, concurrency=1, clock=clock)
        assert server.calls == clock.waits == 8


def test_a_cancelled_call_takes_both_tries_with_it_and_frees_their_places() -> None:
    async def use(engine: OpenAIEngine) -> str:
        call = asyncio.create_task(engine.complete(ASKED, GREEDY, 1))
        await until(lambda: server.in_flight == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: server.in_flight == 0)
        assert server.closed_early == 2
        again = (engine.complete(ASKED, GREEDY, i) for i in range(6))
        return " ".join([said.text for said in await asyncio.gather(*again)])

    with MockServer(fault=lambda call: "hang" if call.number <= 2 else None) as server:
        assert run([server.base_url], use, concurrency=2) == " ".join(["ok"] * 6)


def test_a_straggler_that_was_the_only_one_in_its_place_does_not_lock_the_call_up() -> None:
    """With one place in all, the second try stays in line and the first one's answer counts."""
    clock = ShortClock()
    with MockServer(reply="4", latency=0.06, held=lambda call: not clock.waits) as server:
        said = complete([server.base_url], concurrency=1, clock=clock)
        assert server.calls == 1
    assert (said.text, said.attempts) == ("4", ())
