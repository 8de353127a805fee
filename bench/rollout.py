"""The Python of a rollout: what a row costs where its tokens cost nothing.

    python bench/rollout.py                                    # hint, critic, leader, solo; 192 and 512 rows
    python bench/rollout.py --topologies hint --rows 192 --profile 25
    python bench/rollout.py --topologies solo --rows 512 --clock      # beside the engines' own Python

A rollout as training plays it (seats, leases, journal, answers kept across runs, verifier, the figures that are logged)
on token engines that answer at once: what is left is rendering, keys, records, tasks, decoding and judging. It is spent
beside the engines' own Python, so on a GPU that a small model leaves idle it makes the step longer. Groups of 16 but
for solo, which has 8; each step has other tasks. Processor time is counted, of all threads, so that other work on the
machine shows less; the first step warms up. With `--clock` the engines are continuous batching whose GPU is a clock.

- `rollout_ms_a_row_TOPOLOGY_ROWS`: milliseconds of processor time a row, the median of the steps.
- `rollout_s_TOPOLOGY_ROWS`: seconds of the whole, by the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from _clock import clocked
from pilotfish import Journal, Task, Team, load_tasks
from pilotfish.engine.base import Engine
from pilotfish.engine.lease import Device, Leased
from pilotfish.engine.loading import load
from pilotfish.engine.tokens import TokenAnswer
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.train.diagnostics import diagnose
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import RowId
from pilotfish.verify import VerifierPool

SAID = (
    "First add {0} and {1}, then take the smaller numbers away one after the other and keep the signs in mind. ",
    "We have {0} + {1}. Let me work through it step by step: {0} is close to {1}, and the rest is small. ",
    "Start from the left: {1} comes before {0}; write each partial sum down before the next number is added. ",
)
ENDS = ("The answer is \\boxed{{{0}}}.", "So the final result is {0}.", "<think>{1}</think><answer>{0}</answer>", "")
VARIANTS = 2000
GROUPS = {"hint": 16, "critic": 16, "leader": 16, "solo": 8}
AGENTS = ("ann", "bob", "cy")


class Instant:
    """A `TokenEngine` that says one of many prepared texts, drawn by a call's seed, at temperature 0 by its prompt."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end: int, seed: int) -> None:
        rng = random.Random(seed)
        texts = [(2 * rng.choice(SAID) + rng.choice(ENDS)).format(*rng.sample(range(1000), 2)) for _ in range(VARIANTS)]
        self._said = [(*tokenizer(text, add_special_tokens=False)["input_ids"], end) for text in texts]

    async def complete(
        self,
        token_ids: Sequence[int],
        max_new_tokens: int,
        temperature: float,
        seed: int,
        *,
        top_p: float = 1.0,
        stop_ids: Collection[int] = (),
        stop: Callable[[list[int]], bool] | None = None,
    ) -> TokenAnswer:
        whole = self._said[(seed if temperature else hash(tuple(token_ids))) % VARIANTS]
        await asyncio.sleep(0)
        said = whole[:max_new_tokens]
        return TokenAnswer(said, (-0.5,) * len(said), "stop" if len(said) == len(whole) else "length")

    async def update(self, copy: Callable[[], None]) -> None:
        copy()

    async def close(self) -> None:
        """Nothing is held."""


def described(topology: str, rows: int) -> Recipe:
    group = GROUPS[topology]
    trainee = {"model": "instant", "train": "full", "sampling": {"max_tokens": 96}}
    actor = {"model": "instant", "sampling": {"temperature": 0, "max_tokens": 128}}
    agent = {"model": "instant", "sampling": {"temperature": 0.7, "max_tokens": 128}}
    train = {"group_size": group, "tasks_per_step": rows // group, "updates_per_step": 1, "micro_batch": rows}
    teams: dict[str, dict[str, Any]] = {
        "leader": {"leader": trainee, **dict.fromkeys(AGENTS, agent)},
        "solo": {"collaborator": trainee},
    }
    options = {"solo": {"member": "collaborator"}}.get(topology, {})
    return parse_recipe(
        {
            "team": teams.get(topology, {"collaborator": trainee, "actor": actor}),
            "topology": {"name": topology, "options": options},
            "train": train,
        }
    )


@dataclass
class Bench:
    """What the steps of all topologies share."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pool: VerifierPool
    folder: Path
    steps: int
    profiled: int
    clock: bool

    def rollout(self, recipe: Recipe, tasks: Sequence[Task]) -> Rollout:
        assert isinstance(recipe.train, TrainConfig)
        device = Device()
        engines: list[Engine] = []
        for number in range(2):
            end = int(self.tokenizer.eos_token_id)
            tokens = clocked(512, end, mean=90) if self.clock else Instant(self.tokenizer, end, number)
            engines.append(Leased(TransformersEngine(self.model, self.tokenizer, tokens=tokens), device))
        seats = {name: engines[name != recipe.trainee] for name in recipe.team}
        return Rollout(
            recipe.topology.load(),
            Team(recipe.members(training=True), seats),
            {task.id: task for task in tasks},
            Journal(self.folder / f"{recipe.topology.name}-{recipe.train.rows_per_step}"),
            self.pool.judge,
            recipe.train,
            kept=Journal(self.folder / "kept", shared=True),
        )

    def measure(self, topology: str, rows: int) -> None:
        """Play the steps of a topology and print what a row costs."""
        recipe, per_step = described(topology, rows), rows // GROUPS[topology]
        source = {"source": "gym:chain_sum", "size": per_step * (self.steps + 1), "seed": 7, "verifier": "maths"}
        tasks = load_tasks(source)
        rollout = self.rollout(recipe, tasks)
        walls, processors = [], []
        profile = cProfile.Profile()
        for step in range(self.steps + 1):
            mine = tasks[step * per_step : (step + 1) * per_step]
            ids = [str(RowId(task.id)) for task in mine for _ in range(GROUPS[topology])]
            counted = step > 0 and self.profiled
            wall, processor = time.perf_counter(), time.process_time()
            if counted:
                profile.enable()
            asyncio.run(self.step(rollout, ids, step))
            if counted:
                profile.disable()
            walls.append(time.perf_counter() - wall)
            processors.append(time.process_time() - processor)
        rollout.journal.close()
        if self.profiled:
            pstats.Stats(profile).sort_stats("tottime").print_stats(self.profiled)
        name = f"{topology}_{rows}"
        print(f"value rollout_ms_a_row_{name} {statistics.median(processors[1:]) / rows * 1e3:.2f}")
        print(f"value rollout_s_{name} {statistics.median(walls[1:]):.3f}", flush=True)

    async def step(self, rollout: Rollout, ids: Sequence[str], step: int) -> None:
        rows = await rollout.step(ids, step)
        diagnose(rows, {}, rollout.tasks, rollout.config.group_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="whose tokenizer and chat template; its weights say nothing")
    parser.add_argument("--topologies", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--rows", type=int, nargs="+", default=[192, 512], help="of a step; multiples of 16")
    parser.add_argument("--steps", type=int, default=5, help="counted, after one of warm-up")
    parser.add_argument("--profile", type=int, default=0, help="print so many lines of a profile of each")
    parser.add_argument("--clock", action="store_true", help="engines with all their Python, on a GPU that is a clock")
    options = parser.parse_args()
    model, tokenizer = load(options.model, device="cpu")
    with tempfile.TemporaryDirectory() as folder, VerifierPool() as pool:
        bench = Bench(model, tokenizer, pool, Path(folder), options.steps, options.profile, options.clock)
        for topology in options.topologies:
            for rows in options.rows:
                bench.measure(topology, rows)


if __name__ == "__main__":
    main()
