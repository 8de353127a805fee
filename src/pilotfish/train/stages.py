"""The stages of a recipe, one after the other: collect, backtracking, MLPO, collect again, MLPO+.

Each trains in a folder of its own, from the weights that the stage before left, and is resumed there; one that is
finished is not run again. All share the run's journal.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pilotfish.collect.main import collect_in
from pilotfish.engine.adapter import adapter_in
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.train.main import Told, train_one
from pilotfish.train.profile import CollectStage
from pilotfish.workshop import Workshop


def train_stages(recipe: Recipe, run: Run, workshop: Workshop, told: Told) -> None:
    """Run the stages that are not finished. The run's `best` are the weights of the last one that is."""
    run.check_stages({name: recipe.at(name, None) for name, config in recipe.stages.items() if config})
    weights: Path | None = None
    stamp = ""
    for name, config in recipe.stages.items():
        if config is None:
            continue
        told(f"note: stage {name}", 0, {})
        staged = recipe.at(name, weights)
        workshop.seats.move_to(staged)
        workshop.play(workshop.seats.release())
        if isinstance(config, CollectStage):
            collect_in(staged, run, workshop, config.rounds, told=told, leading=stamp)
            continue
        with run.stage(name, staged, stamp) as stage:
            train_one(staged, stage, workshop, told)
            if left := whole_weights(stage):
                weights, stamp = left, stage.stamp
                if name == [one.folder.name for one in run.stages() if one.finished][-1]:
                    _point_best_at(run, weights)
    if weights is not None:
        _point_best_at(run, weights)


def whole_weights(stage: Run) -> Path | None:
    """A folder with all of a stage's weights, for the next stage to start from: an adapter is merged into its base.

    None where the stage left none: it had nothing to learn from.
    """
    if not adapter_in(stage.best):
        return stage.best if stage.best.exists() else None
    merged = stage.folder / "merged"
    if not merged.exists():
        shutil.rmtree(stage.folder / "merged.new", ignore_errors=True)  # of a process that was killed
        from pilotfish.train.lora import merge  # slow to import

        partial = stage.folder / "merged.new"
        merge(stage.recipe.team[stage.recipe.trainee or ""], stage.best, partial)
        stage.mark_best(partial, stage.best_step or 0)
        partial.rename(merged)
    return merged


def _point_best_at(run: Run, weights: Path) -> None:
    """Make `best` a link to a stage's weights."""
    link = run.folder / "best"
    fresh = run.folder / "best.link"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(os.path.relpath(weights, run.folder), target_is_directory=True)
    fresh.replace(link)
