"""The tasks that a training learns on: the run's, without those whose stored answers say that they teach nothing."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.collect.filter import sift
from pilotfish.collect.main import collect_in
from pilotfish.collect.sets import Told
from pilotfish.collect.store import Store
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.task import Task
from pilotfish.workshop import Workshop


def sifted(recipe: Recipe, run: Run, workshop: Workshop, tasks: Sequence[Task], told: Told) -> tuple[list[Task], Store]:
    """The tasks that the filter keeps, all where nothing was collected; and what was collected.

    Answers in a file (`collect.answers`) are read first. What the filter kept when the training began stays kept.

    Raises:
        RecipeError: the collected answers are of other tasks, prompts or models, or the filter leaves nothing.
    """
    store = Store(run.root.folder)
    if recipe.collect.answers and not store.sets:
        collect_in(recipe, run.root, workshop, (0,), told=told)
        store = Store(run.root.folder)
    if not store.sets:
        return list(tasks), store
    store.expect(recipe, rounds=(0,), tasks=tasks)
    found = sift(tasks, store, recipe.collect, run.state("filter").get("kept"))
    run.keep("filter", found.report())
    told(f"note: {found}", 0, {})
    return found.kept, store
