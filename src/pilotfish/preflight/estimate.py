"""What a recipe will ask for: calls, tokens and money of each member at each stage, before anything is spent.

    estimate = estimate_recipe(load_recipe("recipes/agentpo/hint-qwen-plus.yaml"))
    for line in estimate.lines: ...

Calls are counted by a rehearsal on a sample of the real tasks (see `rehearsal`) and scaled to all of them. It is played
twice: with the lengths that answers probably have, and with every answer as long as its member may make it.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish.curriculum import curriculum
from pilotfish.episode import Journal
from pilotfish.evaluate.arms import Arm, Field, best_constant, control
from pilotfish.evaluate.bench import compare, standard_arms
from pilotfish.preflight.memory import local_folder
from pilotfish.preflight.rehearsal import (
    Count,
    Ledger,
    RehearsedSeats,
    Tally,
    no_verdict,
    quarter_of_characters,
    rehearse_groups,
)
from pilotfish.recipe import Recipe
from pilotfish.run import Run
from pilotfish.task import Task, load_tasks
from pilotfish.team import Messages, Price, Usage
from pilotfish.train.profile import TrainConfig, steps

SAMPLE = 8
"""Tasks that a stage is rehearsed on."""
TRAINING, HOLDOUT = "training", "holdout"


@dataclass(frozen=True)
class Line:
    """One member at one stage; `most` has each answer at its token limit."""

    stage: str
    member: str
    likely: Tally
    most: Tally

    def cost(self, price: Price) -> tuple[float, float]:
        """Money, likely and at most; what a server's cache may save is not counted."""
        return _cost(self.likely, price), _cost(self.most, price)


@dataclass(frozen=True)
class Estimate:
    """What a recipe will ask for."""

    lines: list[Line]
    steps: int
    """Of the training; 0 where nothing is trained by playing episodes."""
    lengths: Mapping[str, tuple[float, str]]
    """Completion tokens of each member, and where the figure comes from."""
    rough: tuple[str, ...]
    """Members whose prompt tokens are a quarter of their characters: no tokenizer of theirs is at hand."""


