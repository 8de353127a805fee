"""A server that costs next to nothing: one canned chat completion for every request, over keep-alive HTTP/1.1.

    python bench/_server.py [LATENCY_S [ANSWER]]   # prints its base URL, serves until its standard input closes

It reads no JSON and speaks just enough HTTP for a client that sends a `Content-Length`, so that a bench against it
measures the client. `started()` runs it in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ANSWER = "The sum is 4, since two and two make four. " * 8


def response_of(answer: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "bench",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 180, "completion_tokens": 96, "total_tokens": 276},
        }
    ).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class _Canned(asyncio.Protocol):
    """Counts off whole requests and answers each, `latency` seconds after it came."""

    def __init__(self, latency: float, response: bytes) -> None:
        self._latency = latency
        self._response = response
        self._held = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (size := request_size(self._held)) and len(self._held) >= size and self._transport:
            self._held = self._held[size:]
            if self._latency:
                asyncio.get_running_loop().call_later(self._latency, self._transport.write, self._response)
            else:
                self._transport.write(self._response)


def request_size(held: bytes) -> int:
    """Bytes of the first request, headers and body; 0 while its headers are not all there."""
    end = held.find(b"\r\n\r\n")
    if end < 0:
        return 0
    at = held[:end].lower().find(b"\r\ncontent-length:")
    return end + 4 + (int(held[at + 17 : end].split(b"\r\n", 1)[0]) if at >= 0 else 0)


@contextmanager
def started(latency: float = 0.0, answer: str = ANSWER) -> Iterator[str]:
    """Runs the server in its own process and gives its base URL."""
    command = [sys.executable, __file__, str(latency), answer]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


async def _serve(latency: float, answer: str) -> None:
    loop, response = asyncio.get_running_loop(), response_of(answer)
    server = await loop.create_server(lambda: _Canned(latency, response), "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0, sys.argv[2] if len(sys.argv) > 2 else ANSWER))
