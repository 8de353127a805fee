"""What a recipe will ask for: calls, tokens and money of each member at each stage, before anything is spent.

    estimate = estimate_recipe(load_recipe("recipes/agentpo/hint-qwen-plus.yaml"))
    for line in estimate.lines: ...

Calls are counted by a rehearsal on a sample of the real tasks (see `rehearsal`) and scaled to all of them. It is played
twice: with the lengths that answers probably have, and with every answer as long as its member may make it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish.curriculum import curriculum
from pilotfish.episode import Journal
from pilotfish.evaluate.arms import Arm, best_constant, control
from pilotfish.evaluate.bench import play_arms
from pilotfish.evaluate.lineup import arms_of
from pilotfish.preflight.costs import HOLDOUT, Portion, Rehearsal, rehearse_stage
from pilotfish.preflight.filler import Count, Tally, quarter_of_characters
from pilotfish.preflight.memory import local_folder
from pilotfish.preflight.stages import Stage, check_lacking, notes, stages_of
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.spending import arm_name
from pilotfish.task import load_tasks
from pilotfish.team import Messages, Price, Usage

SAMPLE = 8
"""Tasks that a stage is rehearsed on."""


@dataclass(frozen=True)
class Line:
    """One member at one stage; `most` has each answer at its token limit."""

    stage: str
    member: str
    likely: Tally
    most: Tally
    price: Price = field(default_factory=Price)
    """Of the model that the member sits on at this stage."""

    def cost(self) -> tuple[float, float]:
        """Money, likely and at most; what a server's cache may save is not counted."""
        return _cost(self.likely, self.price), _cost(self.most, self.price)


@dataclass(frozen=True)
class Estimate:
    """What a recipe will ask for."""

    lines: list[Line]
    steps: int
    """Of all trainings; 0 where nothing is trained by playing episodes."""
    lengths: Mapping[str, tuple[float, str]]
    """Completion tokens of each member, and where the figure comes from."""
    rough: tuple[str, ...]
    """Members whose prompt tokens are a quarter of their characters: no tokenizer of theirs is at hand."""
    notes: tuple[str, ...] = ()
    """What the figures of a recipe with stages or stored answers leave open."""


def estimate_recipe(recipe: Recipe, means: Mapping[str, float] | None = None) -> Estimate:
    """Rehearse a recipe.

    Args:
        recipe: its stages, their holdout evaluations and the arms of its evaluation are rehearsed.
        means: completion tokens a call by member, where a run has shown them; half of a member's limit otherwise.

    Raises:
        RecipeError, TaskError: tasks that cannot be had, or a stage without the answers that it trains on.
        TopologyError, ValueError: a topology that cannot be played by this team.
    """
    teams = recipe.teams()
    lengths = {name: _lengths(team, recipe, means or {}) for name, team in teams.items()}
    counts = {name: {member: _counter(team, member) for member in team.team} for name, team in teams.items()}
    likely = {name: {member: round(tokens) for member, (tokens, _) in of.items()} for name, of in lengths.items()}
    most = {name: {m: member.sampling.max_tokens for m, member in team.team.items()} for name, team in teams.items()}
    material = _Material.of(recipe)
    first, second = (_rehearsed(recipe, material, counts, tokens) for tokens in (likely, most))
    lines = [Line(*key, tally, second[key], _price(recipe, *key)) for key, tally in first.items()]
    tasks = material.train.all
    steps = sum(stage.steps(tasks) for stage in material.stages)
    told = [(name, member) for name, team in teams.items() for member in team.team if _is_new(team, recipe, member)]
    return Estimate(
        lines,
        steps,
        {arm_name(name, member): lengths[name][member] for name, member in told},
        tuple(arm_name(name, member) for name, member in told if counts[name][member] is quarter_of_characters),
        (*notes(material.stages, tasks), *_capped(recipe, lines)),
    )


def mean_completions(journal: Journal) -> dict[str, float]:
    """Mean completion tokens a call, by member, of what a run has recorded."""
    total: dict[str, Usage] = {}
    calls: Counter[str] = Counter()
    for turn in journal.turns():
        if turn.answered:
            total[turn.member] = total.get(turn.member, Usage()) + turn.usage
            calls[turn.member] += 1
    return {member: usage.completion / calls[member] for member, usage in total.items()}


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


def _rehearsed(
    recipe: Recipe,
    material: _Material,
    counts: Mapping[str, Mapping[str, Count]],
    tokens: Mapping[str, Mapping[str, int]],
) -> dict[tuple[str, str], Tally]:
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


def _lengths(team: Recipe, own: Recipe, means: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Completion tokens of a call, and where the figure comes from; what was measured is of the recipe's own models."""
    return {
        name: (means[name], "measured")
        if name in means and member.deployment == own.team[name].deployment
        else (member.sampling.max_tokens / 2, "half of max_tokens, a guess")
        for name, member in team.team.items()
    }


def _is_new(team: Recipe, own: Recipe, member: str) -> bool:
    """Whether a member is told of once more: all of the recipe's own, and of another team those that differ."""
    return team is own or team.team[member] != own.team[member]


def _price(recipe: Recipe, stage: str, member: str) -> Price:
    model = next((name for name in recipe.evaluate.models if stage.startswith(arm_name(name, ""))), "")
    return recipe.teams()[model].team[member].price


def _capped(recipe: Recipe, lines: Sequence[Line]) -> list[str]:
    likely = sum(line.cost()[0] for line in lines)
    if recipe.max_cost is None or likely <= recipe.max_cost:
        return []
    return [f"max_cost is {recipe.max_cost:g}: the run will stop there, as it is likely to cost {likely:,.2f}."]


def _counter(recipe: Recipe, name: str) -> Count:
    """Counts a member's prompt tokens: by its own tokenizer and chat template where they are on this machine."""
    member = recipe.team[name]
    folder = local_folder(member.model, member.revision) if member.engine != "openai" else None
    if folder is None or not any((folder / file).exists() for file in ("tokenizer.json", "tokenizer_config.json")):
        return quarter_of_characters
    try:
        from transformers import AutoTokenizer

        from pilotfish.engine.chat import render
    except ImportError:
        return quarter_of_characters
    tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=member.trust_remote_code)

    def count(messages: Messages) -> float:
        return len(render(tokenizer, messages))

    return count


def _cost(tally: Tally, price: Price) -> float:
    return (tally.prompt * price.input + tally.completion * price.output) / 1e6
