"""The curriculum: the tasks that a recipe trains on, those it holds out, and those that a benchmark has too."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pilotfish.episode.calls import digest
from pilotfish.overlap import Overlap, without_overlap
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.task import Task, TaskError, load_tasks
from pilotfish.verifier import NAMES

READ = ("alt_answers", "rubric", "dataset", "entry")
"""What the built-in verifiers read of a task's `meta`; the built-in topologies read nothing of it."""


@dataclass(frozen=True)
class Curriculum:
    """Tasks of a training run."""

    train: list[Task]
    holdout: list[Task]
    """To choose the best checkpoint by; never trained on."""
    repeats: list[Overlap]
    """Training tasks that stand in an evaluation benchmark: dropped, unless the recipe keeps them."""

    def ids(self) -> dict[str, list[str]]:
        """Which tasks a run keeps."""
        return {"train": [task.id for task in self.train], "holdout": [task.id for task in self.holdout]}

    def digests(self, whole: bool) -> dict[str, str]:
        """What is played and judged of each task, by id. Who judges stands in the recipe.

        Args:
            whole: whether a topology of the user's own may read all of `meta`.
        """
        return {task.id: _digest(task, whole) for task in (*self.train, *self.holdout)}


def curriculum(recipe: Recipe, recorded: Mapping[str, Any] | None = None) -> Curriculum:
    """Load and divide a recipe's training tasks.

    The holdout is drawn by the recipe's seed from the whole source, one of each question; no training task asks what
    a holdout task asks. Training tasks keep the source's order.

    Args:
        recipe: its `tasks`, and the benchmarks that may hold some of them.
        recorded: `Curriculum.ids` of a run that has begun: it keeps its tasks, whatever is measured now.

    Raises:
        RecipeError: no tasks to train on.
        TaskError: a source that cannot be read, or tasks that a benchmark has under `overlap: refuse`.
    """
    config = recipe.tasks
    if config is None:
        raise RecipeError("tasks is missing: name what to train on, e.g. `tasks: {train: math8k, holdout: 64}`")
    tasks = _mixed([load_tasks(source) for source in config.train])
    if recorded:
        return _again(tasks, recorded)
    benchmarks = {source.title: load_tasks(source) for source in recipe.evaluate.benchmarks}
    tasks, repeats = without_overlap(tasks, benchmarks, config.overlap)
    first = list({task.question: at for at, task in reversed(list(enumerate(tasks)))}.values())[::-1]
    if len(first) <= config.holdout:
        raise RecipeError(f"tasks.holdout is {config.holdout} of {len(first)} questions; none is left to train on")
    held = sorted(random.Random(recipe.seed).sample(first, config.holdout))
    questions = {tasks[at].question for at in held}
    train = [task for task in tasks if task.question not in questions]
    return Curriculum(train[: config.limit], [tasks[at] for at in held], repeats)


def _mixed(sources: Sequence[Sequence[Task]]) -> list[Task]:
    """The sources' tasks, one of each in turn, so that a limit takes from all of them.

    Raises:
        TaskError: two sources have tasks of one id.
    """
    mixed = [task for turn in zip_longest(*sources) for task in turn if task is not None]
    ids = [task.id for task in mixed]
    if len(set(ids)) < len(ids):
        twice = next(id for id in ids if ids.count(id) > 1)
        raise TaskError(f"tasks.train: the id {twice!r} stands in two of the sources; give the tasks ids that differ")
    return mixed


def _again(tasks: Sequence[Task], recorded: Mapping[str, Any]) -> Curriculum:
    known = {task.id: task for task in tasks}
    missing = [id for id in (*recorded["train"], *recorded["holdout"]) if id not in known]
    if missing:
        raise RecipeError(f"tasks.train no longer holds {missing[0]!r}, which this run began with; restore the source")
    return Curriculum([known[id] for id in recorded["train"]], [known[id] for id in recorded["holdout"]], [])


def _digest(task: Task, whole: bool) -> str:
    read = task.meta if whole or task.verifier not in NAMES else {k: task.meta[k] for k in READ if k in task.meta}
    ordered = json.dumps(read, sort_keys=True)
    return digest(task.question, task.answer, task.verifier, task.instruction, task.choices, ordered)
