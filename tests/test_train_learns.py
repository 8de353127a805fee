"""GRPO learns: a model of a few hundred thousand weights and a scripted actor, in seconds, in each topology.

.venv/bin/python -m pytest tests/test_train_learns.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish import Journal, ScriptedEngine, Task, Team, Topology, Verdict
from pilotfish.background import Background
from pilotfish.recipe import Recipe, parse_recipe
from pilotfish.topology import critic, hint, solo
from pilotfish.train.grpo import train
from pilotfish.train.rollout import Rollout, RowId
from tiny import save_tiny, tiny_model, tiny_tokenizer

TASKS = {f"t{n}": Task(f"t{n}", f"What is {n} and 7?", "yes", verifier="exact") for n in range(8)}
LETTERS = set("aeiouAEIOU")


def helps(messages, sampling, seed) -> str:
    """An actor that is right if and only if the collaborator's words begin with a vowel; it drafts wrongly."""
    said = messages[-1]["content"].rpartition("SAID:")[2]
    return "yes" if said[:1] in LETTERS else "no"


async def exact(task: Task, answer: str, form: str) -> Verdict:
    right = answer == task.answer or (task.id.startswith("t") and answer[:1] in LETTERS)
    return Verdict(float(right), answer)


def recipe(model: Path, topology: str, **train) -> Recipe:
    settings = {"group_size": 16, "tasks_per_step": 4, "updates_per_step": 1, "micro_batch": 64, "learning_rate": 3e-3}
    settings |= {"warmup_steps": 0, "weight_decay": 0.0, "steps": 25, **train}
    member = {"model": str(model), "train": "full", "dtype": "float32", "sampling": {"temperature": 0, "max_tokens": 3}}
    team = {"collaborator": member, "actor": {"model": "scripted"}}
    return parse_recipe({"team": team, "topology": topology, "train": settings})


def rewards(recipe: Recipe, topology: Topology, folder: Path, tasks=TASKS, judge=exact) -> list[float]:
    """Mean reward of each step of a training."""
    logged: list[float] = []
    background, journal = Background(), Journal(folder / "journal")

    def rollout(policy) -> Rollout:
        team = Team(recipe.members(training=True), {"collaborator": policy, "actor": ScriptedEngine(helps)})
        return Rollout(topology, team, tasks, journal, judge, recipe.train)

    try:
        train(
            recipe,
            [RowId(task) for task in tasks] * 16,
            tiny_model(0),
            tiny_tokenizer(),
            rollout,
            background=background,
            output=folder / "checkpoints",
            on_step=lambda step, trainer, policy: False,
            on_log=lambda step, figures: logged.append(figures["reward"]),
        )
    finally:
        background.close()
        journal.close()
    return logged


PROMPTS = {
    "hint": hint.bind(prompts={"solve": {"user": "{question} SAID:{hint}"}}),
    "critic": critic.bind(prompts={"revise": {"user": "{question} {draft} SAID:{comment}"}}),
    "solo": solo.bind(member="collaborator"),
}


@pytest.mark.parametrize("name", ["solo", "hint", "critic"])
def test_the_reward_rises_from_below_a_third_to_above_nine_tenths(name: str, tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    seen = rewards(recipe(tmp_path / "model", name), PROMPTS[name], tmp_path)
    assert seen[0] < 0.3
    assert sum(seen[-3:]) / 3 > 0.9
