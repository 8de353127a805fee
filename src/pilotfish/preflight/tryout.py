"""A tryout: each stage of a recipe is rehearsed on a few tasks, and what it asks for or why it cannot run is a finding.

for finding in tryout(recipe, tasks[:2]): ...
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pilotfish.episode import Journal, ReplayMismatch, TopologyError
from pilotfish.evaluate.arms import Arm, Field
from pilotfish.preflight.filler import Ledger, RehearsedSeats, no_verdict, quarter_of_characters
from pilotfish.preflight.machine import Finding
from pilotfish.preflight.rehearsal import (
    rehearse_chains,
    rehearse_collect,
    rehearse_earlier,
    rehearse_groups,
    rehearse_samples,
    rehearsed_rollout,
)
from pilotfish.preflight.stages import Stage, stages_of
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.task import Task
from pilotfish.train.profile import BacktrackConfig, CollectStage, TrainConfig

WORDS = 16
"""Tokens that each member says."""


def tryout(recipe: Recipe, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Play each stage on engines that say filler: the topology runs, comes to the decision, and asks the same for every
    row. A recipe that plays no stage is played as it is evaluated."""
    counts, tokens = dict.fromkeys(recipe.team, quarter_of_characters), dict.fromkeys(recipe.team, WORDS)
    seats = RehearsedSeats(recipe, Ledger(), counts, tokens)
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        journal = Journal(Path(folder))
        try:
            for stage in stages_of(recipe):
                if not stage.name or (stage.plays and not stage.lacking):
                    yield from _tried(_Tryout(stage, seats, journal, tasks))
        finally:
            journal.close()


class _Tryout:
    """One stage on some tasks."""

    def __init__(self, stage: Stage, seats: RehearsedSeats, journal: Journal, tasks: Sequence[Task]) -> None:
        self.stage = stage
        self.seats = seats
        self.journal = journal
        self.tasks = tasks
        self.unit = "an episode"
        """By what calls are counted."""
        self.units = len(tasks)
        """How many of these are played."""

    async def play(self) -> None:
        config, on = self.stage.config, (self.seats, self.journal, self.tasks, self.stage)
        self.seats.move_to(self.stage.recipe)
        await rehearse_earlier(*on)
        self.seats.ledger.read()  # charged to nobody
        if self.stage.recipe.trainee is None or not self.stage.plays:
            await self.episodes()
        elif isinstance(config, CollectStage):
            self.unit, self.units = "a set", self.units * self.stage.sets
            for set in range(self.stage.sets):
                await rehearse_collect(*on, config.rounds, set)
        elif isinstance(config, BacktrackConfig):
            self.unit = "a task, at most," if config.chains == "asked" else "a task"
            await rehearse_chains(*on, await rehearse_samples(*on))
        elif isinstance(config, TrainConfig):
            await self.groups(config)

    async def episodes(self) -> None:
        arm = Arm("", self.stage.recipe.topology.load(), self.seats.team(training=False))
        await Field("", self.tasks, self.journal, no_verdict).play(arm)

    async def groups(self, config: TrainConfig) -> None:
        rollout = rehearsed_rollout(self.seats, self.journal, self.tasks, self.stage)
        rows = await rehearse_groups(rollout, self.tasks, list(enumerate(self.stage.decisions)), set=0, step=0)
        self.unit, self.units = f"a group of {config.group_size}", len(rows) // config.group_size
        await rollout.without_trainee([row.id.task for row in rows])


def _tried(tried: _Tryout) -> Iterator[Finding]:
    stage = tried.stage
    topology = ", ".join(topology.name for topology in stage.recipe.topologies())
    name = f"stage {stage.name}" if stage.name else "topology"
    try:
        cautions = stage.cautions(tried.tasks[0])
        asyncio.run(tried.play())
    except (RecipeError, TopologyError, ReplayMismatch, ValueError) as error:
        yield Finding("fail", name, f"{topology}: {error}", "mend the topology or the team")
        return
    calls = {member: tally.calls / tried.units for member, tally in tried.seats.ledger.read().items()}
    asked = ", ".join(f"{count:g} of {member}" for member, count in calls.items())
    yield Finding("ok", name, f"{topology}: the calls of {tried.unit} are {asked or 'none: all is there'}")
    for caution in cautions:
        what, _, way_out = caution.rpartition("; ")
        yield Finding("warn", stage.title("decisions"), what, way_out)
