"""Which of the trained weights that were measured are of step 0: no later step was better on the holdout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.outcome import Outcome, outcomes
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run, RunError

if TYPE_CHECKING:
    from pilotfish.evaluate.bench import Result


def unhelped(recipe: Recipe, run: Run, results: Sequence[Result]) -> list[Outcome]:
    """Those weights, each with its note.

    Args:
        recipe: its `evaluate.weights` names other runs.
        run: that was evaluated; its own weights are known by the versions that spoke, wherever they are now.
        results: of the evaluation.
    """
    others = recipe.evaluate.weights.items()
    spoken = dict(_spoken(results))
    found = [replace(last, name=name) for name, folder in others if (last := _last(folder.resolve()))]
    found = [one for one in found if one.name in spoken] + [one for one in outcomes(run, spoken) if one.name in spoken]
    return [one for one in found if one.note]


def _spoken(results: Sequence[Result]) -> Iterator[tuple[str, int]]:
    """The weights of the trainee that spoke, by the end of an arm's name, and their version."""
    for arm, episodes in (pair for result in results for pair in result.episodes.items()):
        versions = (said.turn.version for episode in episodes for said in episode.decisions())
        if (version := next(versions, None)) is not None:
            yield arm.rpartition(", ")[2], version


def _last(folder: Path) -> Outcome | None:
    """Of a run's folder, or of a stage's; None where it holds bare weights, or no recipe that can be read."""
    if not (folder / "recipe.yaml").exists():
        return None
    whole = folder.parent.parent
    with suppress(RecipeError, RunError):
        if folder.parent.name != "stages" or not (whole / "recipe.yaml").exists():
            return next(iter(outcomes(Run(folder))[-1:]), None)
        return next((one for one in outcomes(Run(whole)) if one.stage == folder.name), None)
    return None
