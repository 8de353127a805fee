"""Requests and tokens a minute, and the window of calls at once: in arithmetic, and at a loopback server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumping import JumpingClock
from mock_server import Call, Failure, Fault, MockServer
from pilotfish.engine.limits import Bucket, RateLimits, Window
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.team import Sampling

GREEDY = Sampling(temperature=0.0, max_tokens=98)


def asked(server: MockServer, calls: int, **options: Any) -> JumpingClock:
    """Makes that many calls at once; the clock then tells how long they took."""
    clock = JumpingClock()

    async def main() -> None:
        engine = OpenAIEngine(**{"model": "mock", "base_url": server.base_url, "clock": clock, **options})
        messages = [[{"role": "user", "content": f"{i:07}"}] for i in range(calls)]
        await asyncio.gather(*(engine.complete(one, GREEDY, 1) for one in messages))
        await engine.close()

    asyncio.run(main())
    return clock


@settings(max_examples=60, deadline=None)
@given(
    per_minute=st.floats(1, 100_000),
    amounts=st.lists(st.floats(0.1, 5_000), min_size=1, max_size=80),
    pauses=st.lists(st.floats(0, 100), min_size=80, max_size=80),
)
def test_no_minute_brings_more_than_the_limit_a_seconds_worth_and_one_amount(
    per_minute: float, amounts: list[float], pauses: list[float]
) -> None:
    bucket, now, taken = Bucket(per_minute), 0.0, []
    for amount, pause in zip(amounts, pauses, strict=False):
        now += pause
        while wait := bucket.wait(amount, now):
            now += wait
        bucket.take(amount)
        taken.append((now, amount))
    for first, (start, _) in enumerate(taken):
        minute = sum(amount for at, amount in taken[first:] if at < start + 60)
        assert minute <= per_minute + max(1.0, per_minute / 60) + max(amounts) + 1e-3


def test_a_bucket_lets_its_rate_through_and_not_less() -> None:
    bucket, now = Bucket(120), 0.0
    for _ in range(121):
        while wait := bucket.wait(1, now):
            now += wait
        bucket.take(1)
    assert now == pytest.approx((121 - 2) / 2)


def test_what_was_taken_too_much_is_given_back_whole() -> None:
    limits = RateLimits(tokens_per_minute=600)
    limits.take(1000)
    assert limits.wait(10, 0.0) == pytest.approx(100.0)
    limits.correct(1000, 40)
    assert limits.wait(10, 0.0) == pytest.approx(4.0)


def test_requests_per_minute_hold_also_for_retries() -> None:
    def fault(call: Call) -> Fault:
        return "500" if call.number <= 5 else None

    with MockServer(fault=fault) as server:
        clock = asked(server, 10, requests_per_minute=60)
        assert server.calls == 15
    assert clock.time >= 14


def test_tokens_per_minute_count_what_the_server_counted() -> None:
    """Ten calls of 1 + 1 tokens; each is taken as 2 + 98 until its answer is there."""
    with MockServer() as server:
        assert asked(server, 10, tokens_per_minute=60, concurrency=1).time == pytest.approx(20, abs=3)
    with MockServer(reply="x" * 392, usage=False) as silent:
        assert asked(silent, 10, tokens_per_minute=60, concurrency=1).time > 800  # estimated: 2 + 99 a call


def test_a_window_halves_once_for_calls_that_were_sent_together() -> None:
    window = Window(64)
    sent_in = window.round
    for _ in range(64):
        window.overloaded(sent_in)
    assert window.size == 32
    window.overloaded(window.round)
    assert window.size == 16


def test_a_window_never_closes_and_comes_back_to_the_most() -> None:
    window = Window(64)
    for _ in range(20):
        window.overloaded(window.round)
    assert window.size == 1
    answers = 0
    while window.size < 64:
        window.answered()
        answers += 1
    assert 500 < answers < 1500  # 32 rounds of 1 to 64 answers
    window.answered()
    assert window.size == 64


@pytest.mark.parametrize("overload", ["429", "503", "529"])
def test_calls_at_once_come_down_to_what_the_server_takes(overload: str) -> None:
    def fault(call: Call) -> Fault:
        return overload if server.in_flight > 4 else None

    with MockServer(latency=0.002, fault=fault) as server:
        asked(server, 200, concurrency=32, retries=40)
        assert server.answered == 200
        refused = server.calls - 200
    assert refused < 150


def test_other_faults_leave_the_window_as_it_is() -> None:
    together = 0

    def held(call: Call) -> bool:
        """After 16 faults nothing is answered until 16 calls are in flight."""
        nonlocal together
        if call.number > 16:
            together = max(together, server.in_flight)
        return call.number > 16 > together

    with MockServer(held=held, fault=lambda call: "500" if call.number <= 16 else None) as server:
        asked(server, 64, concurrency=16, retries=16)
        assert server.answered == 64
        assert server.most_in_flight == together == 16


def test_retry_after_holds_for_all_calls_at_that_server() -> None:
    class Pausing(JumpingClock):
        """The pause is over only after three calls have left their places to others."""

        async def sleep(self, seconds: float) -> None:
            self.waits.append(seconds)
            while answered < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await super().sleep(seconds)

    clock, answered = Pausing(), 0
    came: list[float] = []

    def latency(call: Call) -> float:
        came.append(clock.time)
        return 0.0

    def held(call: Call) -> bool:
        """The first of four is told to wait while the other three are being answered."""
        return server.calls < 4 if call.number == 1 else not clock.waits

    patience = Failure(429, headers={"Retry-After": "7"})

    async def ask(engine: OpenAIEngine, number: int) -> None:
        nonlocal answered
        await engine.complete([{"role": "user", "content": str(number)}], GREEDY, 1)
        answered += 1

    async def main(base_url: str) -> None:
        engine = OpenAIEngine(model="mock", base_url=base_url, concurrency=4, clock=clock)
        await asyncio.gather(*(ask(engine, number) for number in range(10)))
        await engine.close()

    with MockServer(fault=lambda call: patience if call.number == 1 else None, latency=latency, held=held) as server:
        asyncio.run(main(server.base_url))
        assert server.answered == 10
    assert came[:4] == [0.0] * 4
    assert min(came[4:]) >= 7.0
