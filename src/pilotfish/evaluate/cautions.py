"""What an evaluation warns of: tasks that were trained on, other calls than before, samples that are one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pilotfish.curriculum import curriculum
from pilotfish.evaluate.accounts import asked_anew
from pilotfish.evaluate.arms import Field, Played
from pilotfish.overlap import overlap
from pilotfish.recipe import Recipe
from pilotfish.run import Run


def warn_of_overlap(recipe: Recipe, run: Run, fields: Sequence[Field]) -> None:
    """Say which tasks of the benchmarks the run has been trained on: the recipe may name others than then."""
    trained = run.state("curriculum")
    if not trained or recipe.tasks is None:
        return
    repeats = overlap(curriculum(recipe, trained).train, {on.benchmark: on.tasks for on in fields})
    if repeats:
        shown = "; ".join(str(repeat) for repeat in repeats[:5])
        warnings.warn(f"{len(repeats)} repeats of tasks that were trained on are measured: {shown}", stacklevel=2)


def warn_of_other_calls(played: Sequence[Played], since: float) -> None:
    """Say of which methods the record holds other calls than were made this time, and they were asked."""
    counts: dict[str, int] = {}
    for one in played:
        if one.arm.role != "control":  # whose words follow what others have said
            counts[one.arm.name] = counts.get(one.arm.name, 0) + asked_anew(one.episodes, since)
    for name, count in counts.items():
        if count:
            warnings.warn(
                f"{name} asked {count} calls in place of others that its record holds: its tasks, prompts, models or "
                "weights have changed, or its prompts differ between two plays; see docs/topologies.md, Two rules",
                stacklevel=2,
            )


def warn_of_greed(recipe: Recipe) -> None:
    """Say that samples are one where nobody in any team is sampled."""
    samples = recipe.evaluate.samples
    hottest = max(member.sampling.temperature for team in recipe.teams().values() for member in team.team.values())
    if samples > 1 and hottest == 0:
        warnings.warn(
            f"evaluate.samples is {samples}, and everyone is asked at temperature 0: the samples are one; set "
            f"team.{next(iter(recipe.team))}.sampling.temperature",
            stacklevel=3,
        )
