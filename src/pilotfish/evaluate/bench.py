"""The comparison: every arm on the same held-out tasks, with paired intervals and what each one cost.

results = evaluate(recipe, run)          # plays what is not recorded, writes results.{json,md,csv} into the run
"""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

from pilotfish.cache import cache_folder
from pilotfish.curriculum import curriculum
from pilotfish.episode import Episode, Journal, Judge, Team
from pilotfish.evaluate.arms import (
    Arm,
    Field,
    Role,
    another_tasks_words,
    answering,
    baselines,
    best_constant,
    control,
    leading,
    titles,
    usage_table,
    variants,
    words_of,
)
from pilotfish.evaluate.record import write
from pilotfish.evaluate.rounds import Cell, by_round, leader_of
from pilotfish.evaluate.stats import mean_interval, paired_difference
from pilotfish.evaluate.table import Row
from pilotfish.overlap import overlap
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.task import Task, load_tasks
from pilotfish.topology import solo
from pilotfish.train.rollout import leaks
from pilotfish.verify import VerifierPool

Progress = Callable[[str, int, int], None]
"""Arm or stage, done, of how many."""


@dataclass(frozen=True)
class Result:
    """One benchmark's comparison."""

    benchmark: str
    rows: list[Row]
    episodes: dict[str, list[Episode]]
    rounds: dict[str, list[Cell]]
    """Of each arm that has a leader: its figures by round."""


def evaluate(recipe: Recipe, run: Run, *, progress: Progress = lambda stage, done, of: None) -> list[Result]:
    """Play and measure every arm of a recipe.

    Args:
        recipe: its `evaluate` section says which benchmarks and arms.
        run: where the record is; its best weights are the trained arm, where there are any.
        progress: told of each finished episode.

    Raises:
        RecipeError: no benchmark to evaluate on.
    """
    if not recipe.evaluate.benchmarks:
        raise RecipeError("evaluate.benchmarks is empty; name one, e.g. --set 'evaluate.benchmarks=[math500]'")
    seats = Seats(recipe)
    with VerifierPool() as pool:
        results = asyncio.run(_evaluate(recipe, run, seats, pool.judge, progress))
    write(results, run.folder)
    return results


async def _evaluate(recipe: Recipe, run: Run, seats: Seats, judge: Judge, progress: Progress) -> list[Result]:
    journal, kept = run.journal(), Journal(cache_folder() / "answers", shared=True)
    try:
        arms = standard_arms(recipe, run, seats)
        fields = [
            Field(source.title, load_tasks(source), journal, judge, recipe.seed, kept, recipe.evaluate.concurrency)
            for source in recipe.evaluate.benchmarks
        ]
        arms += await _constant(recipe, run, arms, fields[0])
        _warn_of_overlap(recipe, run, fields)
        return [await compare(field, arms, recipe, progress) for field in fields]
    finally:
        await seats.close()
        journal.close()
        kept.close()


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
    """The team with each of the trainee's weights that are measured, under their name."""
    assert recipe.trainee is not None
    if recipe.evaluate.untrained:
        yield "untrained", "untrained", frozen
    for name, best, version in _trained(run):
        engines = {**frozen.engines, recipe.trainee: seats.trained(best, version)}
        yield name, "trained", Team(frozen.members, engines)


def _trained(run: Run) -> Iterator[tuple[str, Path, int]]:
    """The weights that a run has trained, of each stage where it has some: their name, folder and version."""
    if run.recipe.stages:
        from pilotfish.train.stages import whole_weights

        for stage in run.stages():
            if weights := whole_weights(stage):
                yield stage.folder.name, weights, stage.best_version
    elif run.best.exists():
        yield "trained", run.best, run.best_version


async def _constant(recipe: Recipe, run: Run, arms: Sequence[Arm], field: Field) -> list[Arm]:
    """The control that says on every task the words that serve best on the training holdout."""
    if "constant" not in recipe.evaluate.controls or arms[-1].role != "trained":
        return []
    tasks = curriculum(recipe, run.state("curriculum")).holdout
    if not tasks:
        raise RecipeError("evaluate.controls has constant, which is chosen on the holdout; set tasks.holdout above 0")
    holdout = replace(field, benchmark="constants", tasks=tasks)
    words = await best_constant(arms[-1], holdout, recipe.evaluate.constants)
    return [control("best constant words", arms[-1], lambda task: words)]


