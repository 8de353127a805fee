"""A step's rollout with a slow actor behind an API: each answer when its hint is there, against all hints first.

    python bench/step_overlap.py [--rows 128] [--places 128] [--scale 0.1] [--rounds 3]

Both sides are the same rollout of the hint topology with the same scripted times, drawn from each call's seed: a hint
takes 1.5 s at the median on the policy's own device, an answer 2 s with a long tail (log-normal, to 20 s) at an API
that takes `places` calls at once. `streams` is how members on different devices are scheduled; `waves` is how members
on one device are: all hints, then all answers. `--scale 0.1` makes all times ten times shorter; below 0.02 the
rollout's own work shows. Prints how many calls were in flight over time; ends with `ratio waves_over_streams VALUE`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from pilotfish.engine.base import Completion, Engine
from pilotfish.engine.lease import Device, Leased
from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.episode import Journal, Team
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.task import Task
from pilotfish.team import Messages, Sampling
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import Rollout, RowId
from pilotfish.verify.verdict import Verdict

GROUP = 8
HINT_S, HINT_SPREAD, HINT_MOST = 1.5, 0.5, 6.0
ANSWER_S, ANSWER_SPREAD, ANSWER_MOST = 2.0, 0.9, 20.0
COLUMNS = 64
LEVELS = " ▁▂▃▄▅▆▇█"
Span = tuple[float, float]


def seconds(seed: int, median: float, spread: float, most: float) -> float:
    """What a call takes at full scale."""
    return min(most, random.Random(seed).lognormvariate(math.log(median), spread))


@dataclass
class Timed:
    """An engine with so many places that notes when each call was in flight, and what a trainer needs."""

    engine: Engine
    places: int
    spans: list[Span] = field(default_factory=list)
    identity: str | None = None
    version: int = 0

    def __post_init__(self) -> None:
        self.free = asyncio.Semaphore(self.places)

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        async with self.free:
            began = time.perf_counter()
            done = await self.engine.complete(messages, sampling, seed)
            self.spans.append((began, time.perf_counter()))
        return replace(done, prompt_ids=(1,), completion_ids=(2,), logprobs=(-1.0,))

    async def close(self) -> None:
        """Nothing is held."""


def scripted(word: str, median: float, spread: float, most: float, scale: float) -> ScriptedEngine:
    return ScriptedEngine(
        lambda messages, sampling, seed: f"{word} {seed}",
        latency=lambda messages, sampling, seed: scale * seconds(seed, median, spread, most),
    )


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(1.0)


def described(rows: int) -> Recipe:
    team = {"collaborator": {"model": "never-loaded", "train": "full"}, "actor": {"model": "never-loaded"}}
    settings = {"group_size": GROUP, "tasks_per_step": rows // GROUP, "updates_per_step": 1, "micro_batch": rows}
    return parse_recipe({"team": team, "topology": "hint", "train": settings})


async def step(args: argparse.Namespace, waves: bool, folder: Path, number: int) -> tuple[float, dict[str, list[Span]]]:
    """Seconds of a rollout, and when its calls were in flight, from its beginning."""
    recipe, tasks = described(args.rows), args.rows // GROUP
    assert isinstance(recipe.train, TrainConfig)
    hints = Timed(scripted("hint", HINT_S, HINT_SPREAD, HINT_MOST, args.scale), args.rows)
    answers = Timed(scripted("answer", ANSWER_S, ANSWER_SPREAD, ANSWER_MOST, args.scale), args.places)
    devices = [Device()] * 2 if waves else [Device(), Device()]
    seats: dict[str, Engine] = {"collaborator": Leased(hints, devices[0]), "actor": Leased(answers, devices[1])}
    journal = Journal(folder)
    by_id = {f"t{n}": Task(f"t{n}", f"What is {n} + {n}?", "4") for n in range(tasks)}
    members = recipe.members(training=True)
    rollout = Rollout(recipe.topology.load(), Team(members, seats), by_id, journal, judge, recipe.train, seed=number)
    began = time.perf_counter()
    rows = await rollout.step([str(RowId(task)) for task in by_id for _ in range(GROUP)], 0)
    took = time.perf_counter() - began
    journal.close()
    assert len(rows) == len(hints.spans) == len(answers.spans) == args.rows
    flown = {"hints": hints.spans, "answers": answers.spans}
    return took, {name: [(one - began, other - began) for one, other in spans] for name, spans in flown.items()}


def timeline(spans: list[Span], whole: float, most: int) -> str:
    """A column for each moment: how many calls are in flight, of so many rows."""
    moments = [(column + 0.5) * whole / COLUMNS for column in range(COLUMNS)]
    at_once = [sum(began <= moment < ended for began, ended in spans) for moment in moments]
    return "".join(LEVELS[math.ceil(count / most * (len(LEVELS) - 1))] for count in at_once)


def main() -> None:
    parser = argparse.ArgumentParser(description="A step's rollout: answers as hints come, against all hints first.")
    parser.add_argument("--rows", type=int, default=128, help=f"a multiple of {GROUP}")
    parser.add_argument("--places", type=int, default=128, help="calls that the API takes at once")
    parser.add_argument("--scale", type=float, default=0.1, help="of all times")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found: dict[str, list[float]] = {"streams": [], "waves": []}
    flown: dict[str, dict[str, list[Span]]] = {}
    with tempfile.TemporaryDirectory() as place:
        for number in range(args.rounds):
            for name, times in found.items():
                took, flown[name] = asyncio.run(step(args, name == "waves", Path(place) / f"{name}{number}", number))
                times.append(took)
    whole = max(times[-1] for times in found.values())
    print(f"{args.rows} rows, {args.places} places; the last round, {whole / args.scale:.1f} s from left to right")
    for name, spans in flown.items():
        for member, flights in spans.items():
            print(f"{name:<8} {member:<8}|{timeline(flights, whole, args.rows)}|")
    medians = {name: statistics.median(times) for name, times in found.items()}
    for name, took in medians.items():
        print(f"value {name}_seconds {took / args.scale:.2f}")
    print(f"ratio waves_over_streams {medians['waves'] / medians['streams']:.2f}")


if __name__ == "__main__":
    main()
