"""What the server adds to a team's own time, and whether it holds under load.

    python bench/serve.py [--clients 50] [--seconds 10] [--rounds 3]
    python bench/serve.py --soak 10 [--clients 200]

Overhead: a hint team behind `pilotfish serve`, its members on a loopback server that answers in 200 ms, each in a
process of its own. 50 clients ask back to back: that rate is the saturation. Then they ask at 60 % of it, evenly
spread, and in the rounds between they call the two members directly with the same prompts at the same pace. Prints the
medians, their difference and their ratio.

Soak: 200 clients ask without a pause, plainly and streamed, some of them leave; the members stand behind a proxy that
lets 30 % of the calls fail. Each request must be answered or refused with a reason. Prints a line a minute and
ends with 1 if one was not, or if the server is left with more memory, tasks or sockets than after the first minute.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from _crowd import soak
from _server import started
from fault_proxy import FaultProxy
from mock_server import MockServer
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.recipe import parse_recipe
from pilotfish.run import Run
from pilotfish.task import Task
from pilotfish.team import Sampling
from pilotfish.topology.hint import PROMPTS

LATENCY_S = 0.2
SHARE = 0.6
"""Of the saturation, at which the overhead is measured."""
Ask = Callable[[int], Awaitable[None]]


@contextmanager
def served(folder: Path, upstream: str, **member: Any) -> Iterator[str]:
    """`pilotfish serve` on a hint team, in a process of its own; gives its address."""
    seat = {"engine": "openai", "base_url": upstream, "concurrency": 512, **member}
    limits = {"port": 0, "requests_per_minute": 1e6, "instruction": ""}
    team = {"collaborator": {**seat, "model": "advises"}, "actor": {**seat, "model": "answers"}}
    Run(folder, parse_recipe({"team": team, "topology": "hint", "serve": limits}))
    command = [
        sys.executable,
        "-c",
        "import sys; from pilotfish.cli import main; sys.exit(main())",
        "serve",
        str(folder),
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield _address(folder / "log", process)
        finally:
            process.terminate()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    while process.poll() is None:
        if found := re.search(r"http://[\d.]+:\d+", log.read_text()):
            return found[0]
        time.sleep(0.1)
    raise SystemExit(log.read_text())


# Overhead


def through_server(session: aiohttp.ClientSession, url: str) -> Ask:
    async def ask(number: int) -> None:
        body = {"messages": [{"role": "user", "content": f"What is {number} + {number}?"}]}
        async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
            said = await answer.json()
            assert answer.status == 200, said

    return ask


def directly(engine: OpenAIEngine) -> Ask:
    """The calls that the team makes, with nothing around them."""

    async def ask(number: int) -> None:
        task = Task(str(number), f"What is {number} + {number}?", "")
        advice = await engine.complete(PROMPTS.advise(task), Sampling(temperature=0), number)
        await engine.complete(PROMPTS.solve(task, hint=advice.text), Sampling(temperature=0), number)

    return ask


async def saturation(ask: Ask, clients: int, seconds: float) -> float:
    """Requests a second of clients that ask back to back."""
    numbers, until = itertools.count(), time.perf_counter() + seconds

    async def client() -> int:
        done = 0
        while time.perf_counter() < until:
            await ask(next(numbers))
            done += 1
        return done

    return sum(await asyncio.gather(*(client() for _ in range(clients)))) / seconds


async def paced(ask: Ask, clients: int, rate: float, seconds: float) -> list[float]:
    """Milliseconds of each request, of clients that ask at a rate between them."""
    period, began = clients / rate, time.perf_counter()
    taken: list[float] = []

    async def client(number: int) -> None:
        for lap in itertools.count():
            due = began + (lap + number / clients) * period
            if due > began + seconds:
                return
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            start = time.perf_counter()
            await ask(number * 1_000_000 + lap)
            taken.append(1000 * (time.perf_counter() - start))

    await asyncio.gather(*(client(number) for number in range(clients)))
    return taken


async def overhead(url: str, upstream: str, clients: int, seconds: float, rounds: int) -> None:
    engine = OpenAIEngine(model="answers", base_url=upstream, concurrency=512)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        sides = {"server": through_server(session, url), "direct": directly(engine)}
        for ask in sides.values():
            await saturation(ask, clients, 1.0)
        rate = await saturation(sides["server"], clients, seconds)
        print(f"saturation: {clients} clients get {rate:.0f} answers a second")
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, ask in sides.items():
                taken[name] += await paced(ask, clients, SHARE * rate, seconds)
    await engine.close()
    medians = {name: statistics.median(found) for name, found in taken.items()}
    for name, found in taken.items():
        tail = statistics.quantiles(found, n=100)[98]
        print(f"{name:<7} median {medians[name]:6.1f} ms, 99 % within {tail:6.1f} ms, {len(found)} requests")
    print(f"value serve_overhead_ms {medians['server'] - medians['direct']:.2f}")
    print(f"ratio serve_overhead {medians['server'] / medians['direct']:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the server adds to a team's time, and whether it holds.")
    parser.add_argument("--clients", type=int, help="50, and 200 for a soak")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="load with faults, in place of the overhead")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        if args.soak is None:
            with started(LATENCY_S) as upstream, served(folder, upstream) as url:
                asyncio.run(overhead(url, upstream, args.clients or 50, args.seconds, args.rounds))
            return
        with (
            MockServer(reply="So it is 4.", latency=0.05) as server,
            FaultProxy(server.base_url, 0.3, seed=0) as proxy,
            served(folder, proxy.base_url, retries=3, timeout_s=2.0) as url,
        ):
            server.keep_requests = False
            sys.exit(bool(asyncio.run(soak(url, args.clients or 200, args.soak))))


if __name__ == "__main__":
    main()
