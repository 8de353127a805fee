"""What a recipe will ask for: calls, tokens and money of each member at each stage, before anything is spent.

    estimate = estimate_recipe(load_recipe("recipes/agentpo/hint-qwen-plus.yaml"))
    for line in estimate.lines: ...

Calls are counted by a rehearsal on a sample of the real tasks (see `rehearsal`) and scaled to all of them. It is played
for the lengths that answers probably have, and for the bounds of the range that these may lie in (see `lengths`).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.curriculum import curriculum
from pilotfish.evaluate.arms import Arm, best_constant, control
from pilotfish.evaluate.bench import play_arms
from pilotfish.evaluate.lineup import arms_of
from pilotfish.preflight.costs import HOLDOUT, TRAINING, Portion, Rehearsal, later_evaluations, rehearse_stage
from pilotfish.preflight.filler import Count, Tally, quarter_of_characters
from pilotfish.preflight.lengths import Length, counter, known, lengths
from pilotfish.preflight.measured import Measured
from pilotfish.preflight.stages import Stage, check_lacking, notes, stages_of
from pilotfish.recipe import MemberConfig, Recipe
from pilotfish.run import Run
from pilotfish.spending import arm_name
from pilotfish.task import load_tasks
from pilotfish.team import Price
from pilotfish.train.profile import TrainConfig

SAMPLE = 8
"""Tasks that a stage is rehearsed on."""


@dataclass(frozen=True)
class Line:
    """One member at one stage, with the shortest and the longest answers that are to be expected."""

    stage: str
    member: str
    likely: Tally
    least: Tally
    most: Tally
    seat: MemberConfig
    """The member as it sits at this stage."""
    measured: Measured | None = None
    """What was measured of it."""
    goes: int = 1
    """Training steps or evaluations: each waits for the answers of the one before."""

    def cost(self) -> tuple[float, float, float]:
        """Money: likely, at least, at most; what a server's cache may save is not counted."""
        price = self.seat.price
        return _cost(self.likely, price), _cost(self.least, price), _cost(self.most, price)


@dataclass(frozen=True)
class Estimate:
    """What a recipe will ask for."""

    lines: list[Line]
    steps: int
    """Of all trainings; 0 where nothing is trained by playing episodes."""
    lengths: Mapping[str, Length]
    """Completion tokens of each member."""
    rough: tuple[str, ...]
    """Members whose prompt tokens are a quarter of their characters: no tokenizer of theirs is at hand."""
    notes: tuple[str, ...] = ()
    """What the figures of a recipe with stages or stored answers leave open."""


def estimate_recipe(recipe: Recipe, measured: Mapping[str, Measured] | None = None) -> Estimate:
    """Rehearse a recipe.

    Args:
        recipe: its stages, their holdout evaluations and the arms of its evaluation are rehearsed.
        measured: by member, what calls have come to; without it an answer is half as long as its member may make it.

    Raises:
        RecipeError, TaskError: tasks that cannot be had, or a stage without the answers that it trains on.
        TopologyError, ValueError: a topology that cannot be played by this team.
    """
    measured, teams, material = measured or {}, recipe.teams(), _Material.of(recipe)
    cautions = material.cautions()
    found = {name: lengths(team, recipe, measured) for name, team in teams.items()}
    counts = {
        name: {member: counter(team, member, known(team, recipe, member, measured)) for member in team.team}
        for name, team in teams.items()
    }

    def rehearsed(bound: Callable[[Length], float]) -> _Totals:
        tokens = {name: {member: round(bound(length)) for member, length in of.items()} for name, of in found.items()}
        return _rehearsed(recipe, material, counts, tokens)

    likely, most = rehearsed(lambda length: length.likely), rehearsed(lambda length: length.most)
    least = rehearsed(lambda length: length.least) if measured else likely
    goes = material.goes()
    lines = [
        Line(*key, tally, least[key], most[key], *_seat(recipe, *key, measured), goes.get(key[0], 1))
        for key, tally in likely.items()
    ]
    tasks = material.train.all
    told = [(name, member) for name, team in teams.items() for member in team.team if _is_new(team, recipe, member)]
    return Estimate(
        lines,
        sum(stage.steps(tasks) for stage in material.stages),
        {arm_name(name, member): found[name][member] for name, member in told},
        tuple(arm_name(name, member) for name, member in told if counts[name][member] is quarter_of_characters),
        (*cautions, *notes(material.stages, tasks), *_capped(recipe, lines)),
    )


