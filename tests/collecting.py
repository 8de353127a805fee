"""A stage for tests of `collect`: a loopback server behind every agent, a leader that needs no model, a recipe.

    with MockServer(reply=answer) as server:
        collected = collect(recipe(folder, server.base_url), folder / "run")

What an agent says depends on the seed of its call, so that two calls that share no key share no answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pilotfish import Run, ScriptedEngine, Team
from pilotfish.collect.collected import Collected
from pilotfish.collect.main import collect_in
from pilotfish.collect.store import Store
from pilotfish.curriculum import curriculum
from pilotfish.engine.base import Completion
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.train.rollout import Rollout, Row, RowId
from pilotfish.workshop import Workshop


def answer(body: dict[str, Any]) -> str:
    """Right or wrong by the seed; no two alike."""
    question = body["messages"][-1]["content"]
    number = int(question.split("What is ")[1].split(" ")[0]) + 7
    return f"call {body['seed']}: \\boxed{{{number + body['seed'] % 2}}}"


def recipe(
    folder: Path,
    base_url: str,
    *,
    tasks: int = 4,
    sets: int = 2,
    agents: Sequence[str] = ("ann", "bob"),
    temperature: float = 0.7,
    **more: Any,
) -> Recipe:
    """A leader over agents behind a server; `more` stands beside `team` in the recipe."""
    file = folder / "tasks.jsonl"
    rows = [{"id": f"t{n}", "question": f"What is {n} + 7?", "answer": str(n + 7)} for n in range(tasks)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    agent = {"engine": "openai", "base_url": base_url, "retries": 0, "sampling": {"temperature": temperature}}
    team = {name: {**agent, "model": f"model-{name}"} for name in agents}
    leader = {"model": "no/such-model", "train": "full", "sampling": {"max_tokens": 8}}
    return parse_recipe(
        {
            "tasks": {"train": str(file), "holdout": 0},
            "team": {"leader": leader, **team},
            "topology": {"name": "leader"},
            "train": {"group_size": 2, "tasks_per_step": 2, "updates_per_step": 1, "micro_batch": 4},
            "evaluate": {"against": []},
            **more,
            "collect": {"sets": sets, **more.get("collect", {})},
        }
    )


class Led(ScriptedEngine):
    """A leader with token ids that never says the same twice; its name is that of its weights."""

    def __init__(self, name: str = "leader-1") -> None:
        super().__init__(lambda messages, sampling, seed: f"<think>{name}, {seed}</think><answer>1</answer>", name)

    async def complete(self, messages: Any, sampling: Any, seed: int) -> Completion:
        done = await super().complete(messages, sampling, seed)
        return replace(done, prompt_ids=(1,), completion_ids=(2,), logprobs=(-1.0,))


def collect_led(recipe: Recipe, folder: Path, rounds: Iterable[int], leader: Any = None, **more: Any) -> Collected:
    """Collect as a stage does, with a scripted leader."""
    with Run(folder, recipe) as run, Workshop(recipe, run) as workshop:
        told = more.pop("told", lambda kind, step, figures: None)
        return collect_in(recipe, run, workshop, rounds, told=told, leader=leader, **more)


def step(recipe: Recipe, folder: Path, decision: int = 0) -> list[Row]:
    """One training step over all tasks and sets, as `train` makes it, with a scripted policy."""
    with Run(folder, recipe) as run, Workshop(recipe, run) as workshop:
        tasks = curriculum(recipe, run.state("curriculum")).train
        topology = recipe.topology.load().bind(rounds=decision + 1)
        team = Team(recipe.members(training=True), {**workshop.seats.frozen(), "leader": Led("policy")})
        rollout = Rollout(
            topology,
            team,
            {task.id: task for task in tasks},
            workshop.journal,
            workshop.pool.judge,
            recipe.train,  # type: ignore[arg-type]
            seed=recipe.seed,
            kept=workshop.kept,
            shaped=Store(folder).shaped,
        )
        ids = [str(RowId(task.id, set, decision)) for task in tasks for set in range(recipe.collect.sets)]
        return workshop.play(rollout.step([id for id in ids for _ in range(2)], 0))
