"""The line-up: which arms the evaluation of a recipe has, with their teams seated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pilotfish.curriculum import curriculum
from pilotfish.episode import Team
from pilotfish.episode.calls import digest
from pilotfish.evaluate.arms import Arm, Field, Played, Role, baselines, best_constant, control, titles, variants
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.spending import arm_name
from pilotfish.topology import solo

OTHERS = 10**9
"""From where versions of other runs' weights count: no stage comes so far."""


def arms_of(model: str, recipe: Recipe, run: Run, seats: Seats) -> list[Arm]:
    """The arms of one of the recipe's teams, under its name.

    Args:
        model: a name in `evaluate.models`; empty for the recipe's own team.
        recipe: with its own team.
        run: as for `standard_arms`.
        seats: moved to the team.
    """
    team = recipe.teams()[model]
    other = {name: member for name, member in team.team.items() if member.deployment != recipe.team[name].deployment}
    return [
        replace(
            arm,
            name=arm_name(model, arm.name),
            model=model,
            deployments={name: f"{other[name].deployment} {arm.team.engines[name].identity}" for name in other},
        )
        for arm in standard_arms(team, run, seats)
    ]


def standard_arms(recipe: Recipe, run: Run, seats: Seats) -> list[Arm]:
    """Baselines, then the topologies in which the trainee answers and the recipe's own: before training, and after it
    where the run has trained weights. The recipe's own comes last."""
    frozen = Team(recipe.members(), {name: seats.engine(name) for name in recipe.team})
    own, against, others = recipe.topology.load(), baselines(recipe), variants(recipe)
    title = titles(own, [*against, *others])
    arms = [Arm(title(topology), topology, frozen) for topology in against]
    if recipe.trainee is None:
        return [*arms, Arm(title(own), own, frozen)]
    if "trainee" in recipe.evaluate.controls:
        prompts = next((t.options["prompts"] for t in against if t.name == "solo" and "prompts" in t.options), None)
        unaided = solo.bind(member=recipe.trainee, **({"prompts": prompts} if prompts else {}))
        arms.append(Arm(f"{recipe.trainee} alone", unaided, frozen, "control"))
    for name, role, team in _weights(recipe, run, seats, frozen):
        arms += [Arm(f"{title(topology)}, {name}", topology, team, role) for topology in (*others, own)]
    return arms


def _weights(recipe: Recipe, run: Run, seats: Seats, frozen: Team) -> Iterator[tuple[str, Role, Team]]:
    """The team with each of the trainee's weights that are measured, under their name. What was trained on another
    model is not seated on this one."""
    assert recipe.trainee is not None
    if recipe.evaluate.untrained:
        yield "untrained", "untrained", frozen
    same = recipe.team[recipe.trainee].deployment == run.recipe.team[recipe.trainee].deployment
    for name, best, version in (*_others(recipe), *_trained(run)) if same else ():
        engines = {**frozen.engines, recipe.trainee: seats.trained(best, version)}
        yield name, "trained", Team(frozen.members, engines)


def _others(recipe: Recipe) -> Iterator[tuple[str, Path, int]]:
    """The weights of `evaluate.weights`: their name, folder and version.

    Raises:
        RecipeError: a folder without trained weights, or a name that the run's own weights may have.
    """
    for name, folder in recipe.evaluate.weights.items():
        if name in ("untrained", "trained", *recipe.stages):
            raise RecipeError(
                f"evaluate.weights: {name!r} is what the run's own weights are called; choose another name"
            )
        best = Run(folder).best if (folder / "recipe.yaml").exists() else folder
        if not any(best.glob("*.safetensors")):
            raise RecipeError(
                f"evaluate.weights: {name}: {folder} holds no trained weights; name a run that was trained"
            )
        written = sorted((file.name, file.stat().st_mtime_ns) for file in best.glob("*.safetensors"))
        yield name, best, OTHERS + int(digest(str(best.resolve()), written)[:7], 16)


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
    if "constant" not in recipe.evaluate.controls or arms[-1].role != "trained":
        return [], []
    tasks = curriculum(recipe, run.state("curriculum")).holdout
    if not tasks:
        raise RecipeError("evaluate.controls has constant, which is chosen on the holdout; set tasks.holdout above 0")
    holdout = replace(on, benchmark="constants", tasks=tasks)
    words, played = await best_constant(arms[-1], holdout, recipe.evaluate.constants)
    return [control(arm_name(arms[-1].model, "best constant words"), arms[-1], lambda task: words)], played
