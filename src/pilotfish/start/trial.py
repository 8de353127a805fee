"""A trial of a judge: what it makes of the rows' own answers, and of answers to other questions.

tried = trial(recipe, meter)
tried.own, tried.other          # rewards; a judge of use keeps them apart
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from pilotfish.cache import cache_folder
from pilotfish.curriculum import curriculum
from pilotfish.engine.meter import Meter
from pilotfish.episode import Journal, Room, Team
from pilotfish.evaluate.arms import Arm, Field
from pilotfish.preflight.filler import no_verdict
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.seats import Seats
from pilotfish.task import Task
from pilotfish.topology import topology

TRIED = 4
"""Rows, each with its own answer and with another's."""
APART = 0.5
"""How far the means of both have to lie apart."""

Rewards = Sequence[float | None]
"""None where there was no verdict."""


@dataclass(frozen=True)
class Trial:
    """What the judge gave."""

    own: Rewards
    other: Rewards

    @property
    def tells_apart(self) -> bool:
        """Whether a group can learn from this judge."""
        return _mean(self.own) - _mean(self.other) >= APART


def trial(recipe: Recipe, meter: Meter) -> Trial:
    """Ask the recipe's judge about answers that are known to be right and wrong.

    Args:
        recipe: its tasks are judged by a member.
        meter: counts what is spent.

    Raises:
        RecipeError: the judge gave no verdict at all.
        Refused: see `Engine.complete`.
    """
    divided = curriculum(recipe)
    tasks = [*divided.holdout, *divided.train][: TRIED + 1]
    own = [_saying(task, task.answer, "own") for task in tasks[:TRIED]]
    other = [_saying(task, beside.answer, "other") for task, beside in pairwise(tasks)]
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        journal = Journal(Path(folder) / "journal")
        try:
            rewards, whys = asyncio.run(_judged(recipe, [*own, *other], journal, meter))
        finally:
            journal.close()
    if all(reward is None for reward in rewards):
        raise RecipeError(f"the judge gave no verdict ({whys[0]}); name another with --judge")
    return Trial(rewards[: len(own)], rewards[len(own) :])


@topology
async def said(task: Task, room: Room) -> str:
    """Asks nobody: the answer is written down."""
    return str(task.meta["said"])


def _saying(task: Task, answer: str, whose: str) -> Task:
    return replace(task, id=f"{task.id}-{whose}", meta={**task.meta, "said": answer})


async def _judged(
    recipe: Recipe, tasks: list[Task], journal: Journal, meter: Meter
) -> tuple[list[float | None], list[str]]:
    seats, kept = Seats(recipe, journal, meter), Journal(cache_folder() / "answers", shared=True)
    members = {name: member for name, member in recipe.members().items() if not member.trainee}
    try:
        arm = Arm("trial", said, Team(members, seats.frozen()))
        episodes = await Field("trial", tasks, journal, no_verdict, recipe.seed, kept).play(arm)
    finally:
        await seats.close()
        kept.close()
    return [episode.verdict.reward for episode in episodes], [episode.verdict.why for episode in episodes]


def _mean(rewards: Rewards) -> float:
    judged = [reward for reward in rewards if reward is not None]
    return sum(judged) / len(judged) if judged else 0.0
