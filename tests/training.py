"""A stage for training tests: a tiny model, a scripted actor that its words can help, and one call that trains.

    learned = learn(recipe(save_tiny(folder), "hint", steps=2), PROMPTS["hint"], folder)
    learned.logged[0]["reward"]

The actor is right if and only if the trainee's words begin with a vowel, so a model of a few hundred thousand weights
learns the task in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilotfish import Journal, ScriptedEngine, Task, Team, Topology, Verdict
from pilotfish.background import Background
from pilotfish.engine.base import Engine
from pilotfish.engine.loading import load
from pilotfish.episode import Judge
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.topology import critic, hint, solo
from pilotfish.train.grpo import train
from pilotfish.train.rollout import Rollout
from pilotfish.train.row import Row, RowId
from tiny import save_tiny, tiny_tokenizer

TASKS = {f"t{n}": Task(f"t{n}", f"What is {n} and 7?", "yes", verifier="exact") for n in range(8)}
LETTERS = set("aeiouAEIOU")
PROMPTS = {
    "hint": hint.bind(prompts={"solve": {"user": "{question} SAID:{hint}"}}),
    "critic": critic.bind(prompts={"revise": {"user": "{question} {draft} SAID:{comment}"}}),
    "solo": solo.bind(member="collaborator"),
    "alone": solo.bind(member="actor"),
}


def helps(messages: Any, sampling: Any, seed: int) -> str:
    """An actor that is right if and only if the collaborator's words begin with a vowel; it drafts wrongly."""
    said = messages[-1]["content"].rpartition("SAID:")[2]
    return "yes" if said[:1] in LETTERS else "no"


async def exact(task: Task, answer: str, form: str) -> Verdict:
    right = answer == task.answer or answer[:1] in LETTERS
    return Verdict(float(right), answer)


def recipe(model: Path, topology: str, *, lora: Any = None, max_tokens: int = 3, seed: int = 0, **train: Any) -> Recipe:
    """Steps of 4 groups of 16 in one update, unless told otherwise."""
    settings = {"group_size": 16, "tasks_per_step": 4, "updates_per_step": 1, "micro_batch": 64, "learning_rate": 3e-3}
    settings |= {"warmup_steps": 0, "weight_decay": 0.0, "steps": 25, **train}
    trainee = {"model": str(model), "train": lora or "full", "dtype": "float32"}
    trainee["sampling"] = {"temperature": 0, "max_tokens": max_tokens}
    team = {"collaborator": trainee, "actor": {"model": "scripted"}}
    return parse_recipe({"team": team, "topology": topology, "train": settings, "seed": seed})


@dataclass
class Learned:
    """What a training left behind."""

    trainer: Any = None
    policy: Any = None
    logged: list[dict[str, Any]] = field(default_factory=list)
    """What was logged of each step."""
    rows: list[list[Row]] = field(default_factory=list)
    """The rows of each step."""
    rollout: Rollout | None = None

    @property
    def rewards(self) -> list[float]:
        return [figures["reward"] for figures in self.logged]


def learn(
    recipe: Recipe,
    topology: Topology,
    folder: Path,
    *,
    tasks: Mapping[str, Task] = TASKS,
    judge: Judge = exact,
    actor: Engine | None = None,
    at_step: Callable[[int, Learned], bool] = lambda step, learned: False,
    model: Any = None,
    alone: Topology | None = None,
    mix: Sequence[Topology] = (),
    rows: Sequence[RowId] | None = None,
) -> Learned:
    """Train a recipe's collaborator through TRL with a scripted actor.

    Args:
        recipe: made by `recipe`.
        topology: who asks whom.
        folder: holds journal and checkpoints.
        tasks: by id.
        judge: gives verdicts.
        actor: the frozen member; `helps` by default.
        at_step: called before training (0) and after each step; True stops.
        model: the trainee's weights; loaded when None.
        alone: what the team is compared with at each step.
        mix: further topologies.
        rows: the groups of an epoch; the first decision on each task when None.
    """
    learned = Learned()
    background, journal = Background(), Journal(folder / "journal")
    member = recipe.team["collaborator"]

    def rollout(policy: Any) -> Rollout:
        learned.policy = policy
        team = Team(recipe.members(training=True), {"collaborator": policy, "actor": actor or ScriptedEngine(helps)})
        more = {"alone": alone, "mix": mix}
        learned.rollout = _Recorded(learned.rows, topology, team, tasks, journal, judge, recipe.train, **more)
        return learned.rollout

    def on_step(step: int, trainer: Any, policy: Any) -> bool:
        learned.trainer = trainer
        return at_step(step, learned)

    try:
        train(
            recipe,
            rows or [RowId(task) for task in tasks],
            model or load(member.model, dtype=member.dtype, device="cpu")[0],
            tiny_tokenizer(),
            rollout,
            background=background,
            output=folder / "checkpoints",
            on_step=on_step,
            on_log=lambda step, figures: learned.logged.append(dict(figures)),
        )
    finally:
        if learned.policy is not None:
            background.run(learned.policy.close())
        background.close()
        journal.close()
    return learned


class _Recorded(Rollout):
    """A rollout that keeps its rows for the test."""

    def __init__(self, kept: list[list[Row]], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.kept_rows = kept

    async def compared(self, ids: Any, step: int, part: slice = slice(None), share: slice = slice(None)) -> Any:
        rows, alone = await super().compared(ids, step, part, share)
        self.kept_rows.append(rows)
        return rows, alone


def vowels_recipe(folder: Path, *, holdout: int = 4, lora: Any = None, **train: Any) -> Recipe:
    """A whole recipe for `pilotfish.train.main.train`: a saved tiny model, 12 tasks in a file, `vowels.py`."""
    save_tiny(folder / "model")
    file = folder / "tasks.jsonl"
    tasks = [{"id": f"t{n}", "question": f"What is {n} and 7?", "answer": "yes"} for n in range(12)]
    file.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    trained = recipe(
        folder / "model", "solo", lora=lora, **{"group_size": 8, "tasks_per_step": 2, "micro_batch": 8, **train}
    )
    data = trained.model_dump(mode="json")
    data["team"].pop("actor")
    data["topology"] = f"{Path(__file__).with_name('vowels.py')}:vowels"
    data["tasks"] = {"train": {"source": str(file), "verifier": "exact"}, "holdout": holdout}
    data["evaluate"] = {"against": []}
    return parse_recipe(data)
