"""Several training seeds: what holds over seeds and tasks together, from runs that were evaluated on the same tasks.

    evaluate: {seeds: [runs/hint-1, runs/hint-2]}       # beside this run, seed 0

The other runs' rewards are read from their `scores.jsonl`; nothing is played again. An arm that was not trained has no
seeds: its rewards are this run's. Where the runs seat other models, such as an actor that was fine-tuned with each
seed, every arm has seeds. See `stats.nested_difference` for what the interval covers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean

import numpy as np

from pilotfish.evaluate.arms import Field, Played
from pilotfish.evaluate.comparison import compared
from pilotfish.evaluate.scores import FILE
from pilotfish.evaluate.stats import Difference, Floats, nested_difference
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.recipe_file import load_recipe
from pilotfish.task import Task


@dataclass(frozen=True)
class OverSeeds:
    """One benchmark over training seeds."""

    seeds: list[int]
    """This run's first."""
    accuracy: dict[str, list[float]]
    """Of each arm that has seeds, by seed."""
    difference_to: dict[str, dict[str, Difference]]
    """Of each pair of arms with one in it that has seeds, over seeds and tasks."""


class OtherSeeds:
    """The runs that `evaluate.seeds` names.

    Raises:
        RecipeError: one of them was not evaluated, or has a seed that another one has.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.folders = recipe.evaluate.seeds
        others = [load_recipe(folder) for folder in self.folders]
        self.seeds = [recipe.seed, *(other.seed for other in others)]
        self.reseated = any(_models(other) != _models(recipe) for other in others)
        self._scores = [_read(folder) for folder in self.folders]
        for folder, seed in zip(self.folders, self.seeds[1:], strict=True):
            if self.seeds.count(seed) > 1:
                raise RecipeError(f"evaluate.seeds: {folder} has seed {seed}, and so has another run; leave one out")

    def compare(self, on: Field, played: Sequence[Played]) -> OverSeeds | None:
        """The comparison of a benchmark over seeds; None where there are no other seeds, or no arm has them.

        Raises:
            RecipeError: a run that lacks an arm or a task.
        """
        arms = [one.arm for one in played]
        seeded = {arm.name for arm in arms if self.reseated or arm.role == "trained"}
        if not self.folders or not seeded:
            return None
        rewards = {one.arm.name: self._rewards(on, one, one.arm.name in seeded) for one in played}
        pairs = [(arm.name, other) for arm in arms for other in compared(arm, arms) if seeded & {arm.name, other}]
        gaps: dict[str, dict[str, Difference]] = {}
        for name, other in pairs:
            gaps.setdefault(name, {})[other] = nested_difference(rewards[name], rewards[other])
        accuracy = {name: [_mean(seed) for seed in rewards[name]] for name in rewards if name in seeded}
        return OverSeeds(self.seeds, accuracy, gaps)

    def _rewards(self, on: Field, one: Played, seeded: bool) -> Floats:
        """(seeds, tasks) of an arm that has seeds, (tasks,) of any other."""
        own = [_mean(samples) for samples in one.rewards]
        if not seeded:
            return np.array(own)
        return np.array([own, *(self._of(at, on, one.arm.name) for at in range(len(self.folders)))])

    def _of(self, at: int, on: Field, arm: str) -> list[float]:
        found = self._scores[at].get((on.benchmark, arm), {})
        if missing := next((task for task in on.tasks if task.id not in found), None):
            raise RecipeError(_lacking(self.folders[at], on.benchmark, arm, missing))
        return [_mean(found[task.id]) for task in on.tasks]


def _models(recipe: Recipe) -> dict[str, str]:
    """What sits in each seat."""
    return {name: member.deployment for name, member in recipe.team.items()}


def _lacking(folder: Path, benchmark: str, arm: str, task: Task) -> str:
    return (
        f"evaluate.seeds: {folder} has no score of {arm!r} on task {task.id} of {benchmark}; evaluate it on the same "
        f"tasks with `pilotfish eval {folder}`"
    )


def _read(folder: Path) -> Mapping[tuple[str, str], dict[str, list[float]]]:
    """Rewards of each benchmark and arm by task, of all samples."""
    file = folder / FILE
    if not file.exists():
        raise RecipeError(f"evaluate.seeds: {file} is not there; run `pilotfish eval {folder}` first")
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    with file.open(encoding="utf-8") as lines:  # answers may hold line separators of their own
        scores = [json.loads(line) for line in lines]
    for score in scores:
        tasks = found.setdefault((score["benchmark"], score["arm"]), {})
        tasks.setdefault(score["task"], []).append(nan if score["reward"] is None else score["reward"])
    return found


def _mean(rewards: Sequence[float] | Floats) -> float:
    judged = [float(reward) for reward in rewards if reward == reward]
    return fmean(judged) if judged else nan