@dataclass
class _Rehearsal:
    """One rehearsal of a whole recipe."""

    recipe: Recipe
    counts: Mapping[str, Count]
    tokens: Mapping[str, int]
    folder: Path
    ledger: Ledger = field(default_factory=Ledger)
    totals: dict[tuple[str, str], Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seats = RehearsedSeats(self.recipe, self.ledger, self.counts, self.tokens)
        self.journal = Journal(self.folder / "journal")

    def book(self, stage: str, times: float) -> None:
        """Charge what was played since the last time to a stage."""
        for member, tally in self.ledger.read().items():
            self.totals.setdefault((stage, member), Tally()).add(tally, times)


def estimate_recipe(recipe: Recipe, means: Mapping[str, float] | None = None) -> Estimate:
    """Rehearse a recipe.

    Args:
        recipe: its training, its holdout evaluations and the arms of its evaluation are rehearsed.
        means: completion tokens a call by member, where a run has shown them; half of a member's limit otherwise.

    Raises:
        RecipeError, TaskError: tasks that cannot be had.
        TopologyError, ValueError: a topology that cannot be played by this team.
    """
    lengths = {name: _length(name, member.sampling.max_tokens, means or {}) for name, member in recipe.team.items()}
    counts = {name: _counter(recipe, name) for name in recipe.team}
    likely = {name: round(tokens) for name, (tokens, _) in lengths.items()}
    most = {name: member.sampling.max_tokens for name, member in recipe.team.items()}
    material = _Material.of(recipe)
    first, second = (_rehearsed(recipe, material, counts, tokens) for tokens in (likely, most))
    rough = tuple(name for name, count in counts.items() if count is quarter_of_characters)
    lines = [Line(*key, tally, second[key]) for key, tally in first.items()]
    return Estimate(lines, material.steps, lengths, rough)


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
    """The tasks of every stage: how many there are, and the sample that is rehearsed."""

    config: TrainConfig | None
    steps: int
    train: int
    holdout: int
    train_sample: list[Task]
    holdout_sample: list[Task]
    benchmarks: list[tuple[str, int, list[Task]]]

    @classmethod
    def of(cls, recipe: Recipe) -> _Material:
        benchmarks = []
        for source in recipe.evaluate.benchmarks:
            tasks = load_tasks(source)
            benchmarks.append((source.title, len(tasks), _sample(tasks, SAMPLE)))
        config = recipe.train
        if recipe.tasks is None or recipe.trainee is None or not isinstance(config, TrainConfig):
            return cls(None, 0, 0, 0, [], [], benchmarks)
        divided = curriculum(recipe)
        total = steps(config, len(divided.train))
        samples = _sample(divided.train, SAMPLE), _sample(divided.holdout, recipe.evaluate.constants)
        return cls(config, total, len(divided.train), len(divided.holdout), *samples, benchmarks)


def _rehearsed(
    recipe: Recipe, material: _Material, counts: Mapping[str, Count], tokens: Mapping[str, int]
) -> dict[tuple[str, str], Tally]:
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        rehearsal = _Rehearsal(recipe, counts, tokens, Path(folder))
        try:
            asyncio.run(_play(rehearsal, material))
        finally:
            rehearsal.journal.close()
        return rehearsal.totals


async def _play(rehearsal: _Rehearsal, material: _Material) -> None:
    if material.config and material.steps:
        await _training(rehearsal, material, material.config)
        await _holdout(rehearsal, material, material.config)
    if material.benchmarks:
        await _arms(rehearsal, material)


async def _training(rehearsal: _Rehearsal, material: _Material, config: TrainConfig) -> None:
    """Groups on tasks that are met for the first time, and groups on tasks that were met before."""
    tasks = material.train_sample
    groups = material.steps * config.tasks_per_step
    new = min(groups, material.train)
    for visit, times in enumerate((new, groups - new)):
        if times:
            await rehearse_groups(rehearsal.seats, rehearsal.journal, tasks, visit)
            rehearsal.book(TRAINING, times / len(tasks))


async def _holdout(rehearsal: _Rehearsal, material: _Material, config: TrainConfig) -> None:
    """The evaluation before training, and the later ones: other weights, and all that did not change shared."""
    if not material.holdout:
        return
    every, steps = config.evaluate_every, material.steps
    later = steps // every + bool(steps % every)
    for version, times in enumerate((1, later)):
        arm = Arm(f"{version}", rehearsal.recipe.topology.load(), rehearsal.seats.team(training=False, version=version))
        await _field(rehearsal, HOLDOUT, material.holdout_sample).play(arm)
        rehearsal.book(HOLDOUT, times * material.holdout / len(material.holdout_sample))


async def _arms(rehearsal: _Rehearsal, material: _Material) -> None:
    recipe = rehearsal.recipe
    run = Run(rehearsal.folder / "run", recipe)
    if recipe.trainee is not None:
        run.best.mkdir()
        run.mark_best(run.best, 1)
    arms = standard_arms(recipe, run, rehearsal.seats)
    arms += await _constant(rehearsal, material, arms[-1])
    for name, tasks, sample in material.benchmarks:

        def progress(arm: str, done: int, of: int, times: float = tasks / len(sample)) -> None:
            if done == of:
                rehearsal.book(arm, times)

        await compare(_field(rehearsal, name, sample), arms, recipe, progress)


async def _constant(rehearsal: _Rehearsal, material: _Material, arm: Arm) -> list[Arm]:
    """The control that has to find its words first, on the holdout."""
    sample = material.holdout_sample
    if "constant" not in rehearsal.recipe.evaluate.controls or not sample:
        return []
    words = await best_constant(arm, _field(rehearsal, HOLDOUT, sample), rehearsal.recipe.evaluate.constants)
    rehearsal.book("search for constant words", material.holdout / len(sample))
    return [control("best constant words", arm, lambda task: words)]


def _field(rehearsal: _Rehearsal, name: str, tasks: Sequence[Task]) -> Field:
    return Field(name, tasks, rehearsal.journal, no_verdict, rehearsal.recipe.seed)


def _sample(tasks: Sequence[Task], size: int) -> list[Task]:
    """A sample that is the same each time."""
    return random.Random(0).sample(list(tasks), min(size, len(tasks)))


def _length(name: str, limit: int, means: Mapping[str, float]) -> tuple[float, str]:
    return (means[name], "measured") if name in means else (limit / 2, "half of max_tokens, a guess")


def _counter(recipe: Recipe, name: str) -> Count:
    """Counts a member's prompt tokens: by its own tokenizer and chat template where they are on this machine."""
    member = recipe.team[name]
    folder = local_folder(member.model, member.revision) if member.engine == "transformers" else None
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
