"""Throughput of the `openai` engine at a server with long-tailed latencies, against a bare aiohttp loop.

    python bench/frozen_side.py [--calls 5000] [--at-once 512] [--rounds 3] [--scale 1.0]

The server, a process of its own, answers each call after 50 ms to 5 s (log-normal, median 0.4 s, cut at both ends); the
time is drawn from the call's seed, so both sides wait for the same answers in the same order. The bare loop posts ready
bodies and reads the text of the JSON: no retries, no limits, no record. Rounds alternate and each side's figure is the
median of its rounds. The server's own limit is what its latencies and the places alone would take, with a client that
costs nothing. `--scale 0.1` makes all latencies ten times shorter. Ends with `ratio ours_over_bare VALUE`.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from _server import ANSWER, request_size, response_of
from pilotfish.engine.form import request_body
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.team import Messages, Sampling

Ask = Callable[[int], Awaitable[str]]

MESSAGES: Messages = [
    {"role": "system", "content": "You solve problems step by step and put the final answer within \\boxed{}."},
    {"role": "user", "content": "A train leaves at nine and covers 60 miles an hour. How far is it at noon? " * 8},
]
SAMPLING = Sampling(temperature=0.7, max_tokens=512)
SEED = re.compile(rb'"seed":\s*(\d+)')


def latency(seed: int, scale: float) -> float:
    """Seconds that the server takes for a call."""
    drawn = random.Random(seed).lognormvariate(math.log(0.4), 1.0)
    return scale * min(5.0, max(0.05, drawn))


def limit(seeds: range, at_once: int, scale: float) -> float:
    """Calls per second if each place took its next call the moment it was free."""
    places = [0.0] * at_once
    for seed in seeds:
        heapq.heapreplace(places, places[0] + latency(seed, scale))
    return len(seeds) / max(places)


class Tailed(asyncio.Protocol):
    """Answers each request after the time that its seed says."""

    def __init__(self, scale: float, response: bytes) -> None:
        self._scale, self._response, self._held = scale, response, b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (size := request_size(self._held)) and len(self._held) >= size and self._transport:
            request, self._held = self._held[:size], self._held[size:]
            seed = SEED.search(request)
            wait = latency(int(seed[1]) if seed else 0, self._scale)
            asyncio.get_running_loop().call_later(wait, self._transport.write, self._response)


async def serve(scale: float) -> None:
    loop, response = asyncio.get_running_loop(), response_of(ANSWER)
    server = await loop.create_server(lambda: Tailed(scale, response), "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def started(scale: float) -> Iterator[str]:
    command = [sys.executable, __file__, "--serve", "--scale", str(scale)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@asynccontextmanager
async def our_side(base_url: str, at_once: int) -> AsyncIterator[Ask]:
    engine = OpenAIEngine(model="bench", base_url=base_url, concurrency=at_once)

    async def ask(seed: int) -> str:
        return (await engine.complete(MESSAGES, SAMPLING, seed)).text

    yield ask
    await engine.close()


@asynccontextmanager
async def bare_side(base_url: str, at_once: int) -> AsyncIterator[Ask]:
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once), headers=headers) as session:

        async def ask(seed: int) -> str:
            body = request_body("bench", MESSAGES, SAMPLING, seed, {})
            async with session.post(f"{base_url}/chat/completions", data=body) as response:
                return json.loads(await response.read())["choices"][0]["message"]["content"]

        yield ask


async def calls_per_second(ask: Ask, seeds: range, at_once: int) -> tuple[float, float]:
    """Calls per second of wall time, and this process's processor seconds per 1,000 calls."""
    left = iter(seeds)

    async def work() -> None:
        for seed in left:
            assert await ask(seed)

    wall, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return len(seeds) / wall, 1000 * processor / len(seeds)


async def compare(base_url: str, seeds: range, at_once: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    async with our_side(base_url, at_once) as ours, bare_side(base_url, at_once) as bare:
        sides = {"pilotfish": ours, "bare": bare}
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for ask in sides.values():  # opens the connections
            await calls_per_second(ask, range(at_once), at_once)
        for number in range(rounds):
            for name in sorted(sides, reverse=bool(number % 2)):
                measured[name].append(await calls_per_second(sides[name], seeds, at_once))
    return measured


def report(measured: dict[str, list[tuple[float, float]]], most: float) -> float:
    medians = {}
    for name, figures in measured.items():
        walls, processors = zip(*figures, strict=True)
        medians[name] = statistics.median(walls)
        print(
            f"{name:<10} {medians[name]:7.1f} calls/s (rounds {min(walls):.1f} to {max(walls):.1f}), "
            f"{medians[name] / most:.3f} of the limit, {statistics.median(processors):.2f} processor seconds per 1,000"
        )
    return medians["pilotfish"] / medians["bare"]


def main() -> None:
    parser = argparse.ArgumentParser(description="The openai engine against a bare loop, at long-tailed latencies.")
    parser.add_argument("--calls", type=int, default=5000, help="calls per round and side")
    parser.add_argument("--at-once", type=int, default=512, help="calls in flight")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of all latencies")
    parser.add_argument("--serve", action="store_true", help="be the server")
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.scale))
    else:
        bench(range(args.calls), args.at_once, args.rounds, args.scale)


def bench(seeds: range, at_once: int, rounds: int, scale: float) -> None:
    most = limit(seeds, at_once, scale)
    print(f"{'limit':<10} {most:7.1f} calls/s: what the latencies allow with {at_once} at once")
    with started(scale) as base_url:
        ratio = report(asyncio.run(compare(base_url, seeds, at_once, rounds)), most)
    print(f"ratio ours_over_bare {ratio:.3f}")


if __name__ == "__main__":
    main()
