"""The stages of a recipe as they are looked at before a run: what each one stands on, and how much it plays.

    for stage in stages_of(recipe): ...

A recipe without stages is one stage without a name. The weights that a stage will start from are not there yet, so
the trainee is the recipe's own model in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pilotfish.recipe import Recipe, RecipeError
from pilotfish.recipe import Stage as Config
from pilotfish.run import VERSIONS
from pilotfish.task import Task
from pilotfish.train.decisions import cautions, trained_decisions
from pilotfish.train.order import order, parts
from pilotfish.train.profile import BacktrackConfig, CollectStage, SftConfig, TrainConfig, steps
from pilotfish.train.row import RowId


@dataclass(frozen=True)
class Stage:
    """One stage, and what the stages before it leave behind."""

    name: str
    """Empty where the recipe has no stages."""
    config: Config
    recipe: Recipe
    """With `config` as its training."""
    number: int = 0
    """Its place among the stages, from 1; 0 where the recipe has none."""
    held: frozenset[int] = frozenset()
    """Rounds of answers that were collected before, those above 0 by the leader `shaped_by`."""
    weights: str = ""
    """The stage whose weights it starts from; empty for the recipe's own."""
    shaped_by: str = ""
    """The stage whose weights shaped the answers of rounds above 0."""

    @property
    def place(self) -> str:
        """Begins the scopes of its calls."""
        return f"{self.name}/" if self.name else ""

    @property
    def first_version(self) -> int:
        """Of the trainee's weights before this stage has trained them."""
        return VERSIONS * self.number

    @property
    def sets(self) -> int:
        """Sets of answers a task."""
        return self.recipe.sets(self.config) if isinstance(self.config, TrainConfig) else self.recipe.collect.sets

    @property
    def trains(self) -> bool:
        """Whether weights come of it."""
        return not isinstance(self.config, CollectStage)

    @property
    def plays(self) -> bool:
        """Whether it plays episodes."""
        return not isinstance(self.config, SftConfig)

    def title(self, part: str) -> str:
        """What a part of it is called in a table."""
        return f"{self.name}: {part}" if self.name else part

    def field(self, name: str) -> str:
        """Where one of its settings stands in the recipe."""
        return f"stages.{self.name}.{name}" if self.name else f"train.{name}"

    @cached_property
    def decisions(self) -> tuple[tuple[int, ...], ...]:
        """Those that it trains, of each topology; none where it plays no groups.

        Raises:
            RecipeError: see `train.decisions`.
        """
        return trained_decisions(self.recipe, self.config) if isinstance(self.config, TrainConfig) else ()

    def groups(self, tasks: int) -> int:
        """Groups in an epoch over so many tasks."""
        return tasks * self.sets * max(1, sum(map(len, self.decisions)))

    def cautions(self, task: Task) -> list[str]:
        """What a rehearsal on a task finds wrong with the decisions that it trains.

        Raises:
            RecipeError: see `train.decisions`.
        """
        if not isinstance(self.config, TrainConfig) or self.recipe.trainee is None:
            return []
        return cautions(self.recipe, self.config, task)

    def laid(self, tasks: int) -> list[RowId]:
        """The groups of its training on so many tasks, whose ids are numbers, one behind the other.

        Raises:
            ValueError: they do not fill one step.
        """
        if not isinstance(self.config, TrainConfig):
            return []
        trained = [(decision, at) for at, decisions in enumerate(self.decisions) for decision in decisions]
        rows = [RowId(str(n), set, *one) for n in range(tasks) for set in range(self.sets) for one in trained]
        return order(rows, self.config.model_copy(update={"set_order": "mixed"}), self.recipe.seed)

    def steps(self, tasks: int) -> int:
        """Steps of its training on so many tasks; 0 where it plays no groups.

        Raises:
            ValueError: they do not fill one step.
        """
        return steps(self.config, self.groups(tasks)) if isinstance(self.config, TrainConfig) else 0

    @property
    def reads(self) -> bool:
        """Whether it stands on answers that are collected."""
        if isinstance(self.config, TrainConfig):
            return self.config.prefix != "fresh"
        return isinstance(self.config, CollectStage | BacktrackConfig)

    @property
    def unasked(self) -> bool:
        """Whether nobody has collected the agents' answers that it trains on: it asks for them itself."""
        shaped = isinstance(self.config, TrainConfig) and self.config.prefix == "shaped"
        return self.reads and self.trains and not shaped and not self.held

    @property
    def sifts(self) -> bool:
        """Whether it may leave out tasks by how often their stored answers are right."""
        return self.reads and self.trains and bool(self.held or not self.name)

    @property
    def lacking(self) -> tuple[int, ...]:
        """Rounds that it cannot train without, and that no stage before it collects."""
        if not isinstance(self.config, TrainConfig) or self.config.prefix != "shaped":
            return ()
        return tuple(sorted({*self.decisions[0]} - self.held))


