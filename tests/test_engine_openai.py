"""The `openai` engine against a loopback server: every fault, the key, waits, the cap, cancellation, usage."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
import traceback
import tracemalloc
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from jumping import JumpingClock
from mock_server import Call, Failure, Fault, MockServer, in_process
from pilotfish.engine.base import CallFailed, Completion, Refused
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.team import Messages, Sampling
from waiting import until

T = TypeVar("T")
GREEDY = Sampling(temperature=0.0, max_tokens=64)
KEY = "sk-very/secret-0123456789"


def ask(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def run(server_url: str, use: Callable[[OpenAIEngine], Awaitable[T]], **options: Any) -> T:
    """Uses an engine inside one event loop and closes it there."""

    async def main() -> T:
        engine = OpenAIEngine(**{"model": "mock", "base_url": server_url, "clock": JumpingClock(), **options})
        try:
            return await use(engine)
        finally:
            await engine.close()

    return asyncio.run(main())


def complete(server: MockServer, text: str = "2 + 2?", **options: Any) -> Completion:
    return run(server.base_url, lambda engine: engine.complete(ask(text), GREEDY, 7), **options)


def first_call(fault: Fault) -> Callable[[Call], Fault]:
    return lambda call: fault if call.number == 1 else None


def always(fault: Fault) -> Callable[[Call], Fault]:
    return lambda call: fault


def test_sends_messages_and_sampling_as_given() -> None:
    messages: Messages = [
        {"role": "system", "content": "{x} %s <|im_end|>"},
        {"role": "user", "content": "三加四? \ud83d"},
    ]
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=17, stop=("END", "\n\n"))
    with MockServer() as server:
        run(server.base_url, lambda engine: engine.complete(messages, sampling, 5))
        body = server.requests[0].body
    assert body == {
        "model": "mock",
        "messages": messages,
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 17,
        "stop": ["END", "\n\n"],
        "seed": 5,
    }


def test_seed_fits_31_bits_and_differs_for_different_seeds() -> None:
    async def two(engine: OpenAIEngine) -> None:
        await engine.complete(ask("a"), GREEDY, 2**62 + 1)
        await engine.complete(ask("a"), GREEDY, 2**62 + 2)

    with MockServer() as server:
        run(server.base_url, two)
        seeds = [call.body["seed"] for call in server.requests]
    assert seeds[0] != seeds[1]
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_extra_adds_replaces_and_removes_fields() -> None:
    with MockServer() as server:
        complete(server, extra={"seed": None, "top_p": 0.5, "enable_thinking": False}, headers={"X-Team": "blue"})
        call = server.requests[0]
    assert "seed" not in call.body
    assert (call.body["top_p"], call.body["enable_thinking"]) == (0.5, False)
    assert call.headers["X-Team"] == "blue"


def test_key_is_sent_as_bearer_and_query_of_base_url_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_KEY", KEY + "\n")
    with MockServer() as server:
        run(server.base_url + "/?api-version=1", lambda e: e.complete(ask("a"), GREEDY, 1), key_env="MOCK_KEY")
        call = server.requests[0]
    assert call.headers["Authorization"] == f"Bearer {KEY}"
    assert call.path == "/v1/chat/completions?api-version=1"


PASSING = [
    *("408", "409", "425", "429", "500", "502", "503", "529", "204"),
    *("reset", "cut", "empty", "truncated", "array", "text", "html", "html502", "no_choice", "null", "error_inside"),
    Failure(429, "slow down", content_type="text/plain"),
    Failure(body="\udcff".encode("utf-8", "surrogateescape")),
    Failure(body="[" * 100_000),
    Failure(
        body='{"choices": [{"message": {"content": "x"}, "error": {"message": "died"}, "finish_reason": "error"}]}'
    ),
    Failure(body='{"error": {"message": "slow down", "code": "429", "type": "insufficient_quota"}}'),
    Failure(body='{"error": {"message": "odd", "code": "' + "9" * 5000 + '"}}'),
    *(
        Failure(body=json.dumps({"choices": [{"message": {"content": "so the ans"}, "finish_reason": reason}]}))
        for reason in ("error", "abort", "insufficient_system_resource")
    ),
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault if isinstance(fault, str) else fault.body[:40])
def test_a_passing_fault_is_retried_and_recorded(fault: Fault) -> None:
    with MockServer(reply="4", fault=first_call(fault)) as server:
        completion = complete(server)
        assert server.calls == 2
    assert completion.text == "4"
    assert len(completion.attempts) == 1
    assert completion.attempts[0].error
    assert completion.attempts[0].seconds > 0


def test_an_outage_that_outlasts_the_retries_fails_with_every_attempt() -> None:
    with MockServer(fault=always("html502")) as server, pytest.raises(CallFailed) as failed:
        complete(server, retries=3)
    assert server.calls == 4
    assert len(failed.value.attempts) == 4
    assert "4 tries" in str(failed.value)
    assert "Bad gateway The upstream is away" in str(failed.value)
    assert "<" not in str(failed.value)


def test_a_refused_connection_is_an_outage() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        with pytest.raises(CallFailed) as failed:
            run(url, lambda engine: engine.complete(ask("a"), GREEDY, 1), retries=2)
    assert len(failed.value.attempts) == 3


def test_a_hang_ends_at_the_time_limit_and_is_retried() -> None:
    with MockServer(reply="4", fault=first_call("hang")) as server:
        began = time.perf_counter()
        completion = complete(server, timeout_s=0.5, retries=20)
        whole = time.perf_counter() - began
    assert completion.text == "4"
    assert completion.attempts[0].error == "no answer within 0.5 s"
    assert completion.attempts[0].seconds >= 0.49
    assert completion.seconds <= whole - completion.attempts[0].seconds, "of the last try alone"


def test_the_wait_for_a_place_does_not_count_as_time() -> None:
    """Twenty calls take twice the time that one may, and none takes a tenth of it."""

    async def many(engine: OpenAIEngine) -> list[Completion]:
        return await asyncio.gather(*(engine.complete(ask(str(i)), GREEDY, i) for i in range(20)))

    with MockServer(latency=0.15) as server:
        completions = run(server.base_url, many, concurrency=1, timeout_s=1.6)
    assert all(completion.attempts == () for completion in completions)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_what_no_retry_mends_is_refused_at_once_in_the_servers_words(status: int) -> None:
    failure = Failure(status, json.dumps({"error": {"message": "The model `mock` does not exist.", "code": 1}}))
    with (
        MockServer(fault=always(failure)) as server,
        pytest.raises(Refused, match=r"The model `mock` does not exist\."),
    ):
        complete(server)
    assert server.calls == 1


@pytest.mark.parametrize(
    "failure",
    [
        Failure(400, '{"detail": "maximum context length is 4096 tokens, your prompt has 5000"}'),
        Failure(500, '{"error": {"message": "the request exceeds the available context size"}}'),
        Failure(200, '{"error": {"message": "prompt is too long", "code": "context_length_exceeded"}}'),
        Failure(200, '{"error": {"message": "no such key", "code": 401}}'),
    ],
    ids=["400", "500", "inside", "inside401"],
)
def test_overflow_and_a_wrong_key_are_refused_whatever_the_status(failure: Failure) -> None:
    with MockServer(fault=always(failure)) as server, pytest.raises(Refused):
        complete(server)
    assert server.calls == 1


@pytest.mark.parametrize("status", [200, 401])
def test_where_a_key_is_wrong_its_variable_is_named(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_KEY", "sk-1")
    wrong = Failure(status, '{"error": {"message": "bad key", "code": 401}}')
    with MockServer(fault=always(wrong)) as server:
        with pytest.raises(Refused, match=r": bad key; the key is that in \$MOCK_KEY; export the right one$"):
            complete(server, key_env="MOCK_KEY")
        with pytest.raises(Refused, match=r": bad key; key_env names no variable that holds a key; set it$"):
            complete(server)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(404, "404: Not Found", content_type="text/plain"),
        Failure(404, '{"detail": "Not Found"}'),
        Failure(404, '{"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}'),
        Failure(405, "Method Not Allowed", content_type="text/plain"),
    ],
    ids=["text", "detail", "error", "405"],
)
def test_where_nobody_takes_calls_the_address_that_was_asked_is_told(failure: Failure) -> None:
    with MockServer(fault=always(failure)) as server, pytest.raises(Refused) as refused:
        run(f"{server.base_url}?api-key=hidden", lambda engine: engine.complete(ask("a"), GREEDY, 1))
    told = "and a base_url usually ends in /v1, without /chat/completions"
    assert str(refused.value).endswith(f"; asked was {server.base_url}/chat/completions, {told}")


@pytest.mark.parametrize(
    "words",
    [
        '{"error": {"message": "The model `mock` does not exist."}}',
        '{"error": {"message": "mock is not here", "code": "model_not_found"}}',
        '{"error": {"message": "it does not exist", "code": "DeploymentNotFound"}}',
    ],
)
def test_an_unknown_model_is_no_wrong_address(words: str) -> None:
    with MockServer(fault=always(Failure(404, words))) as server, pytest.raises(Refused) as refused:
        complete(server)
    assert "base_url" not in str(refused.value)


def test_a_redirect_is_refused_and_not_followed() -> None:
    moved = Failure(307, headers={"Location": "http://127.0.0.1:9/elsewhere"})
    with MockServer(fault=always(moved)) as server, pytest.raises(Refused, match="elsewhere; set base_url"):
        complete(server)


def test_long_words_of_the_server_are_cut_and_unprintable_ones_removed() -> None:
    failure = Failure(400, json.dumps({"error": {"message": "bad \x1b[31m\n" + "x" * 10_000}}))
    with MockServer(fault=always(failure)) as server, pytest.raises(Refused) as refused:
        complete(server)
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


def echo_of_the_key(status: int) -> Callable[[Call], Fault]:
    """A server that says the key back, quoted too, and once across the place where long words are cut."""
    message = f"{KEY} or sk-very%2Fsecret-0123456789 {'x' * 320} {KEY}"
    return always(Failure(status, json.dumps({"error": {"message": message}})))


@pytest.mark.parametrize("status", [401, 500])
def test_the_key_never_shows(status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("MOCK_KEY", KEY)
    caplog.set_level("DEBUG")
    engines: list[OpenAIEngine] = []

    async def call(engine: OpenAIEngine) -> Completion:
        engines.append(engine)
        return await engine.complete(ask("a"), GREEDY, 1)

    with MockServer(fault=echo_of_the_key(status)) as server, pytest.raises((Refused, CallFailed)) as caught:
        run(server.base_url, call, key_env="MOCK_KEY", retries=1)
    with_locals = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    attempts = repr(getattr(caught.value, "attempts", ()))
    for shown in (with_locals, attempts, repr(engines[0]), repr(vars(engines[0])), caplog.text):
        assert "sk-very" not in shown
    assert "[key]" in str(caught.value)


def test_what_the_server_asks_to_wait_is_waited_and_the_rest_doubles() -> None:
    clock = JumpingClock()
    faults: list[Fault] = ["503", "503", "503", Failure(429, headers={"Retry-After": "7"}), None]
    with MockServer(fault=lambda call: faults[call.number - 1]) as server:
        assert complete(server, clock=clock).text == "ok"
    for waited, least in zip(clock.waits, [0.25, 0.5, 1.0, 7.0], strict=True):
        assert least <= waited <= max(2 * least, 0.5)


def test_the_cap_holds_and_connections_are_reused() -> None:
    async def many(engine: OpenAIEngine) -> None:
        await asyncio.gather(*(engine.complete(ask(str(i)), GREEDY, i) for i in range(60)))

    with MockServer(held=lambda call: server.most_in_flight < 6) as server:
        run(server.base_url, many, concurrency=6)
        assert server.calls == 60
        assert server.most_in_flight == 6
        assert server.connections <= 6


def test_a_waiting_retry_keeps_its_place() -> None:
    async def two(engine: OpenAIEngine) -> list[Completion]:
        return await asyncio.gather(*(engine.complete(ask(name), GREEDY, 1) for name in ("first", "second")))

    with MockServer(fault=first_call("503")) as server:
        run(server.base_url, two, concurrency=1)
        assert [call.body["messages"][0]["content"] for call in server.requests] == ["first", "first", "second"]


def test_a_cancelled_call_closes_its_request_and_frees_its_place() -> None:
    async def cancel(engine: OpenAIEngine) -> str:
        call = asyncio.create_task(engine.complete(ask("never"), GREEDY, 1))
        await until(lambda: server.in_flight == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: server.closed_early == 1)
        return (await engine.complete(ask("next"), GREEDY, 1)).text

    with MockServer(fault=first_call("hang")) as server:
        assert run(server.base_url, cancel, concurrency=1) == "ok"


def test_calls_in_line_do_not_hold_their_bodies() -> None:
    messages = ask("x" * 50_000)

    async def pile_up(engine: OpenAIEngine) -> int:
        tracemalloc.start()
        calls = [asyncio.create_task(engine.complete(messages, GREEDY, i)) for i in range(2000)]
        await until(lambda: server.in_flight == 4)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return held

    with MockServer(fault=always("hang")) as server:
        assert run(server.base_url, pile_up, concurrency=4) < 20e6  # the bodies would be 100 MB


def test_answers_are_the_same_with_a_third_of_calls_failing() -> None:
    draw = random.Random(3)
    faults: list[Fault] = [fault for fault in PASSING if fault != Failure(body="[" * 100_000)]

    def sometimes(call: Call) -> Fault:
        return draw.choice(faults) if draw.random() < 0.3 else None

    def reply(body: dict[str, Any]) -> str:
        return f"{body['messages'][0]['content']} squared"

    async def texts(engine: OpenAIEngine) -> list[str]:
        calls = [engine.complete(ask(str(i)), GREEDY, i) for i in range(200)]
        return [completion.text for completion in await asyncio.gather(*calls)]

    with MockServer(reply=reply) as calm, MockServer(reply=reply, fault=sometimes) as stormy:
        expected = run(calm.base_url, texts, retries=20)
        assert run(stormy.base_url, texts, retries=20) == expected
        assert stormy.calls > 230
        assert stormy.answered == 200


def test_one_engine_serves_several_event_loops() -> None:
    with MockServer() as server:
        engine = OpenAIEngine(model="mock", base_url=server.base_url)

        async def once() -> str:
            text = (await engine.complete(ask("a"), GREEDY, 1)).text
            await engine.close()
            await engine.close()
            return text

        assert [asyncio.run(once()) for _ in range(2)] == ["ok", "ok"]


def test_an_engine_used_in_another_threads_loop_is_closed_from_this_one(caplog: pytest.LogCaptureFixture) -> None:
    with MockServer() as server:
        engine = OpenAIEngine(model="mock", base_url=server.base_url)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        asyncio.run_coroutine_threadsafe(engine.complete(ask("a"), GREEDY, 1), loop).result(60)
        asyncio.run(engine.close())
        asyncio.run_coroutine_threadsafe(until(lambda: server.open_connections() == 0), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
    assert "Unclosed" not in caplog.text


def test_calls_in_flight_and_in_line_are_no_outages_when_the_engine_is_closed() -> None:
    async def close_early(engine: OpenAIEngine) -> list[Completion | BaseException]:
        calls = [asyncio.create_task(engine.complete(ask(str(i)), GREEDY, i)) for i in range(3)]
        await until(lambda: server.in_flight == 1)
        await engine.close()
        return await asyncio.gather(*calls, return_exceptions=True)

    with MockServer(fault=always("hang")) as server:
        outcomes = run(server.base_url, close_early, concurrency=1)
        assert server.calls == 1
    assert [type(outcome) for outcome in outcomes] == [Refused] * 3
    assert {"the engine was closed before this call was answered" in str(outcome) for outcome in outcomes} == {True}


def test_the_environments_proxy_is_used_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    with MockServer(reply="by proxy") as proxy, MockServer(reply="direct") as server:
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        away = run("http://models.invalid/v1", lambda engine: engine.complete(ask("a"), GREEDY, 1))
        assert (away.text, complete(server).text) == ("by proxy", "direct")


def test_the_mock_server_counts_in_its_own_process() -> None:
    with in_process(reply="one two") as base_url:
        assert run(base_url, lambda engine: engine.complete(ask("a b c"), GREEDY, 1)).text == "one two"
        with urllib.request.urlopen(base_url.removesuffix("/v1") + "/stats") as response:
            stats = json.load(response)
    assert (stats["calls"], stats["prompt_tokens"], stats["completion_tokens"]) == (1, 3, 2)