@dataclass(frozen=True)
class _Material:
    """What is rehearsed, on which tasks."""

    stages: list[Stage]
    """Those that play episodes."""
    train: Portion
    holdout: Portion
    benchmarks: list[tuple[str, Portion]]

    @classmethod
    def of(cls, recipe: Recipe) -> _Material:
        benchmarks = [(source.title, Portion.of(load_tasks(source), SAMPLE)) for source in recipe.evaluate.benchmarks]
        stages = [stage for stage in stages_of(recipe) if stage.plays]
        check_lacking(stages)
        if recipe.trainee is None or not stages or (recipe.tasks is None and not recipe.stages):
            return cls([], Portion(0, []), Portion(0, []), benchmarks)
        divided = curriculum(recipe)
        train, holdout = Portion.of(divided.train, SAMPLE), Portion.of(divided.holdout, recipe.evaluate.constants)
        return cls(stages, train, holdout, benchmarks)

    def cautions(self) -> list[str]:
        """What stands against training the decisions that are named; a sentence each."""
        told = [(stage, caution) for stage in self.stages for caution in stage.cautions(self.train.sample[0])]
        return [f"{stage.title('training')}: {caution}." for stage, caution in told]

    def goes(self) -> dict[str, int]:
        """Of each part that has several: training steps, evaluations on the holdout."""
        found: dict[str, int] = {}
        for stage in self.stages:
            if isinstance(stage.config, TrainConfig):
                steps = stage.steps(self.train.all)
                found[stage.title(TRAINING)] = steps
                found[stage.title(HOLDOUT)] = 1 + later_evaluations(stage.config, steps)
        return found


_Totals = dict[tuple[str, str], Tally]
"""By stage and member."""


def _rehearsed(
    recipe: Recipe,
    material: _Material,
    counts: Mapping[str, Mapping[str, Count]],
    tokens: Mapping[str, Mapping[str, int]],
) -> _Totals:
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        rehearsal = Rehearsal(recipe, counts[""], tokens[""], Path(folder))
        try:
            asyncio.run(_play(rehearsal, material, counts, tokens))
        finally:
            rehearsal.journal.close()
        return rehearsal.totals


async def _play(
    rehearsal: Rehearsal,
    material: _Material,
    counts: Mapping[str, Mapping[str, Count]],
    tokens: Mapping[str, Mapping[str, int]],
) -> None:
    for stage in material.stages:
        await rehearse_stage(rehearsal, stage, material.train, material.holdout)
    if not material.benchmarks:
        return
    run = _trained(rehearsal.recipe, rehearsal.folder / "run")
    for name, team in rehearsal.recipe.teams().items():
        rehearsal.seats.seat(team, counts[name], tokens[name])
        await _arms(rehearsal, material, arms_of(name, rehearsal.recipe, run, rehearsal.seats))


async def _arms(rehearsal: Rehearsal, material: _Material, arms: list[Arm]) -> None:
    """One team's arms: the first sample of each task, and what a further sample asks beside it."""
    evaluate = rehearsal.recipe.evaluate
    arms = arms + await _constant(rehearsal, material.holdout, arms[-1])
    for name, tasks in material.benchmarks:
        for samples, times in ((1, 1), (2, evaluate.samples - 1))[: evaluate.samples]:
            config = evaluate.model_copy(update={"samples": samples})

            def progress(arm: str, done: int, of: int, times: float = times * tasks.times) -> None:
                if done == of:
                    rehearsal.book(arm, times)

            await play_arms(rehearsal.field(name, tasks.sample), arms, config, progress)


def _trained(recipe: Recipe, folder: Path) -> Run:
    """A run of the recipe as it is once all is trained; its weights are empty folders."""
    run = Run(folder, recipe)
    stages = [run.stage(stage.name, stage.recipe, "") for stage in stages_of(recipe) if stage.name and stage.trains]
    for trained in (stages or [run]) if recipe.trainee else []:
        trained.best.mkdir()
        trained.mark_best(trained.best, 1)
    return run


async def _constant(rehearsal: Rehearsal, holdout: Portion, arm: Arm) -> list[Arm]:
    """The control that has to find its words first, on the holdout."""
    if "constant" not in rehearsal.recipe.evaluate.controls or not holdout.all:
        return []
    field, candidates = rehearsal.field(HOLDOUT, holdout.sample), rehearsal.recipe.evaluate.constants
    words, _ = await best_constant(arm, field, candidates)
    rehearsal.book(arm_name(arm.model, "search for constant words"), holdout.times)
    return [control(arm_name(arm.model, "best constant words"), arm, lambda task: words)]


def _is_new(team: Recipe, own: Recipe, member: str) -> bool:
    """Whether a member is told of once more: all of the recipe's own, and of another team those that differ."""
    return team is own or team.team[member] != own.team[member]


def _seat(
    recipe: Recipe, stage: str, member: str, measured: Mapping[str, Measured]
) -> tuple[MemberConfig, Measured | None]:
    """A member as it sits at a stage, and what was measured of it."""
    model = next((name for name in recipe.evaluate.models if stage.startswith(arm_name(name, ""))), "")
    team = recipe.teams()[model]
    return team.team[member], known(team, recipe, member, measured)


def _capped(recipe: Recipe, lines: Sequence[Line]) -> list[str]:
    likely = sum(line.cost()[0] for line in lines)
    if recipe.max_cost is None or likely <= recipe.max_cost:
        return []
    return [f"max_cost is {recipe.max_cost:g}: the run will stop there, as it is likely to cost {likely:,.2f}."]


def _cost(tally: Tally, price: Price) -> float:
    return (tally.prompt * price.input + tally.completion * price.output) / 1e6
