"""A loopback server that speaks the OpenAI format, for tests and benches: counts, waits, and fails on demand.

In a thread, its state at hand:

    with MockServer(reply="4", latency=0.01, fault=lambda call: "503" if call.number == 1 else None) as server:
        OpenAIEngine(model="mock", base_url=server.base_url)
        server.calls, server.most_in_flight, server.requests[0].body["seed"]

In a process of its own, with the counts at `/stats`:

    python tests/mock_server.py --latency 2 --reply 4     # prints its base URL, ends with its standard input

A reply is a text, or a dict that is merged into the choice (`{"message": {"content": None}, "finish_reason": "stop"}`),
or one with `choices`, `usage` or `error` that is merged into the whole body.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from aiohttp import web

Body = dict[str, Any]
HTML_PAGE = (
    "<html><head><title>Bad gateway</title><style>p {}</style></head><body><p>The upstream is away</p></body></html>"
)


@dataclass(frozen=True)
class Call:
    """One request as it came; `number` starts at 1."""

    number: int
    body: Body
    headers: Mapping[str, str]
    path: str


@dataclass(frozen=True)
class Failure:
    """A response in place of an answer: `status`, `body` and `headers` as given."""

    status: int = 200
    body: str | bytes = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


Fault = Failure | str | None
"""None lets the call pass. Words: a status such as "503", or one of NAMED, or `reset` (the connection is cut before any
answer), `cut` (in the middle of one) and `hang` (nothing is ever sent)."""

NAMED = {
    "empty": Failure(),
    "truncated": Failure(body='{"choices": [{"message": {"content": "fo'),
    "array": Failure(body="[]"),
    "text": Failure(body='{"choices": [{"message": {"content": "not this"}}]}', content_type="text/plain"),
    "html": Failure(body=HTML_PAGE, content_type="text/html"),
    "html502": Failure(502, HTML_PAGE, content_type="text/html"),
    "no_choice": Failure(body='{"choices": []}'),
    "null": Failure(body='{"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}'),
    "error_inside": Failure(body='{"error": {"message": "upstream overloaded", "code": 502}}'),
}
HELD_S = 60.0
"""After so many seconds nothing is held back any more: what it was held for does not come about, and the test fails."""


class MockServer:
    """Serves `/v1/chat/completions` on a free loopback port, in a thread.

    Args:
        reply: what is answered: a text, or a function of the request's body.
        latency: seconds before each answer, or a function of the call.
        held: function of the call: while it is true, the answer is held back. So a test waits for what it is about,
            such as so many calls in flight, whatever that takes.
        fault: function of the call that names what goes wrong, or None.
        usage: whether the server counts tokens (as words) in its answers.
    """

    def __init__(
        self,
        reply: str | Callable[[Body], str | Body] = "ok",
        latency: float | Callable[[Call], float] = 0.0,
        fault: Callable[[Call], Fault] | None = None,
        usage: bool = True,
        held: Callable[[Call], bool] | None = None,
    ) -> None:
        self.reply = reply
        self.latency = latency
        self.held = held
        self.fault = fault
        self.usage = usage
        self.keep_requests = True
        self.requests: list[Call] = []
        self.calls = self.answered = self.closed_early = 0
        self.prompt_tokens = self.completion_tokens = 0
        self.in_flight = self.most_in_flight = 0
        self.connections = 0
        self._open: WeakSet[asyncio.Transport] = WeakSet()
        self.base_url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def __enter__(self) -> MockServer:
        self._thread.start()
        assert self._ready.wait(60), "the server does not start"
        return self

    def __exit__(self, *_: object) -> None:
        if self._stop:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()

    def stats(self) -> dict[str, int]:
        names = "calls answered closed_early prompt_tokens completion_tokens most_in_flight connections"
        return {name: getattr(self, name) for name in names.split()}

    def open_connections(self) -> int:
        """Connections that asked something and are still open."""
        return sum(not transport.is_closing() for transport in list(self._open))

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        runner = web.AppRunner(self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await self._open_door(runner, 0)
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _open_door(self, runner: web.AppRunner, port: int) -> web.TCPSite:
        door = web.TCPSite(runner, "127.0.0.1", port, backlog=2048)
        await door.start()
        return door

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=2**28)
        app.router.add_get("/stats", self._show_stats)
        app.router.add_post("/{path:.*}", self._handle)
        return app

    async def _show_stats(self, _: web.Request) -> web.Response:
        return web.json_response(self.stats())

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        call = Call(self.calls + 1, {}, request.headers.copy(), request.path_qs)
        self.calls += 1
        call.body.update(json.loads(await request.read()))
        if self.keep_requests:
            self.requests.append(call)
        self._count_connection(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._respond(call, request)
        except asyncio.CancelledError:
            self.closed_early += 1
            raise
        finally:
            self.in_flight -= 1

    def _count_connection(self, request: web.Request) -> None:
        if request.transport is not None and request.transport not in self._open:
            self.connections += 1
            self._open.add(request.transport)

    async def _respond(self, call: Call, request: web.Request) -> web.StreamResponse:
        seconds = self.latency(call) if callable(self.latency) else self.latency
        if seconds:
            await asyncio.sleep(seconds)
        await self._let_go(call)
        fault = self.fault(call) if self.fault else None
        if fault is not None:
            return await fail(fault, request)
        self.answered += 1
        answer = self._answer(call.body)
        return await _stream(answer, request) if call.body.get("stream") else web.json_response(answer)

    async def _let_go(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time() + HELD_S
        while self.held is not None and self.held(call):
            await asyncio.sleep(0.001)
            if loop.time() > last:
                self.held = None

    def _answer(self, body: Body) -> Body:
        said = self.reply(body) if callable(self.reply) else self.reply
        message: Body = {"role": "assistant", "content": said if isinstance(said, str) else ""}
        choice: Body = {"index": 0, "message": message, "finish_reason": "stop"}
        answer: Body = {"id": "mock", "object": "chat.completion", "model": body.get("model"), "choices": [choice]}
        if self.usage:
            answer["usage"] = self._count(body, message["content"])
        if isinstance(said, dict):
            whole = said.keys() & {"choices", "usage", "error"}
            (answer if whole else choice).update(said)
        return answer

    def _count(self, body: Body, said: str) -> Body:
        texts = [message["content"] for message in body["messages"]] if "messages" in body else [body["prompt"]]
        prompt = sum(len(str(text).split()) for text in texts)
        completion = len(said.split())
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def _stream(answer: Body, request: web.Request) -> web.StreamResponse:
    """The answer as server-sent events, a word at a time, its usage in an event of its own."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    choice = answer["choices"][0]
    for piece in re.findall(r"\S+\s*|\s+", choice["message"]["content"]):
        await _send(response, {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    await _send(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    await _send(response, {"choices": [], "usage": answer.get("usage")})
    await response.write(b"data: [DONE]\n\n")
    return response


async def _send(response: web.StreamResponse, event: Body) -> None:
    await response.write(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")


async def fail(fault: Failure | str, request: web.Request) -> web.StreamResponse:
    if fault == "hang":
        await asyncio.sleep(3600)
    if fault in ("reset", "cut"):
        return await _break_off(request, started=fault == "cut")
    if isinstance(fault, str):
        error = json.dumps({"error": {"message": f"mock fault {fault}"}})
        fault = NAMED[fault] if fault in NAMED else Failure(int(fault), error)
    body = fault.body if isinstance(fault.body, bytes) else fault.body.encode()
    return web.Response(status=fault.status, body=body, headers={"Content-Type": fault.content_type, **fault.headers})


async def _break_off(request: web.Request, started: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    if started:
        await response.prepare(request)
        await response.write(b'{"choices": [')
    assert request.transport
    request.transport.abort()
    return response


@contextmanager
def in_process(latency: float = 0.0, reply: str = "ok") -> Iterator[str]:
    """Runs the server in a process of its own and gives its base URL; the counts are at `/stats` beside `/v1`."""
    command = [sys.executable, __file__, "--latency", str(latency), "--reply", reply]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description="A loopback server in the OpenAI chat format.")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--reply", default="ok", help="the text of every answer")
    args = parser.parse_args()
    server = MockServer(reply=args.reply, latency=args.latency)
    server.keep_requests = False
    with server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
