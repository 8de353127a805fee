"""The curriculum: the tasks that a recipe trains on, those it holds out, and those that a benchmark has too."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pilotfish.overlap import Overlap, without_overlap
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.task import Task, load_tasks


@dataclass(frozen=True)
class Curriculum:
    """Tasks of a training run."""

    train: list[Task]
    holdout: list[Task]
    """To choose the best checkpoint by; never trained on."""
    repeats: list[Overlap]
    """Training tasks that stand in an evaluation benchmark: dropped, unless the recipe keeps them."""


def curriculum(recipe: Recipe) -> Curriculum:
    """Load and divide a recipe's training tasks.

    The holdout is drawn by the recipe's seed from the whole source; training tasks keep the source's order.

    Raises:
        RecipeError: no tasks to train on.
        TaskError: a source that cannot be read, or tasks that a benchmark has under `overlap: refuse`.
    """
    config = recipe.tasks
    if config is None:
        raise RecipeError("tasks is missing: name what to train on, e.g. `tasks: {train: math8k, holdout: 64}`")
    benchmarks = {source.name: load_tasks(source) for source in recipe.evaluate.benchmarks}
    tasks, repeats = without_overlap(load_tasks(config.train), benchmarks, config.overlap)
    if len(tasks) <= config.holdout:
        raise RecipeError(f"tasks.holdout is {config.holdout} of {len(tasks)} tasks; none is left to train on")
    held = set(random.Random(recipe.seed).sample(range(len(tasks)), config.holdout))
    train = [task for at, task in enumerate(tasks) if at not in held]
    return Curriculum(train[: config.limit], [tasks[at] for at in sorted(held)], repeats)
