"""The line-up: which arms the evaluation of a recipe has, with their teams seated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from pilotfish.curriculum import curriculum
from pilotfish.engine.base import Engine
from pilotfish.episode import Team
from pilotfish.episode.calls import digest
from pilotfish.evaluate.arms import (
    CONTROLS,
    Arm,
    Field,
    Played,
    Role,
    Said,
    baselines,
    best_constant,
    control,
    leading,
    titles,
    variants,
)
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.spending import arm_name
from pilotfish.topology import solo
from pilotfish.train.profile import CollectStage

OTHERS = 10**9
"""From where versions of other runs' weights count: no stage comes so far."""
CONSTANTS = "constants"
"""What stands in place of a benchmark in the names of episodes that choose constant words."""


class Seating(Protocol):
    """Who sits behind each member: `Seats`, or one that loads nothing."""

    def engine(self, name: str) -> Engine:
        """A member's engine; the trainee's has its weights before training."""

    def trained(self, best: Path, version: int) -> Engine:
        """The trainee's engine with trained weights."""


class Nobody:
    """Seats nobody, where arms are only named."""

    def engine(self, name: str) -> Engine:
        return Said("")

    def trained(self, best: Path, version: int) -> Engine:
        return Said("")


class AtServers(Nobody):
    """Seats those members alone that servers of the run's own speak for; nothing is loaded.

    Args:
        seats: of a team.
    """

    def __init__(self, seats: Seats) -> None:
        self.seats = seats

    def engine(self, name: str) -> Engine:
        return self.seats.engine(name) if self._served(name) else super().engine(name)

    def trained(self, best: Path, version: int) -> Engine:
        served = self._served(self.seats.recipe.trainee)
        return self.seats.trained(best, version) if served else super().trained(best, version)

    def _served(self, name: str | None) -> bool:
        return name is not None and self.seats.recipe.team[name].engine == "vllm"


Weights = Callable[[Recipe, Run], Iterable[tuple[str, Path, int]]]
"""Trained weights that are measured: their name, folder and version."""


def on_disk(recipe: Recipe, run: Run) -> Iterator[tuple[str, Path, int]]:
    """Trained weights that are there: those of `evaluate.weights`, and the run's own.

    Raises:
        RecipeError: a folder without trained weights, or a name that the run's own weights may have.
    """
    yield from _others(recipe)
    yield from _trained(run)


def by_name(recipe: Recipe, run: Run) -> Iterator[tuple[str, Path, int]]:
    """All trained weights that may have been measured, wherever they are now.

    Raises:
        RecipeError: a name in `evaluate.weights` that the run's own weights may have.
    """
    _check_names(recipe)
    stages = [name for name, stage in run.recipe.stages.items() if stage and not isinstance(stage, CollectStage)]
    own = stages if run.recipe.stages else ["trained"]
    for name in (*recipe.evaluate.weights, *own):
        yield name, recipe.evaluate.weights.get(name, run.folder), 0


def arms_of(model: str, recipe: Recipe, run: Run, seats: Seating, weights: Weights = on_disk) -> list[Arm]:
    """The arms of one of the recipe's teams, under its name.

    Args:
        model: a name in `evaluate.models`; empty for the recipe's own team.
        recipe: with its own team.
        run: as for `standard_arms`.
        seats: moved to the team.
        weights: as for `standard_arms`.
    """
    team = recipe.teams()[model]
    found = standard_arms(team, run, seats, weights)
    _warn_of_lacking(model, recipe, found)
    other = {name: member for name, member in team.team.items() if member.deployment != recipe.team[name].deployment}
    return [
        replace(
            arm,
            name=arm_name(model, arm.name),
            model=model,
            deployments={name: f"{other[name].deployment} {arm.team.engines[name].identity}" for name in other},
        )
        for arm in found
    ]


def _warn_of_lacking(model: str, recipe: Recipe, arms: Sequence[Arm]) -> None:
    """Say which controls a team's arms leave without words to replace."""
    lead, controls = leading(arms), recipe.evaluate.controls
    if recipe.trainee is None or (lead and lead.role == "trained"):
        return
    lacking = [name for name in controls if name == "constant" or (lead is None and name in CONTROLS)]
    if lacking:
        why = "" if lead else " and with evaluate.untrained: false"
        named = ", ".join(arm_name(model, name) for name in lacking)
        told = f"evaluate.controls are left out, for lack of trained weights{why}: {named}"
        warnings.warn(told, stacklevel=1)  # from here, so that it is told once whoever asks


