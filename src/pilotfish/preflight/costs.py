"""What the stages of a recipe ask for: each is rehearsed on a sample of the tasks, and its calls are scaled to all.

Stages share one journal, as in a run: what was collected in one is not charged to the next.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish.episode import Journal
from pilotfish.evaluate.arms import Arm, Field
from pilotfish.preflight.filler import Count, Ledger, RehearsedSeats, Tally, no_verdict
from pilotfish.preflight.rehearsal import (
    Part,
    rehearse_chains,
    rehearse_collect,
    rehearse_earlier,
    rehearse_groups,
    rehearse_samples,
    rehearsed_rollout,
)
from pilotfish.preflight.stages import Stage
from pilotfish.recipe import Recipe
from pilotfish.task import Task
from pilotfish.train.order import parts
from pilotfish.train.profile import BacktrackConfig, CollectStage, TrainConfig
from pilotfish.train.row import Row, RowId

COLLECT, SAMPLES, CHAINS, TRAINING, HOLDOUT = "collect", "samples", "chains, at most", "training", "holdout"


@dataclass(frozen=True)
class Portion:
    """Tasks, and the sample of them that is rehearsed."""

    all: int
    sample: list[Task]

    @classmethod
    def of(cls, tasks: Sequence[Task], size: int) -> Portion:
        """A sample that is the same each time."""
        return cls(len(tasks), random.Random(0).sample(list(tasks), min(size, len(tasks))))

    @property
    def times(self) -> float:
        """Tasks that one of the sample stands for."""
        return self.all / len(self.sample)


@dataclass
class Rehearsal:
    """One rehearsal of a whole recipe, and what it has come to."""

    recipe: Recipe
    counts: Mapping[str, Count]
    tokens: Mapping[str, int]
    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    totals: dict[tuple[str, str], Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seats = RehearsedSeats(self.recipe, self.ledger, self.counts, self.tokens)
        self.journal = Journal(self.folder / "journal")

    def book(self, stage: str, times: float) -> None:
        """Charge what was played since the last time to a stage."""
        for member, tally in self.ledger.read().items():
            self.totals.setdefault((stage, member), Tally()).add(tally, times)

    def field(self, name: str, tasks: Sequence[Task]) -> Field:
        """What arms are played on."""
        return Field(name, tasks, self.journal, no_verdict, self.recipe.seed)


async def rehearse_stage(rehearsal: Rehearsal, stage: Stage, train: Portion, holdout: Portion) -> None:
    """Rehearse and book one stage.

    Args:
        rehearsal: in which the stages before it were played.
        stage: plays episodes.
        train: the training tasks.
        holdout: the tasks to choose the weights by.

    Raises:
        TopologyError, ValueError: see `rehearsal`, and `train.profile.steps`.
    """
    rehearsal.seats.move_to(stage.recipe)
    await rehearse_earlier(rehearsal.seats, rehearsal.journal, train.sample, stage)
    rehearsal.ledger.read()  # charged to nobody
    config = stage.config
    if isinstance(config, CollectStage):
        await _collect(rehearsal, stage, train, config)
    elif isinstance(config, BacktrackConfig):
        await _backtrack(rehearsal, stage, train)
    elif isinstance(config, TrainConfig):
        await _training(rehearsal, stage, train, config)
        await _holdout(rehearsal, stage, holdout, config, stage.steps(train.all))


async def _collect(rehearsal: Rehearsal, stage: Stage, train: Portion, config: CollectStage) -> None:
    for set in range(stage.sets):
        await rehearse_collect(rehearsal.seats, rehearsal.journal, train.sample, stage, config.rounds, set)
    rehearsal.book(stage.title(COLLECT), train.times)


async def _backtrack(rehearsal: Rehearsal, stage: Stage, train: Portion) -> None:
    seats, journal = rehearsal.seats, rehearsal.journal
    samples = await rehearse_samples(seats, journal, train.sample, stage)
    rehearsal.book(stage.title(SAMPLES), train.times)
    await rehearse_chains(seats, journal, train.sample, stage, samples)
    rehearsal.book(stage.title(CHAINS), train.times)


async def _training(rehearsal: Rehearsal, stage: Stage, train: Portion, config: TrainConfig) -> None:
    """Episodes of which steps train all decisions or some; each task also is played once without the trainee, to
    compare with."""
    laid, tasks, rows = stage.laid(train.all), train.sample, list[Row]()
    rollout = rehearsed_rollout(rehearsal.seats, rehearsal.journal, tasks, stage)
    for step, (part, set, times) in enumerate(_visits(stage, laid, config)):
        rows = await rehearse_groups(rollout, tasks, [part], set, step)
        rehearsal.book(stage.title(TRAINING), times / len(tasks))
    await rollout.without_trainee([row.id.task for row in rows])
    rehearsal.book(stage.title(TRAINING), len({row.task for row in laid}) / len(tasks))


def _visits(stage: Stage, laid: Sequence[RowId], config: TrainConfig) -> list[tuple[Part, int, float]]:
    """What is played, on which stored set, and how often: whole episodes on what is met for the first time, then what
    steps make of them on what was met before. Of parts the first time is taken as that of the whole, less a later one.
    """
    # Sets are alike where their answers are there; where they are not, the first may share what it asks with the rest.
    sets = range(stage.sets) if stage.unasked else range(1)
    new = Counter(at for _, _, at in {row.stand for row in laid})
    visits = [(part, set, new[part[0]] / len(sets)) for part in enumerate(stage.decisions) for set in sets]
    later = Counter(
        (part[0].topology, tuple(row.decision for row in part)) for part in parts(laid, config.tasks_per_step)
    )
    later.subtract({part: new[part[0]] for part in enumerate(stage.decisions)})
    return [visit for visit in (*visits, *((part, 0, float(times)) for part, times in later.items())) if visit[2]]


def later_evaluations(config: TrainConfig, steps: int) -> int:
    """Evaluations on the holdout, but for the one before training."""
    return steps // config.evaluate_every + bool(steps % config.evaluate_every)


async def _holdout(rehearsal: Rehearsal, stage: Stage, holdout: Portion, config: TrainConfig, steps: int) -> None:
    """The evaluation before training, and the later ones: other weights, and all that did not change shared."""
    if not holdout.all:
        return
    later = later_evaluations(config, steps)
    field = rehearsal.field(f"{stage.place}{HOLDOUT}", holdout.sample)
    for trained, times in enumerate((1, later)):
        version = stage.first_version + trained
        team = rehearsal.seats.team(training=False, version=version)
        for topology in stage.recipe.topologies():
            await field.play(Arm(f"{version}", topology, team))
        rehearsal.book(stage.title(HOLDOUT), times * holdout.times)
