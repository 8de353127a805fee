"""The journal: what an answer from it costs, what a write costs, and whether a long `collect` stays small.

    python bench/journal.py [--asks 400] [--writes 8000] [--answers 5000]      # --answers 100000 for the long form

- `ask_from_journal_us`: microseconds of one `room.ask` that the journal answers.
- `write_us`: microseconds in which one turn becomes durable.
- `collect` of so many answers of two agents, from a loopback server in a process of its own: resident memory at 20 %,
  60 % and 100 %, and the shares of the wall time in which the journal was writing (target: 0.05) and in which it turned
  turns into rows. 64 are in flight; `--latency 0` has a server that answers at once, which is the hardest case, since
  then nobody ever waits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from _server import started
from pilotfish.collect.main import collect
from pilotfish.engine.base import Completion
from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.episode import Journal, Room, Scopes, Team, Turn, play, rows
from pilotfish.episode.calls import digest
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.task import Task
from pilotfish.team import Member, Messages, Sampling, Usage
from pilotfish.topology import topology
from pilotfish.verify.verdict import Verdict

TASK = Task("train", "A train leaves at nine and covers 60 miles an hour. How far is it at noon? " * 8, "180")
WORDS = "Distance is speed times time, and from nine to noon there are three hours. " * 12
AGENTS = ("ann", "bob")
SETS = 10
AT_ONCE = 64
SHARES = (0.2, 0.6, 1.0)
T = TypeVar("T")


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(1.0)


async def ask_from_journal_us(journal: Journal, asks: int) -> float:
    @topology
    async def many(task: Task, room: Room) -> Turn:
        for _ in range(asks - 1):
            await room.ask("actor", task.question)
        return await room.ask("actor", task.question)

    engine = ScriptedEngine(lambda messages, sampling, seed: WORDS)
    team = Team({"actor": Member("actor", "bench")}, {"actor": engine})

    async def seconds() -> float:
        began = time.perf_counter()
        await play(TASK, many, team, journal, Scopes("asks"), judge=judge)
        return time.perf_counter() - began

    await seconds()
    best = min([await seconds() for _ in range(5)])
    assert engine.calls == asks
    return best / asks * 1e6


def write_us(journal: Journal, writes: int) -> float:
    messages: Messages = [{"role": "user", "content": TASK.question}]
    done = Completion(WORDS, "stop", Usage(180, 160), 1.0)
    turn = Turn("", "bench", "actor", 0, messages, Sampling(), "answered", done, asker="bench")
    turns = [replace(turn, key=digest(n)) for n in range(writes)]
    began = time.perf_counter()
    for turn in turns:
        journal.record(turn)
    return (time.perf_counter() - began) / writes * 1e6


def clocked(function: Callable[..., T], spent: list[float]) -> Callable[..., T]:
    """The same function, which notes its seconds."""

    def timed(*values: object) -> T:
        began = time.perf_counter()
        try:
            return function(*values)
        finally:
            spent.append(time.perf_counter() - began)

    return timed


def described(folder: Path, answers: int, base_url: str) -> Recipe:
    rows = [
        {"id": f"t{n}", "question": f"{TASK.question} ({n})", "answer": "180"}
        for n in range(answers // (SETS * len(AGENTS)))
    ]
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    # At temperature 0 the sets of a task would be one, and asked once.
    drawn = {"sampling": {"temperature": 0.7}}
    agent = {"engine": "openai", "model": "bench", "base_url": base_url, "concurrency": AT_ONCE, **drawn}
    return parse_recipe(
        {
            "tasks": {"train": str(file), "holdout": 0},
            "team": {"leader": {"model": "never-loaded", "train": "full"}, **dict.fromkeys(AGENTS, agent)},
            "topology": "leader",
            "collect": {"sets": SETS},
        }
    )


def resident_mb() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def collect_many(folder: Path, answers: int, base_url: str) -> None:
    """Collect, and print memory on the way and what writing took."""
    made: list[float] = []
    written: list[float] = []
    rows.of_turn, rows.of_episode = clocked(rows.of_turn, made), clocked(rows.of_episode, made)
    Journal._write = clocked(Journal._write, written)  # type: ignore[method-assign]
    due, memory, began = list(SHARES), [], time.perf_counter()

    def told(kind: str, done: int, figures: Mapping[str, float]) -> None:
        while kind == "collect" and due and done >= due[0] * figures["of"]:
            memory.append(resident_mb())
            took = time.perf_counter() - began
            print(
                f"{due.pop(0):4.0%}  {figures['answers']:8.0f} answers  {memory[-1]:6.0f} MB  {took:7.1f} s", flush=True
            )

    collected = collect(described(folder, answers, base_url), folder / "run", told=told)
    wall = time.perf_counter() - began
    print(f"{collected.answers} answers, {collected.answers / wall:.0f} a second")
    print(f"ratio memory_end_over_20_percent {memory[-1] / memory[0]:.2f}")
    print(f"value memory_growth_bytes_per_answer {(memory[-1] - memory[0]) * 2**20 / (0.8 * answers):.0f}")
    print(f"ratio journal_writes_of_collect {sum(written) / wall:.3f}")
    print(f"ratio journal_rows_of_collect {sum(made) / wall:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers from the journal, writes, and a long collect.")
    parser.add_argument("--asks", type=int, default=400)
    parser.add_argument("--writes", type=int, default=8000)
    parser.add_argument("--answers", type=int, default=5000, help=f"a multiple of {SETS * len(AGENTS)}")
    parser.add_argument("--latency", type=float, default=0.1, help="seconds before each answer")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["PILOTFISH_CACHE"] = str(folder / "cache")
        print(f"value ask_from_journal_us {asyncio.run(ask_from_journal_us(Journal(folder / 'a'), args.asks)):.0f}")
        print(f"value write_us {write_us(Journal(folder / 'b'), args.writes):.0f}")
        with started(args.latency, f"{WORDS}\\boxed{{180}}") as base_url:
            collect_many(folder, args.answers, base_url)


if __name__ == "__main__":
    main()
