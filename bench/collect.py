"""Answers per second of `collect` against what the server gives, from one loopback server through the same engine.

    python bench/collect.py [--tasks 200] [--sets 4] [--connections 16] [--latency 0.02] [--rounds 5]

The server is a process of its own that answers each request `latency` seconds after it came, and the engine has at most
`connections` in flight: connections / latency is what the server could give. One side makes the calls of a collection
and nothing else: the same prompts from as many workers as there are connections. The other is `collect` itself, three
agents a task: keys, journal, verdicts, progress. Rounds alternate, and the figure of each side is the median of its
rounds. Ends with `ratio collect_over_server VALUE`; 0.9 is the target.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from _server import ANSWER, started
from pilotfish import collect, load_tasks
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.team import Messages, Sampling
from pilotfish.topology.leader import PROMPTS

AGENTS = ("ann", "bob", "eve")
BOXED = ANSWER + "So it is \\boxed{240} miles."
SAMPLING = Sampling(temperature=0.7, max_tokens=512)


def recipe(folder: Path, base_url: str, args: argparse.Namespace) -> Recipe:
    """Three agents on one model, which share one engine; a leader that is never loaded."""
    file = folder / "tasks.jsonl"
    question = "A train leaves at nine and covers {} miles an hour. How far is it at noon? " * 8
    rows = [{"question": question.replace("{}", str(n)), "answer": str(3 * n)} for n in range(args.tasks)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    agent = {"engine": "openai", "model": "bench", "base_url": base_url, "concurrency": args.connections}
    team = {name: {**agent, "sampling": SAMPLING.model_dump()} for name in AGENTS}
    return parse_recipe(
        {
            "tasks": {"train": str(file), "holdout": 0},
            "team": {"leader": {"model": "never-loaded", "train": "full"}, **team},
            "topology": "leader",
            "collect": {"sets": args.sets},
        }
    )


async def ask_all(base_url: str, prompts: list[Messages], connections: int) -> float:
    """Calls per second with nothing around them."""
    engine = OpenAIEngine(model="bench", base_url=base_url, concurrency=connections)
    calls = iter(enumerate(prompts))

    async def work() -> None:
        for seed, messages in calls:
            assert (await engine.complete(messages, SAMPLING, seed)).text

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    seconds = time.perf_counter() - began
    await engine.close()
    return len(prompts) / seconds


def collected(wanted: Recipe, folder: Path) -> float:
    """Answers per second of a collection, from its first news to its last."""
    times: list[float] = []

    def told(kind: str, done: int, figures: object) -> None:
        if kind == "collect":
            times.append(time.perf_counter())

    return collect(wanted, folder, told=told).answers / (times[-1] - times[0])


def measure(sides: dict[str, Callable[[int], float]], rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            figure = side(number)
            if number:  # the first round warms up
                found[name].append(figure)
    for name, figures in found.items():
        print(f"{name:<8} {statistics.median(figures):7.0f} /s (rounds {min(figures):.0f} to {max(figures):.0f})")
    return {name: statistics.median(figures) for name, figures in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers per second: collect against bare calls of its engine.")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--sets", type=int, default=4, help="sets of three answers a task")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds before each answer")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, started(args.latency, BOXED) as base_url:
        folder = Path(place)
        os.environ["PILOTFISH_CACHE"] = str(folder / "cache")
        wanted = recipe(folder, base_url, args)
        tasks = load_tasks(str(folder / "tasks.jsonl"))
        prompts = [PROMPTS.solve(task) for task in tasks for _ in range(args.sets * len(AGENTS))]
        print(f"{len(prompts)} calls a round; the server could give {args.connections / args.latency:.0f} /s")
        medians = measure(
            {
                "server": lambda number: asyncio.run(ask_all(base_url, prompts, args.connections)),
                "collect": lambda number: collected(wanted, folder / f"run{number}"),
            },
            args.rounds,
        )
    print(f"ratio collect_over_server {medians['collect'] / medians['server']:.2f}")


if __name__ == "__main__":
    main()
