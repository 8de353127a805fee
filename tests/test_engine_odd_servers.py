"""What a flaky, paid server may say beside an answer or an error: nothing is lost, and what it costs is counted."""

from __future__ import annotations

import asyncio
import json

import pytest

from jumping import JumpingClock
from mock_server import Failure, Fault, MockServer
from pilotfish.engine.base import CallFailed, Completion, Refused
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.team import Usage
from test_engine_openai import GREEDY, always, ask, complete, first_call, run

COUNTED = {"prompt_tokens": 30, "completion_tokens": 20}
PROMPT = Usage(prompt=2, estimated=True)
"""Of "2 + 2?", when nobody counts it."""


def http(body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"Content-Type: application/json", *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, b"", body])


ANSWER = http(b'{"choices": [{"message": {"content": "4"}}]}')


@pytest.mark.parametrize(
    "said",
    [
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/2 200\r\n\r\n",
        http(b"", b"X: " + b"a" * 100_000),
        http(b"abc", b"Content-Length: 9"),
        http(b"no gzip", b"Content-Encoding: gzip"),
        http(b"unknown here", b"Content-Encoding: zstd"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nab",
    ],
    ids=["tls", "http2", "header", "lengths", "gzip", "zstd", "cut chunk", "no chunk"],
)
def test_what_is_no_http_is_an_outage_too(said: bytes) -> None:
    replies = iter([said, ANSWER])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        # What is left unread when the connection is closed resets it, and may take the answer along.
        await reader.readexactly(int(head.lower().split(b"content-length:")[1].split()[0]))
        writer.write(next(replies))
        writer.close()

    async def main() -> Completion:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            engine = OpenAIEngine(model="mock", base_url=url, clock=JumpingClock())
            try:
                return await engine.complete(ask("2 + 2?"), GREEDY, 1)
            finally:
                await engine.close()

    completion = asyncio.run(main())
    assert (completion.text, len(completion.attempts)) == ("4", 1)


@pytest.mark.parametrize("host", ["a..b", "a" * 70 + ".test", "999.1.1.1"])
def test_a_host_that_can_be_none_is_refused_at_once(host: str) -> None:
    with pytest.raises(Refused, match=r"is no host"):
        run(f"http://{host}/v1", lambda engine: engine.complete(ask("a"), GREEDY, 1))


@pytest.mark.parametrize("code", ["content_filter", "data_inspection_failed", "DataInspectionFailed"])
@pytest.mark.parametrize("status", [200, 400])
def test_an_error_about_the_words_of_one_call_is_a_filtered_answer(status: int, code: str) -> None:
    """Else one prompt that a filter dislikes would end the run, and each resumed one."""
    failure = Failure(status, json.dumps({"error": {"message": "inappropriate content", "code": code}}))
    with MockServer(fault=always(failure)) as server:
        completion = complete(server)
        assert server.calls == 1
    assert (completion.text, completion.finish_reason, completion.usage) == ("", "content_filter", PROMPT)


@pytest.mark.parametrize(
    ("fault", "billed"),
    [
        ("hang", PROMPT),
        ("cut", PROMPT),
        ("429", Usage()),
        ("500", Usage()),
        ("error_inside", Usage()),
        (Failure(body=json.dumps({"error": {"message": "late"}, "usage": COUNTED})), Usage(30, 20)),
        (Failure(body=json.dumps({"choices": [], "usage": COUNTED})), Usage(30, 20)),
        (Failure(body=json.dumps({"choices": [{"message": {"content": None}}], "usage": COUNTED})), Usage(30, 20)),
    ],
    ids=str,
)
def test_what_a_try_without_an_answer_may_cost_is_on_the_bill(fault: Fault, billed: Usage) -> None:
    with MockServer(reply="4", fault=first_call(fault)) as server:
        completion = complete(server, timeout_s=2.0)
    assert [attempt.usage for attempt in completion.attempts] == [billed]
    assert completion.usage == Usage(3, 1)
    assert completion.billed == Usage(3, 1) + billed


def test_a_server_that_asks_for_no_wait_at_all_is_not_asked_at_once_for_ever() -> None:
    clock = JumpingClock()
    with MockServer(fault=always(Failure(429, headers={"Retry-After": "0"}))) as server, pytest.raises(CallFailed):
        complete(server, clock=clock, retries=6)
    assert server.calls == 7
    assert clock.time > 0.25 * (1 + 2 + 4 + 8 + 16 + 32)