def standard_arms(recipe: Recipe, run: Run, seats: Seating, weights: Weights = on_disk) -> list[Arm]:
    """Baselines, then the topologies in which the trainee answers and the recipe's own: before training, and after it
    with each of the weights. The recipe's own comes last."""
    frozen = Team(recipe.members(), {name: seats.engine(name) for name in recipe.team})
    own, against, others = recipe.topology.load(), baselines(recipe), variants(recipe)
    title = titles(own, [*against, *others])
    arms = [Arm(title(topology), topology, frozen) for topology in against]
    if recipe.trainee is None:
        for name, left_out in (("controls", recipe.evaluate.controls), ("weights", recipe.evaluate.weights)):
            if left_out:
                told = f"evaluate.{name} are left out, since nobody in the team has `train`: {', '.join(left_out)}"
                warnings.warn(told, stacklevel=1)  # from here, so that it is told once whoever asks
        return [*arms, Arm(title(own), own, frozen, own=True)]
    if "trainee" in recipe.evaluate.controls:
        prompts = next((t.options["prompts"] for t in against if t.name == "solo" and "prompts" in t.options), None)
        unaided = solo.bind(member=recipe.trainee, **({"prompts": prompts} if prompts else {}))
        arms.append(Arm(f"{recipe.trainee} alone", unaided, frozen, "control"))
    for name, role, team in _teams(recipe, run, seats, frozen, weights):
        arms += [Arm(f"{title(topology)}, {name}", topology, team, role) for topology in others]
        arms.append(Arm(f"{title(own)}, {name}", own, team, role, own=True))
    return arms


def _teams(
    recipe: Recipe, run: Run, seats: Seating, frozen: Team, weights: Weights
) -> Iterator[tuple[str, Role, Team]]:
    """The team with each of the trainee's weights that are measured, under their name. What was trained on another
    model is not seated on this one."""
    assert recipe.trainee is not None
    if recipe.evaluate.untrained:
        yield "untrained", "untrained", frozen
    same = recipe.team[recipe.trainee].deployment == run.recipe.team[recipe.trainee].deployment
    for name, best, version in weights(recipe, run) if same else ():
        engines = {**frozen.engines, recipe.trainee: seats.trained(best, version)}
        yield name, "trained", Team(frozen.members, engines)


def _others(recipe: Recipe) -> Iterator[tuple[str, Path, int]]:
    """The weights of `evaluate.weights`: their name, folder and version."""
    _check_names(recipe)
    for name, folder in recipe.evaluate.weights.items():
        best = Run(folder).best if (folder / "recipe.yaml").exists() else folder
        if not any(best.glob("*.safetensors")):
            raise RecipeError(
                f"evaluate.weights: {name}: {folder} holds no trained weights; name a run that was trained"
            )
        written = sorted((file.name, file.stat().st_mtime_ns) for file in best.glob("*.safetensors"))
        yield name, best, OTHERS + int(digest(str(best.resolve()), written)[:7], 16)


def _check_names(recipe: Recipe) -> None:
    for name in recipe.evaluate.weights:
        if name in ("untrained", "trained", *recipe.stages):
            raise RecipeError(
                f"evaluate.weights: {name!r} is what the run's own weights are called; choose another name"
            )


def _trained(run: Run) -> Iterator[tuple[str, Path, int]]:
    """The weights that a run has trained, of each stage where it has some: their name, folder and version."""
    if run.recipe.stages:
        from pilotfish.train.stages import whole_weights

        for stage in run.stages():
            if weights := whole_weights(stage):
                yield stage.folder.name, weights, stage.best_version
    elif run.best.exists():
        yield "trained", run.best, run.best_version


async def constant(recipe: Recipe, run: Run, arms: Sequence[Arm], on: Field) -> tuple[list[Arm], list[Played]]:
    """The control that says on every task the words that serve best on the training holdout, and what was played on it
    to find them."""
    if "constant" not in recipe.evaluate.controls or not arms or arms[-1].role != "trained":
        return [], []
    tasks = curriculum(recipe, run.state("curriculum")).holdout
    if not tasks:
        raise RecipeError("evaluate.controls has constant, which is chosen on the holdout; set tasks.holdout above 0")
    holdout = replace(on, benchmark=CONSTANTS, tasks=tasks)
    words, played = await best_constant(arms[-1], holdout, recipe.evaluate.constants)
    return [control(arm_name(arms[-1].model, CONTROLS["constant"]), arms[-1], lambda task: words)], played