def stages_of(recipe: Recipe) -> list[Stage]:
    """A recipe's stages in order, without those that are left out."""
    held = frozenset({0}) if recipe.collect.answers else frozenset[int]()
    if not recipe.stages:
        return [Stage("", recipe.train, recipe, held=held)]
    found: list[Stage] = []
    weights, shaped_by = "", ""
    for name, config in recipe.stages.items():
        if config is None:
            continue
        found.append(Stage(name, config, recipe.at(name, None), len(found) + 1, held, weights, shaped_by))
        if not isinstance(config, CollectStage):
            weights = name
            continue
        if any(config.rounds) and shaped_by != weights:  # another leader's answers come in place of the earlier ones
            held, shaped_by = held & {0}, weights
        held |= set(range(max(config.rounds, default=-1) + 1))
    return found


def check_lacking(stages: Sequence[Stage]) -> None:
    """Refuse stages that train on answers which no stage collects; a recipe without stages has them from elsewhere.

    Raises:
        RecipeError: names the stage, the rounds and the way out.
    """
    for stage in stages:
        if stage.name and stage.lacking:
            raise RecipeError(f"{lack(stage)}; {lack_way_out(stage)}")


def lack(stage: Stage) -> str:
    """What a stage lacks, in words."""
    rounds = _listed(stage.lacking)
    return f"{stage.field('prefix')} is shaped: it trains on answers of round {rounds}, which no stage before collects"


def lack_way_out(stage: Stage) -> str:
    """How to give a stage what it lacks."""
    return f"put a stage `{{method: collect, rounds: {sorted(stage.decisions[0])}}}` before it"


def notes(stages: Sequence[Stage], tasks: int) -> Iterator[str]:
    """What figures that are counted on so many tasks leave open."""
    trained = [stage for stage in stages if stage.name and isinstance(stage.config, TrainConfig)]
    if trained:
        yield "Steps: " + ", ".join(f"{stage.name} {stage.steps(tasks):,}" for stage in trained) + "."
    for stage in stages:
        yield from _divided(stage, tasks)
        if stage.unasked:
            yield f"{stage.title('stored answers')}: {unasked(stage)}."
        elif stage.lacking:
            yield f"Answers of round {_listed(stage.lacking)} are taken as there: `pilotfish collect` asks for them."
    sifted = [stage for stage in stages if stage.sifts]
    rules = sifted[0].recipe.collect if sifted else None
    if rules and rules.answers:
        yield f"Answers of round 0 are read from {rules.answers}, and cost nothing."
    if rules and (rules.drop_right is not None or rules.drop_wrong):
        names = ", ".join(stage.name or "training" for stage in sifted)
        yield f"{names}: counted on all {tasks:,} tasks; the filter (`collect.drop_right`) leaves fewer."


def _divided(stage: Stage, tasks: int) -> Iterator[str]:
    """Whether steps divide episodes of which several decisions are trained."""
    if isinstance(stage.config, TrainConfig) and stage.config.prefix != "shaped":
        sizes, size = list(map(len, stage.decisions)), stage.config.tasks_per_step
        played = list(parts(stage.laid(tasks), size))
        if cut := sum(len(part) < sizes[part[0].topology] for part in played):
            yield (
                f"{stage.field('tasks_per_step')} is {size}: {cut:,} of {len(played):,} times a step plays episodes "
                f"for a part of their {max(sizes)} decisions; with a multiple of {max(sizes)} once for all."
            )


def unasked(stage: Stage) -> str:
    """What it means that nobody has collected before a stage, in words."""
    means = "agents are asked when a set is first met"
    if isinstance(stage.config, TrainConfig) and stage.config.set_order in ("easy_first", "hard_first"):
        means += f", and set_order {stage.config.set_order} has nothing to go by"
    if stage.name:
        return f"no stage collects before it: {means}"
    return f"{means}, unless `pilotfish collect` has been run"


def _listed(rounds: Sequence[int]) -> str:
    return ", ".join(str(round) for round in rounds)
