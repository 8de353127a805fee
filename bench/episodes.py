"""What an episode costs beside its calls: time, shared calls, memory, and answers from the journal.

    python bench/episodes.py [--part all|time|sharing|memory|journal] [--episodes 2000] [--latency 2.0] [--at-once 512]

Four figures:
- `episodes_over_ideal`: wall time of hint episodes (two calls each, all started together) through the `openai` engine
  against a loopback server that answers after `latency` seconds, over calls x latency / at-once. The same calls by the
  engine alone are timed first: they open the connections, and show what is the engine's and the machine's part.
- `critic_frozen_calls`: drafts and answers of a critic group of 8, over the 16 that rows without sharing would ask.
- `episodes_in_flight_mb`: peak memory of a process in which 10,000 hint episodes wait for an answer at once, then end.
- `ask_from_journal_us`: microseconds of one `room.ask` that the journal answers.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from _server import started

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from pilotfish.engine.base import Completion, Engine
from pilotfish.engine.openai import OpenAIEngine
from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.episode import Journal, Room, Scopes, Team, Turn, fork, play
from pilotfish.task import Task
from pilotfish.team import Member, Messages, Sampling, Usage
from pilotfish.topology import critic, hint, topology
from pilotfish.verify.verdict import Verdict

TASK = Task("train", "A train leaves at nine and covers 60 miles an hour. How far is it at noon? " * 8, "180")
MEMBERS = {name: Member(name, "bench", trainee=name == "collaborator") for name in ("collaborator", "actor")}
GROUP = 8
IN_FLIGHT = 10_000
ASKS = 400


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(1.0)


def team(engine: Engine) -> Team:
    return Team(MEMBERS, dict.fromkeys(MEMBERS, engine))


async def hints(engine: Engine, journal: Journal, episodes: int) -> None:
    """Play hint episodes, all started together, each of a group of its own."""
    pair = team(engine)
    plays = (play(TASK, hint, pair, journal, Scopes(f"bench/{n}"), judge=judge) for n in range(episodes))
    await asyncio.gather(*plays)


async def pairs(engine: Engine, episodes: int) -> None:
    """The same calls without episodes: what the engine and the server cost by themselves."""
    prompts = hint.defaults()["prompts"]

    async def pair(number: int) -> None:
        advice = await engine.complete(prompts.advise(TASK), MEMBERS["collaborator"].sampling, number)
        await engine.complete(prompts.solve(TASK, hint=advice.text), MEMBERS["actor"].sampling, number)

    await asyncio.gather(*(pair(number) for number in range(episodes)))


async def over_ideal(journal: Journal, args: argparse.Namespace) -> None:
    calls = 2 * args.episodes
    ideal = calls * args.latency / args.at_once
    waves = math.ceil(calls / args.at_once) * args.latency
    print(f"{calls} calls, {args.at_once} at once, {args.latency:g} s each: ideal {ideal:.2f} s, {waves:.2f} in waves")
    with started(args.latency) as base_url:
        engine = OpenAIEngine(model="bench", base_url=base_url, concurrency=args.at_once)
        for name, work in [
            ("engine alone", pairs(engine, args.episodes)),
            ("episodes", hints(engine, journal, args.episodes)),
        ]:
            wall, processor = time.perf_counter(), time.process_time()
            await work
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            print(f"{name:<12} {wall:6.2f} s, {processor / calls * 1e3:.2f} ms of processor time a call")
        await engine.close()
    print(f"ratio episodes_over_ideal {wall / ideal:.3f}")


async def sharing(journal: Journal, args: argparse.Namespace) -> None:
    words = iter(range(10_000))
    actor, collaborator = (ScriptedEngine(lambda messages, sampling, seed: f"word {next(words)}") for _ in range(2))
    pair = Team(MEMBERS, {"actor": actor, "collaborator": collaborator})
    rows = (play(TASK, critic, pair, journal, Scopes("group"), judge=judge, salts=fork(0, row)) for row in range(GROUP))
    await asyncio.gather(*rows)
    print(f"critic, {GROUP} rows: {actor.calls} frozen calls, {collaborator.calls} of the trainee")
    print(f"ratio critic_frozen_calls {actor.calls / (2 * GROUP):.4f}")


class Holding:
    """Answers nothing until so many calls wait."""

    identity = None
    version = 0

    def __init__(self, calls: int) -> None:
        self._awaited = calls
        self._open = asyncio.Event()

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        self._awaited -= 1
        if self._awaited == 0:
            print(f"{IN_FLIGHT} episodes wait: {_peak_mb():.0f} MB")
            self._open.set()
        await self._open.wait()
        return Completion("Distance is speed times time. " * 10, "stop", Usage(180, 60))

    async def close(self) -> None:
        """Nothing is held."""


async def in_flight(journal: Journal, args: argparse.Namespace) -> None:
    before = _peak_mb()
    await hints(Holding(IN_FLIGHT), journal, IN_FLIGHT)
    print(f"before them {before:.0f} MB, once all have ended {_peak_mb():.0f} MB")
    print(f"value episodes_in_flight_mb {_peak_mb():.0f}")


async def from_journal(journal: Journal, args: argparse.Namespace) -> None:
    @topology
    async def asks(task: Task, room: Room) -> Turn:
        for _ in range(ASKS - 1):
            await room.ask("actor", task.question)
        return await room.ask("actor", task.question)

    async def seconds() -> float:
        began = time.perf_counter()
        await play(TASK, asks, team(engine), journal, Scopes("asks"), judge=judge)
        return time.perf_counter() - began

    engine = ScriptedEngine(lambda messages, sampling, seed: "Distance is speed times time. " * 10)
    fresh = await seconds()
    again = min([await seconds() for _ in range(5)])
    assert engine.calls == ASKS
    print(f"one ask that the scripted engine answers: {fresh / ASKS * 1e6:.0f} us")
    print(f"value ask_from_journal_us {again / ASKS * 1e6:.0f}")


PARTS: dict[str, Callable[[Journal, argparse.Namespace], Coroutine[Any, Any, None]]] = {
    "time": over_ideal,
    "sharing": sharing,
    "memory": in_flight,
    "journal": from_journal,
}


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0 if sys.platform != "darwin" else 1024.0**2)


def main() -> None:
    parser = argparse.ArgumentParser(description="What an episode costs beside its calls.")
    parser.add_argument("--part", choices=["all", *PARTS], default="all")
    parser.add_argument("--episodes", type=int, default=2000, help="hint episodes, two calls each")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds the server takes to answer")
    parser.add_argument("--at-once", type=int, default=512, help="most calls at the server at once")
    args = parser.parse_args()
    if args.part == "all":
        for part in PARTS:  # each in a process of its own, so that memory is one part's
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--part", part], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(PARTS[args.part](Journal(folder), args))


if __name__ == "__main__":
    main()