async def compare(field: Field, arms: Sequence[Arm], recipe: Recipe, progress: Progress) -> Result:
    """Play all arms, and the controls that follow from them, on one benchmark."""
    played: dict[str, list[Episode]] = {}
    lead = leading(arms)
    queue, all_arms = list(arms), []
    if lead and "empty" in recipe.evaluate.controls:
        queue.append(control("empty words", lead, lambda task: ""))
    while queue:
        arm = queue.pop(0)
        all_arms.append(arm)
        counted = replace(field, on_episode=_counter(progress, arm.name, len(field.tasks)))
        played[arm.name] = await counted.play(arm)
        if arm is lead and "shuffled" in recipe.evaluate.controls:
            queue.append(control("another task's words", lead, another_tasks_words(played[arm.name], field.tasks)))
    rounds = {
        arm.name: await by_round(arm.topology, field.tasks, played[arm.name], field.judge)
        for arm in all_arms
        if leader_of(arm.topology)
    }
    return Result(field.benchmark, rows(all_arms, played, field.tasks, recipe), played, rounds)


def _warn_of_overlap(recipe: Recipe, run: Run, fields: Sequence[Field]) -> None:
    """Say which tasks of the benchmarks the run has been trained on: the recipe may name others than then."""
    trained = run.state("curriculum")
    if not trained or recipe.tasks is None:
        return
    repeats = overlap(curriculum(recipe, trained).train, {field.benchmark: field.tasks for field in fields})
    if repeats:
        shown = "; ".join(str(repeat) for repeat in repeats[:5])
        warnings.warn(f"{len(repeats)} repeats of tasks that were trained on are measured: {shown}", stacklevel=2)


def _counter(progress: Progress, name: str, of: int) -> Callable[[], None]:
    done = itertools.count(1)
    return lambda: progress(name, next(done), of)


def rows(arms: Sequence[Arm], played: Mapping[str, list[Episode]], tasks: Sequence[Task], recipe: Recipe) -> list[Row]:
    """One row an arm, with its differences to the arms that it is compared with."""
    rewards = {name: _rewards(episodes) for name, episodes in played.items()}
    made = []
    for arm in arms:
        episodes, found = played[arm.name], mean_interval(rewards[arm.name])
        made.append(
            Row(
                arm.name,
                found.estimate,
                found.low,
                found.high,
                found.n,
                found.unjudged,
                difference_to={
                    other: paired_difference(rewards[arm.name], rewards[other]) for other in _compared(arm, arms)
                },
                leak_rate=_leak_rate(arm, episodes, tasks),
                tokens_per_member=usage_table(episodes),
                calls=sum(len(episode.turns) for episode in episodes) / len(episodes),
                seconds=sum(place.turn.seconds for episode in episodes for place in episode.turns) / len(episodes),
                cost=_cost(episodes, recipe),
            )
        )
    return made


def _compared(arm: Arm, arms: Sequence[Arm]) -> list[str]:
    """With whom an arm is compared: the leading one with all others, each with the first one, and trained weights also
    with the same topology before training."""
    lead, label = leading(arms), arm.topology.label
    before = [other for other in arms if other.role == "untrained" and other.topology.label == label]
    others = list(arms) if arm is lead else [*arms[:1], *(before if arm.role == "trained" else [])]
    return list(dict.fromkeys(other.name for other in others if other is not arm))


def _rewards(episodes: Sequence[Episode]) -> list[float]:
    """nan where there is no verdict."""
    return [nan if episode.verdict.reward is None else episode.verdict.reward for episode in episodes]


def _leak_rate(arm: Arm, episodes: Sequence[Episode], tasks: Sequence[Task]) -> float | None:
    decisions = [place for episode in episodes for place in episode.decisions()[:1]]
    answers = {place.turn.member for place in decisions} & set(answering(arm.topology))
    if not decisions or answers or all(place.final for place in decisions):
        return None  # nobody advises: the words are the answer itself
    return sum(leaks(task, words_of(episode)) for task, episode in zip(tasks, episodes, strict=True)) / len(tasks)


def _cost(episodes: Sequence[Episode], recipe: Recipe) -> float | None:
    prices = {name: member.price for name, member in recipe.team.items()}
    if not any(price.input or price.output for price in prices.values()):
        return None
    return sum(usage.cost(prices[member]) for episode in episodes for member, usage in episode.usage().items())
