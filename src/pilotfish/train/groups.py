"""What a GRPO training is made of: its tasks, and the groups of rows that each step takes in turn.

found = groups(recipe, recipe.train, run, workshop, told)      # in the main process; the others are handed it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.collect.sets import Told
from pilotfish.collect.store import Store
from pilotfish.curriculum import Curriculum
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.task import Task
from pilotfish.train.decisions import trained_decisions
from pilotfish.train.order import Shares
from pilotfish.train.profile import TrainConfig
from pilotfish.train.row import RowId
from pilotfish.train.sifted import sifted
from pilotfish.workshop import Workshop


@dataclass(frozen=True)
class Groups:
    """What is trained on. Can be pickled."""

    tasks: Curriculum
    rows: list[RowId]
    """One id a group."""
    right: Shares | None
    """How right the stored answers are that each group stands on; None where none were collected."""
    shaped: str | None
    """Scope of the answers that an earlier leader has shaped."""


def groups(recipe: Recipe, config: TrainConfig, run: Run, workshop: Workshop, told: Told) -> Groups:
    """Find out what is trained on, and remember it in the run.

    Raises:
        RecipeError: no tasks, or the answers that were collected are others or fewer than are trained on.
        RunError: see `Run.curriculum`.
    """
    tasks, store = run.curriculum(told), Store(run.root.folder)
    kept: Sequence[Task] = tasks.train
    if config.prefix != "fresh":
        kept, store = sifted(recipe, run, workshop, kept, told)
    rows = _rows(recipe, config, store, kept)
    return Groups(tasks, rows, _right(config, store, rows), store.shaped)


def _rows(recipe: Recipe, config: TrainConfig, store: Store, tasks: Sequence[Task]) -> list[RowId]:
    sets, shaped, decided = recipe.sets(config), config.prefix == "shaped", trained_decisions(recipe, config)
    rounds = decided[0] if shaped else (0,)
    if shaped:  # round 0 was looked at when the tasks were sifted
        store.expect(recipe, rounds=rounds, tasks=tasks)
    # A set that nobody answered, or whose leader did not, has nothing to train on.
    lost = set(store.lacking(tasks, sets, rounds)) if store.sets else set()
    stands = [(task.id, number) for task in tasks for number in range(sets) if (task.id, number) not in lost]
    trained = [(decision, at) for at, decisions in enumerate(decided) for decision in decisions]
    return [RowId(*stand, *one) for stand in stands for one in trained]


def _right(config: TrainConfig, store: Store, rows: Sequence[RowId]) -> Shares | None:
    shaped = config.prefix == "shaped"
    places = {row: (row.task, row.set, row.decision if shaped else 0) for row in rows}
    return {row: store.share_right(*place) for row, place in places.items()} if store.sets else None
