"""A step of MLPO on stored answers against the same step with live agents; and what equal prompts of a group save.

    python bench/mlpo_step.py --model smollm2 --steps 4 --tasks 16 --group 16         # on a GPU
    python bench/mlpo_step.py --model smollm2 --steps 2 --tasks 2 --group 4 --tokens 16 # anywhere

Leader and three agents are the same model; agents sample at 0.7. Both sides train the leader's first turn on the same
tasks; one finds the agents' answers in the journal, the other asks for them at each step. The first step of each side
is warm-up and not counted. Then the leader's prompts alone: G times each, as in a group, and as many different ones.
Ends with `ratio step_live_over_stored VALUE` and `ratio distinct_over_equal_prompts VALUE`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
import trl

from pilotfish import Journal, Recipe, Sampling, Scopes, Task, Team, Verdict, load_tasks, play
from pilotfish.background import Background
from pilotfish.engine.loading import load
from pilotfish.engine.policy import PolicyEngine
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.episode import Horizon
from pilotfish.recipe import parse_recipe
from pilotfish.train.grpo import train
from pilotfish.train.rollout import Rollout, RowId
from pilotfish.verify import VerifierPool

AGENTS = ("ann", "bob", "cy")


async def unjudged(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(None)


async def collect(recipe: Recipe, tasks: list[Task], team: Team, journal: Journal) -> list[str]:
    """Store one set of answers a task; returns the leader's prompts."""
    topology, until = recipe.topology.load(), Horizon(0, asked=False)

    async def one(task: Task) -> str:
        scopes = Scopes("collect", stored=f"stored/{task.id}/0")
        episode = await play(task, topology, team, journal, scopes, judge=unjudged, until=until)
        answers = "\n\n".join(place.turn.text for place in episode.turns)
        return f"{task.question}\n\n{answers}"

    return list(await asyncio.gather(*(one(task) for task in tasks)))


def steps(recipe: Recipe, tasks: list[Task], agents: TransformersEngine, stored: bool) -> list[dict[str, float]]:
    """Seconds of each step and its parts."""
    member = recipe.team["leader"]
    model, tokenizer = load(member.model, dtype="float32", device=member.device)
    laps: list[dict[str, float]] = []
    background = Background()
    with tempfile.TemporaryDirectory() as folder, VerifierPool() as pool:
        journal = Journal(Path(folder) / "journal")
        seats = recipe.members(training=True)
        if stored:
            background.run(collect(recipe, tasks, Team(seats, dict.fromkeys(seats, agents)), journal))

        def rollout(policy: PolicyEngine) -> Rollout:
            team = Team(seats, {**dict.fromkeys(AGENTS, agents), "leader": policy})
            named = {task.id: task for task in tasks}
            return Rollout(recipe.topology.load(), team, named, journal, pool.judge, recipe.train)

        train(
            recipe,
            [RowId(task.id) for task in tasks],
            model,
            tokenizer,
            rollout,
            background=background,
            output=Path(folder) / "checkpoints",
            on_step=lambda step, trainer, policy: False,
            on_log=lambda step, figures: laps.append({k: v for k, v in figures.items() if k.startswith("seconds/")}),
        )
        journal.close()
    return laps[1:]


async def seconds(engine: TransformersEngine, prompts: list[str], tokens: int) -> float:
    """Of asking all prompts at once, the second time."""
    for number in range(2):
        started = time.monotonic()
        chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
        sampling = Sampling(max_tokens=tokens)
        await asyncio.gather(*(engine.complete(chat, sampling, 100 * number + at) for at, chat in enumerate(chats)))
    return time.monotonic() - started


def described(options: argparse.Namespace, prefix: str) -> Recipe:
    agent = {"model": options.model, "sampling": {"temperature": 0.7, "max_tokens": options.tokens}}
    leader = {"model": options.model, "train": "full", "sampling": {"max_tokens": options.tokens}}
    training: dict[str, Any] = {"group_size": options.group, "tasks_per_step": options.tasks, "updates_per_step": 1}
    training |= {"micro_batch": options.micro or options.tasks * options.group, "steps": options.steps + 1}
    training |= {"save_every": 1_000_000, "prefix": prefix, "horizon": "decision", "sets": 1}
    team = {**dict.fromkeys(AGENTS, agent), "leader": leader}
    return parse_recipe({"team": team, "topology": "leader", "train": training})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96, help="of an answer, the agents' and the leader's")
    parser.add_argument("--micro", type=int, help="rows in one forward and backward pass; all of a step when not given")
    options = parser.parse_args()
    size = options.tasks * (options.steps + 1)
    tasks = load_tasks({"source": "gym:chain_sum", "size": size, "seed": 7, "verifier": "maths"})
    agents = TransformersEngine.load(options.model)
    stored = steps(described(options, "stored"), tasks, agents, stored=True)
    live = steps(described(options, "fresh"), tasks, agents, stored=False)
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows = options.tasks * options.group
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}"
    print(f"{card}, {versions}, {rows} rows")
    medians = {}
    for name, laps in (("stored", stored), ("live", live)):
        medians[name] = {part: statistics.median(lap[part] for lap in laps) for part in laps[0]}
        print(name, {part.removeprefix("seconds/"): round(value, 2) for part, value in medians[name].items()})
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        recipe = described(options, "stored")
        team = Team(recipe.members(training=True), dict.fromkeys(recipe.team, agents))
        prompts = asyncio.run(collect(recipe, tasks, team, journal))
        journal.close()
    equal = [prompt for prompt in prompts[: options.tasks] for _ in range(options.group)]
    distinct = [f"{number}. {prompt}" for number, prompt in enumerate(equal)]
    took = [asyncio.run(seconds(agents, chats, options.tokens)) for chats in (distinct, equal)]
    print("value seconds_distinct_prompts", round(took[0], 3))
    print("value seconds_equal_prompts", round(took[1], 3))
    print("ratio distinct_over_equal_prompts", round(took[0] / took[1], 2))
    print("ratio step_live_over_stored", round(medians["live"]["seconds/step"] / medians["stored"]["seconds/step"], 2))


if __name__ == "__main__":
    main()
