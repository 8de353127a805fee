"""A sample of real calls: a recipe's team asked on a few tasks, so that an estimate stands on measured figures.

    taken = sample(recipe, 8)
    estimate_recipe(recipe, taken.measured)

Asked are the actor alone (`solo`) and the team as it is before training, on tasks that are held out from training.
Answers at temperature 0 are kept: the run that follows finds them, and so does the next sample.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pilotfish.cache import cache_folder
from pilotfish.curriculum import curriculum
from pilotfish.engine.meter import Meter
from pilotfish.episode import Episode, Journal, Judge, Team
from pilotfish.evaluate.arms import Arm, Field, baselines
from pilotfish.preflight.measured import Measured, measured
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.seats import Seats
from pilotfish.task import Task, load_tasks
from pilotfish.verify import VerifierPool


@dataclass(frozen=True)
class Sample:
    """What was asked."""

    tasks: int
    measured: Mapping[str, Measured]
    """By member."""
    right: Mapping[str, tuple[float, int]]
    """Of each method: the rewards of its answers together, and how many could be judged."""


def sample(recipe: Recipe, tasks: int, *, alone: bool = False, meter: Meter | None = None) -> Sample:
    """Ask a recipe's members on a few tasks.

    Args:
        recipe: whose team.
        tasks: how many; fewer where there are no more.
        alone: ask the actor alone; the trainee's weights are not loaded then.
        meter: counts what is spent, for whoever shows it.

    Raises:
        RecipeError: there is nobody to ask alone, or nobody answered.
        Refused: see `Engine.complete`.
    """
    on = _tasks(recipe)[:tasks]
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder, VerifierPool() as pool:
        journal = Journal(Path(folder) / "journal")
        try:
            played = asyncio.run(_play(recipe, on, journal, pool.judge, alone, meter))
            found = measured(journal.turns(), together=len(on))
        finally:
            journal.close()
    _check_answered(played, found)
    return Sample(len(on), found, {name: _right(episodes) for name, episodes in played.items()})


def _tasks(recipe: Recipe) -> list[Task]:
    """The holdout first, which a training asks about before anything else; never what is measured on, unless there is
    nothing else."""
    if recipe.tasks is None:
        return [task for source in recipe.evaluate.benchmarks for task in load_tasks(source)]
    divided = curriculum(recipe)
    return [*divided.holdout, *divided.train]


async def _play(
    recipe: Recipe, tasks: list[Task], journal: Journal, judge: Judge, alone: bool, meter: Meter | None
) -> dict[str, list[Episode]]:
    seats, kept = Seats(recipe, journal, meter), Journal(cache_folder() / "answers", shared=True)
    field = Field("sample", tasks, journal, judge, recipe.seed, kept)
    try:
        return {arm.name: await field.play(arm) for arm in _arms(recipe, seats, alone)}
    finally:
        await seats.close()
        kept.close()


def _arms(recipe: Recipe, seats: Seats, alone: bool) -> list[Arm]:
    members = recipe.members()
    if not alone:
        everyone = Team(members, {name: seats.engine(name) for name in members})
        own = recipe.topology.load()
        arms = [Arm(own.name + (", untrained" if recipe.trainee else ""), own, everyone)]
    else:
        arms, everyone = [], Team({n: m for n, m in members.items() if not m.trainee}, seats.frozen())
    solo = next((topology for topology in baselines(recipe) if topology.name == "solo"), None)
    if alone and solo is None:
        raise RecipeError("evaluate.against has no `solo`: nobody answers alone")
    return ([Arm("solo", solo, everyone)] if solo else []) + arms


def _check_answered(played: Mapping[str, list[Episode]], found: Mapping[str, Measured]) -> None:
    whys = [episode.verdict.why for episodes in played.values() for episode in episodes if episode.answer is None]
    if whys and not found:
        raise RecipeError(
            f"no call of the sample was answered ({whys[0]}); mend the member, or go without (init: --samples 0)"
        )


def _right(episodes: list[Episode]) -> tuple[float, int]:
    rewards = [episode.verdict.reward for episode in episodes if episode.verdict.reward is not None]
    return sum(rewards), len(rewards)
