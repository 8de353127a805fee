"""A soak: evaluate and collect in a loop, through a proxy that lets 30 % of the calls fail, until the time is up.

    python bench/soak.py --minutes 30 [--tasks 10] [--share 0.3] [--seed 0]

Each lap is a new run with an evaluation of three methods on two benchmarks and a collection from two agents, each done
twice: the second time must ask nobody. After a lap nothing may be lost: no failed episode, no absent answer, and as
many answers in the journals as the server gave. Prints a line a lap: calls at the proxy, faults it made, answers of the
server, what failed, was lost or asked again, and what was left behind: asyncio tasks that never ended, connections to
the proxy, sockets (against the end of the first lap), resident memory, the server's own included. Exits with 1 if
anything was lost or left. A lap takes half a minute: what failed waits seconds before it is tried again.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fault_proxy import FaultProxy
from mock_server import MockServer
from pilotfish import Journal, Run, collect, evaluate
from pilotfish.recipe import Recipe, parse_recipe

PATIENCE = {"retries": 40, "timeout_s": 3.0, "concurrency": 32}


def reply(body: dict[str, Any]) -> str:
    """Right or wrong by all that was asked."""
    drawn = int(hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(), 16)
    return f"Let me see. So it is \\boxed{{{drawn % 2}}}."


def recipe(folder: Path, base_url: str, seed: int, tasks: int) -> Recipe:
    files = {name: folder / f"{name}.jsonl" for name in ("train", "first", "second")}
    for name, file in files.items():
        rows = [{"question": f"{name} {n}, seed {seed}: is it so?", "answer": str(n % 2)} for n in range(tasks)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    member = {"engine": "openai", "base_url": base_url, "sampling": {"temperature": 0.7, "max_tokens": 99}, **PATIENCE}
    return parse_recipe(
        {
            "tasks": {"train": str(files["train"]), "holdout": 0},
            "team": {
                "leader": {"model": "never-loaded", "train": "full"},
                "ann": {**member, "model": "mock-a"},
                "bob": {**member, "model": "mock-b"},
            },
            "topology": "leader",
            "collect": {"sets": 2},
            "seed": seed,
        }
    )


def compared(folder: Path, collection: Recipe) -> Recipe:
    """Three methods on two benchmarks by one of the agents."""
    against = [{"name": "vote", "options": {"samples": 3}}, {"name": "reflect", "options": {"rounds": 1}}]
    files = [str(folder / "first.jsonl"), str(folder / "second.jsonl")]
    team = {"actor": collection.model_dump(mode="json")["team"]["ann"]}
    return parse_recipe(
        {
            "team": team,
            "topology": "solo",
            "evaluate": {"benchmarks": files, "against": against},
            "seed": collection.seed,
        }
    )


@dataclass
class Lap:
    """What came of one lap."""

    failed: int
    """Episodes without a verdict, and answers that are absent."""
    recorded: int
    """Answers in the journals."""
    again: int
    """Calls that were made when all was recorded."""


def lap(folder: Path, proxy: FaultProxy, seed: int, tasks: int) -> Lap:
    folder.mkdir()
    collection = recipe(folder, proxy.base_url, seed, tasks)
    evaluation = compared(folder, collection)
    failed, calls = 0, 0
    for _ in range(2):
        calls = proxy.calls
        with Run(folder / "eval", evaluation) as run:
            failed = sum(row.failed for result in evaluate(evaluation, run) for row in result.rows)
        failed += collect(collection, folder / "collect").absent
    recorded = answers(folder / "eval") + answers(folder / "collect")
    return Lap(failed, recorded, proxy.calls - calls)


def answers(run: Path) -> int:
    journal = Journal(run / "journal", writable=False)
    count = sum(turn.answered for turn in journal.turns())
    journal.close()
    return count


def tasks_left() -> int:
    """Asyncio tasks of loops that are closed, which will never end."""
    gc.collect()
    tasks = [one for one in gc.get_objects() if isinstance(one, asyncio.Task)]
    return sum(not task.done() and task.get_loop().is_closed() for task in tasks)


def sockets() -> int:
    """Of this process, the server's and the proxy's own included."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.lexists(link))


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(minutes: float, tasks: int, share: float, seed: int, folder: Path) -> int:
    """Laps until the time is up; how much was lost or left behind."""
    until, lost, number, first = time.monotonic() + 60 * minutes, 0, 0, 0
    with (
        MockServer(reply=reply, latency=0.005) as server,
        FaultProxy(server.base_url, share, seed) as proxy,
    ):
        server.keep_requests = False
        while not number or time.monotonic() < until:
            given = server.answered
            done = lap(folder / str(number), proxy, seed + number, tasks)
            missing = server.answered - given - done.recorded
            left, open_ = tasks_left(), proxy.open_connections()
            first = first or sockets()
            print(
                f"lap {number}: {proxy.calls} calls, {sum(proxy.faulted.values())} faults, {server.answered} answers; "
                f"{done.failed} failed, {missing} lost, {done.again} asked again; {left} tasks, {open_} connections, "
                f"{sockets() - first:+d} sockets left, {resident_mb():.0f} MB",
                flush=True,
            )
            lost += done.failed + abs(missing) + done.again + left + open_
            number += 1
    print(f"value soak_lost {lost}")
    return lost


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate and collect through faults until the time is up.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--tasks", type=int, default=10, help="of each benchmark and of the collection")
    parser.add_argument("--share", type=float, default=0.3, help="of the calls that fail")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.environ["PILOTFISH_CACHE"] = str(Path(place) / "cache")
        sys.exit(bool(soak(args.minutes, args.tasks, args.share, args.seed, Path(place))))


if __name__ == "__main__":
    main()
