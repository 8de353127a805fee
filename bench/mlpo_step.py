"""A step of MLPO on stored answers against the same step with live agents; and what equal prompts of a group save.

    python bench/mlpo_step.py --model smollm2 --steps 4 --tasks 16 --group 16         # on a GPU
    python bench/mlpo_step.py --model smollm2 --steps 2 --tasks 2 --group 4 --tokens 16 # anywhere

Leader and three agents are the same model; agents sample at 0.7. Both sides train the leader's first turn on the same
tasks; one finds the agents' answers in the journal, the other asks for them at each step. Steps and their parts are
printed as `step_vs_trl.py` prints them; two of each side warm up. Then the leader's prompts alone: G times each, as in
a group, and as many different ones. Ends with `ratio step_live_over_stored VALUE` and
`ratio distinct_over_equal_prompts VALUE`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from _ours import Ours
from _steps import Flown, Steps, where
from pilotfish import Journal, Recipe, Sampling, Scopes, Task, Team, Verdict, load_tasks, play
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.episode import Horizon
from pilotfish.recipe import parse_recipe
from pilotfish.team import Message
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


def steps(options: argparse.Namespace, tasks: list[Task], agents: TransformersEngine, *, stored: bool) -> Steps:
    """Steps on stored answers or with live agents."""
    name, timed = "stored" if stored else "live", Steps(options.steps)
    recipe, flown = described(options, "stored" if stored else "fresh"), Flown(agents)
    seats = recipe.members(training=True)

    async def first(journal: Journal) -> None:
        await collect(recipe, tasks, Team(seats, dict.fromkeys(seats, agents)), journal)

    with VerifierPool() as pool, timed.told(name):
        ours = Ours(recipe, tasks, dict.fromkeys(AGENTS, flown), pool.judge, timed)
        ours.train(first=first if stored else None)
    return timed


async def seconds(engine: TransformersEngine, prompts: list[str], tokens: int) -> float:
    """Of asking all prompts at once, the second time."""
    for number in range(2):
        started = time.monotonic()
        chats = [[Message(role="user", content=prompt)] for prompt in prompts]
        sampling = Sampling(max_tokens=tokens)
        await asyncio.gather(*(engine.complete(chat, sampling, 100 * number + at) for at, chat in enumerate(chats)))
    return time.monotonic() - started


def described(options: argparse.Namespace, prefix: str) -> Recipe:
    agent = {"model": options.model, "sampling": {"temperature": 0.7, "max_tokens": options.tokens}}
    leader = {"model": options.model, "train": "full", "sampling": {"max_tokens": options.tokens}}
    training: dict[str, Any] = {"group_size": options.group, "tasks_per_step": options.tasks, "updates_per_step": 1}
    training |= {"micro_batch": options.micro or options.tasks * options.group, "steps": Steps(options.steps).needed}
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
    size = options.tasks * Steps(options.steps).needed
    tasks = load_tasks({"source": "gym:chain_sum", "size": size, "seed": 7, "verifier": "maths"})
    agents = TransformersEngine.load(options.model)
    print(where(options.tasks * options.group))
    medians = [statistics.median(steps(options, tasks, agents, stored=stored).seconds) for stored in (True, False)]
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
    print("ratio step_live_over_stored", round(medians[1] / medians[0], 2))


if __name__ == "__main__":
    main()
