"""The comparison: every arm on the same held-out tasks, with paired intervals and what each one cost.

results = evaluate(recipe, run)          # plays what is not recorded, writes results.{json,md,csv} into the run
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path

from pilotfish.cache import cache_folder
from pilotfish.curriculum import curriculum
from pilotfish.episode import Episode, Journal, Judge, Team
from pilotfish.evaluate.arms import (
    Arm,
    Field,
    another_tasks_words,
    baselines,
    best_constant,
    control,
    usage_table,
    words_of,
)
from pilotfish.evaluate.stats import mean_interval, paired_difference
from pilotfish.evaluate.table import Row, render_markdown, to_csv, to_json
from pilotfish.overlap import overlap
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.task import Task, load_tasks
from pilotfish.topology import solo
from pilotfish.train.rollout import leaks
from pilotfish.verify import VerifierPool

TRAINED, UNTRAINED = "trained", "untrained"

Progress = Callable[[str, int, int], None]
"""Arm or stage, done, of how many."""


@dataclass(frozen=True)
class Result:
    """One benchmark's comparison."""

    benchmark: str
    rows: list[Row]
    episodes: dict[str, list[Episode]]


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
    """Baselines, the team before training, and after it where the run has trained weights."""
    frozen = Team(recipe.members(), {name: seats.engine(name) for name in recipe.team})
    topology = recipe.topology.load()
    against = baselines(recipe)
    names = [topology.name for topology in against]
    arms = [
        Arm(topology.name if names.count(topology.name) == 1 else topology.label, topology, frozen)
        for topology in against
    ]
    if recipe.trainee is None:
        return [*arms, Arm(topology.name if topology.name not in names else topology.label, topology, frozen)]
    if "trainee" in recipe.evaluate.controls:
        prompts = next((t.options["prompts"] for t in against if t.name == "solo" and "prompts" in t.options), None)
        alone = solo.bind(member=recipe.trainee, **({"prompts": prompts} if prompts else {}))
        arms.append(Arm(f"{recipe.trainee} alone", alone, frozen))
    if recipe.evaluate.untrained:
        arms.append(Arm(f"{topology.name}, {UNTRAINED}", topology, frozen))
    if run.best.exists():
        # The policy counted optimizer updates while it learned.
        version = (run.best_step or 0) * getattr(recipe.train, "updates_per_step", 1)
        trained = Team(frozen.members, {**frozen.engines, recipe.trainee: seats.trained(run.best, version)})
        arms.append(Arm(f"{topology.name}, {TRAINED}", topology, trained))
    return arms


async def _constant(recipe: Recipe, run: Run, arms: Sequence[Arm], field: Field) -> list[Arm]:
    """The control that says on every task the words that serve best on the training holdout."""
    if "constant" not in recipe.evaluate.controls or not arms[-1].name.endswith(f", {TRAINED}"):
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
    leader = next((arm for arm in reversed(arms) if arm.name.endswith((TRAINED, UNTRAINED))), None)
    queue = list(arms)
    if leader and "empty" in recipe.evaluate.controls:
        queue.append(control("empty words", leader, lambda task: ""))
    while queue:
        arm = queue.pop(0)
        counted = replace(field, on_episode=_counter(progress, arm.name, len(field.tasks)))
        played[arm.name] = await counted.play(arm)
        if arm is leader and "shuffled" in recipe.evaluate.controls:
            queue.append(control("another task's words", leader, another_tasks_words(played[arm.name], field.tasks)))
    reference = [arm.name for arm in arms if arm.words is None][:1]
    made = rows(played, field.tasks, recipe, reference, leader.name if leader else None)
    return Result(field.benchmark, made, played)


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


def rows(
    played: dict[str, list[Episode]],
    tasks: Sequence[Task],
    recipe: Recipe,
    reference: Sequence[str],
    leader: str | None,
) -> list[Row]:
    """One row an arm; each arm's difference to the first one, and the leading arm's difference to every other."""
    rewards = {name: _rewards(episodes) for name, episodes in played.items()}
    made = []
    for name, episodes in played.items():
        others = [other for other in (played if name == leader else reference) if other != name]
        found = mean_interval(rewards[name])
        made.append(
            Row(
                name,
                found.estimate,
                found.low,
                found.high,
                found.n,
                found.unjudged,
                difference_to={other: paired_difference(rewards[name], rewards[other]) for other in others},
                leak_rate=_leak_rate(episodes, tasks),
                tokens_per_member=usage_table(episodes),
                calls=sum(len(episode.turns) for episode in episodes) / len(episodes),
                seconds=sum(place.turn.seconds for episode in episodes for place in episode.turns) / len(episodes),
                cost=_cost(episodes, recipe),
            )
        )
    return made


def write(results: Sequence[Result], folder: Path) -> None:
    """results.json, results.md and results.csv (one file a benchmark) in a run's folder."""
    record = {result.benchmark: json.loads(to_json(result.rows)) for result in results}
    record["written"] = time.strftime("%Y-%m-%dT%H:%M:%S")
    (folder / "results.json").write_text(json.dumps(record, indent=1))
    (folder / "results.md").write_text(
        "\n".join(f"## {result.benchmark}\n\n{render_markdown(result.rows)}" for result in results)
    )
    for result in results:
        (folder / csv_name(result.benchmark)).write_text(to_csv(result.rows))


def csv_name(benchmark: str) -> str:
    """Name of a benchmark's CSV in a run's folder."""
    return f"results-{benchmark.replace('/', '-')}.csv"


def _rewards(episodes: Sequence[Episode]) -> list[float]:
    """nan where there is no verdict."""
    return [nan if episode.verdict.reward is None else episode.verdict.reward for episode in episodes]


def _leak_rate(episodes: Sequence[Episode], tasks: Sequence[Task]) -> float | None:
    decisions = [place for episode in episodes for place in episode.decisions()[:1]]
    if not decisions or all(place.final for place in decisions):
        return None  # nobody advises: the words are the answer itself
    return sum(leaks(task, words_of(episode)) for task, episode in zip(tasks, episodes, strict=True)) / len(tasks)


def _cost(episodes: Sequence[Episode], recipe: Recipe) -> float | None:
    prices = {name: member.price for name, member in recipe.team.items()}
    if not any(price.input or price.output for price in prices.values()):
        return None
    return sum(usage.cost(prices[member]) for episode in episodes for member, usage in episode.usage().items())
