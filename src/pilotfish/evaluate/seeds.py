"""Several training seeds: what holds over seeds and tasks together, from runs that were evaluated on the same tasks.

    evaluate: {seeds: [runs/hint-1, runs/hint-2]}       # beside this run, seed 0

The other runs' rewards are read from their `scores.jsonl`; nothing is played again. An arm that was not trained has no
seeds: its rewards are this run's. Where the runs seat other models, such as an actor that was fine-tuned with each
seed, every arm has seeds. See `stats.nested_difference` for what the interval covers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from shlex import quote
from statistics import fmean

import numpy as np

from pilotfish.evaluate.arms import Arm, Field, Played
from pilotfish.evaluate.comparison import compared
from pilotfish.evaluate.scores import FILE
from pilotfish.evaluate.stats import Difference, Floats, nested_difference
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.recipe_file import load_recipe

_COMPARED = ("benchmarks", "against", "untrained", "alone", "controls", "models")
"""Settings of an evaluation that decide which figures it has."""


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
        self.recipe = recipe
        self.folders = recipe.evaluate.seeds
        self._others = [load_recipe(folder) for folder in self.folders]
        self.seeds = [recipe.seed, *(other.seed for other in self._others)]
        self.reseated = any(_models(other) != _models(recipe) for other in self._others)
        self._scores = [_read(folder) for folder in self.folders]
        for folder, seed in zip(self.folders, self.seeds[1:], strict=True):
            if self.seeds.count(seed) > 1:
                raise RecipeError(f"evaluate.seeds: {folder} has seed {seed}, and so has another run; leave one out")

    def check(self, fields: Sequence[Field], arms: Sequence[Arm]) -> None:
        """Make sure that the other runs have the figures of what is compared with them.

        Args:
            fields: the benchmarks.
            arms: those that are known so far.

        Raises:
            RecipeError: a run that lacks an arm or a task, or has another gold answer.
        """
        for on in fields:
            for arm in filter(self._has_seeds, arms):
                for at in range(len(self.folders)):
                    self._of(at, on, arm.name)

    def _has_seeds(self, arm: Arm) -> bool:
        return self.reseated or arm.role == "trained"

    def compare(self, on: Field, played: Sequence[Played]) -> OverSeeds | None:
        """The comparison of a benchmark over seeds; None where there are no other seeds, or no arm has them.

        Raises:
            RecipeError: as for `check`.
        """
        arms = [one.arm for one in played]
        seeded = {arm.name for arm in arms if self._has_seeds(arm)}
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
        scores, place = self._scores[at], f"evaluate.seeds: {self.folders[at]}"
        found = scores.rewards.get((on.benchmark, arm), {})
        for task in on.tasks:
            if task.id not in found:
                lacks = f"{place} has no score of {arm!r} on task {task.id} of {on.benchmark}"
                raise RecipeError(f"{lacks}; {self._way_out(at)}")
            if (gold := scores.golds.get((on.benchmark, task.id))) not in (None, task.answer):
                told = f"{gold!r} there, and {task.answer!r} here"
                raise RecipeError(
                    f"{place}: the answer to task {task.id} of {on.benchmark} is {told}; {self._way_out(at)}"
                )
        return [_mean(found[task.id]) for task in on.tasks]

    def _way_out(self, at: int) -> str:
        """How to evaluate a run on the same tasks, with the same methods."""
        own, other = self.recipe.evaluate, self._others[at].evaluate
        differing = [name for name in _COMPARED if getattr(own, name) != getattr(other, name)]
        differing += ["weights"] if set(own.weights) != set(other.weights) else []
        values = own.model_dump(mode="json") | own.model_dump(mode="json", exclude_defaults=True)
        settings = [f"evaluate.{name}={json.dumps(values[name], ensure_ascii=False)}" for name in differing]
        command = " --set ".join(["pilotfish eval " + quote(str(self.folders[at])), *map(quote, settings)])
        rest = json.dumps([str(folder) for folder in self.folders if folder != self.folders[at]], ensure_ascii=False)
        without = quote(f"evaluate.seeds={rest}")
        return f"evaluate it on the same tasks with `{command}`, or leave it out with --set {without}"


def _models(recipe: Recipe) -> dict[str, str]:
    """What sits in each seat."""
    return {name: member.deployment for name, member in recipe.team.items()}


@dataclass(frozen=True)
class _Scores:
    """What a run has scored."""

    rewards: dict[tuple[str, str], dict[str, list[float]]] = field(default_factory=dict)
    """Of each benchmark and arm by task, of all samples."""
    golds: dict[tuple[str, str], str] = field(default_factory=dict)
    """Gold answers by benchmark and task, where the scores tell them."""


def _read(folder: Path) -> _Scores:
    file = folder / FILE
    if not file.exists():
        raise RecipeError(f"evaluate.seeds: {file} is not there; run `pilotfish eval {quote(str(folder))}` first")
    found = _Scores()
    with file.open(encoding="utf-8") as lines:  # answers may hold line separators of their own
        scores = [json.loads(line) for line in lines]
    for score in scores:
        tasks = found.rewards.setdefault((score["benchmark"], score["arm"]), {})
        tasks.setdefault(score["task"], []).append(nan if score["reward"] is None else score["reward"])
        if (gold := score.get("gold")) is not None:
            found.golds[score["benchmark"], score["task"]] = gold
    return found


def _mean(rewards: Sequence[float] | Floats) -> float:
    judged = [float(reward) for reward in rewards if reward == reward]
    return fmean(judged) if judged else nan
