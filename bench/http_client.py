"""Calls per second of the `openai` engine against the openai package, side by side against one loopback server.

    python bench/http_client.py [--calls 2000] [--connections 100] [--rounds 5]

The server is a process of its own and answers at once, so that the client is what is measured. Both sides ask the same
messages with the same sampling from `connections` tasks, over keep-alive connections that a warm-up has opened; the
rounds alternate, and the figure of each side is the median of its rounds. Ends with the engine's calls per second over
the package's: `ratio http_calls_per_second VALUE`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import openai

try:
    import httpx2 as httpx  # what the openai package speaks HTTP with since version 3
except ImportError:
    import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from _server import started
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.team import Messages, Sampling

Ask = Callable[[int], Awaitable[str | None]]

MESSAGES: Messages = [
    {"role": "system", "content": "You solve problems step by step and put the final answer within \\boxed{}."},
    {"role": "user", "content": "A train leaves at nine and covers 60 miles an hour. How far is it at noon? " * 8},
]
SAMPLING = Sampling(temperature=0.7, top_p=0.95, max_tokens=512)


@asynccontextmanager
async def pilotfish_side(base_url: str, connections: int) -> AsyncIterator[Ask]:
    engine = OpenAIEngine(model="bench", base_url=base_url, concurrency=connections)

    async def ask(seed: int) -> str | None:
        return (await engine.complete(MESSAGES, SAMPLING, seed)).text

    yield ask
    await engine.close()


@asynccontextmanager
async def openai_side(base_url: str, connections: int) -> AsyncIterator[Ask]:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    client = openai.AsyncOpenAI(
        base_url=base_url, api_key="bench", http_client=openai.DefaultAsyncHttpxClient(limits=limits)
    )

    async def ask(seed: int) -> str | None:
        reply = await client.chat.completions.create(
            model="bench",
            messages=MESSAGES,  # type: ignore[arg-type]
            temperature=SAMPLING.temperature,
            top_p=SAMPLING.top_p,
            max_tokens=SAMPLING.max_tokens,
            seed=seed,
        )
        return reply.choices[0].message.content

    yield ask
    await client.close()


async def calls_per_second(ask: Ask, calls: int, connections: int) -> tuple[float, float]:
    """Calls per second of wall time, and of this process's processor time."""
    seeds = iter(range(calls))

    async def work() -> None:
        for seed in seeds:
            assert await ask(seed)

    wall, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(connections)))
    return calls / (time.perf_counter() - wall), calls / (time.process_time() - processor)


async def compare(base_url: str, calls: int, connections: int, rounds: int) -> float:
    async with pilotfish_side(base_url, connections) as ours, openai_side(base_url, connections) as theirs:
        sides = {"pilotfish": ours, "openai": theirs}
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for ask in sides.values():
            await calls_per_second(ask, 2 * connections, connections)
        for _ in range(rounds):
            for name, ask in sides.items():
                measured[name].append(await calls_per_second(ask, calls, connections))
    return report(measured)


def report(measured: dict[str, list[tuple[float, float]]]) -> float:
    medians = {}
    for name, figures in measured.items():
        walls, processors = zip(*figures, strict=True)
        medians[name] = statistics.median(walls)
        print(
            f"{name:<10} {medians[name]:8.0f} calls/s (rounds {min(walls):.0f} to {max(walls):.0f}), "
            f"{statistics.median(processors):8.0f} calls per processor second"
        )
    return medians["pilotfish"] / medians["openai"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Calls per second: the openai engine against the openai package.")
    parser.add_argument("--calls", type=int, default=2000, help="calls per round and side")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with started() as base_url:
        ratio = asyncio.run(compare(base_url, args.calls, args.connections, args.rounds))
    print(f"ratio http_calls_per_second {ratio:.2f}")


if __name__ == "__main__":
    main()
