"""The comparison: every arm on the same held-out tasks, with paired intervals and what each one cost.

results = evaluate(recipe, run)                  # plays what is not recorded, writes the files of `record` into the run
results = evaluate(recipe, run, recorded=True)   # asks nobody: the methods whose episodes are all recorded

Several processes play together: each its part of every arm, with engines and a file of the journal of its own. The main
one calls the others, measures and writes.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pilotfish.cache import cache_folder
from pilotfish.engine.base import Engine
from pilotfish.engine.meter import MaxCostReached, Meter
from pilotfish.episode import Episode, Journal, Judge
from pilotfish.episode.hearing import recorded as heard_before
from pilotfish.evaluate.accounts import SEARCH, Asked, asked
from pilotfish.evaluate.arms import CONTROLS, Arm, Field, Played, another_tasks_words, control, leading
from pilotfish.evaluate.attribution import Attribution, attribute
from pilotfish.evaluate.budget import Point, curve
from pilotfish.evaluate.cautions import warn_of_greed, warn_of_other_calls, warn_of_overlap
from pilotfish.evaluate.comparison import rows
from pilotfish.evaluate.lineup import AtServers, Nobody, arms_of, constant
from pilotfish.evaluate.recall import judges, recall
from pilotfish.evaluate.record import write
from pilotfish.evaluate.rounds import Cell, by_round, leader_of
from pilotfish.evaluate.samples import AtK, at_ks
from pilotfish.evaluate.scores import Score, scored
from pilotfish.evaluate.seated import keep_seated
from pilotfish.evaluate.seeds import OtherSeeds, OverSeeds
from pilotfish.evaluate.table import Row
from pilotfish.evaluate.weights import unhelped
from pilotfish.outcome import Outcome
from pilotfish.processes import Processes
from pilotfish.recipe import EvaluateConfig, Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.seats import Seats
from pilotfish.spending import arm_name
from pilotfish.task import load_tasks
from pilotfish.verify import VerifierPool

Progress = Callable[[str, int, int], None]
"""Arm or stage, done, of how many."""


@dataclass(frozen=True, repr=False)  # asyncio.run spells out what it returns: seconds, for all episodes
class Result:
    """One benchmark's comparison."""

    benchmark: str
    rows: list[Row]
    episodes: dict[str, list[Episode]]
    """Of each arm, the first sample of each task."""
    rounds: dict[str, list[Cell]]
    """Of each arm that has a leader: its figures by round, of the first samples."""
    scores: Sequence[Score] = ()
    """Of every episode."""
    at_k: Sequence[AtK] = ()
    """Where there are several samples a task: pass@k and majority@k of each arm."""
    budgets: Mapping[str, list[Point]] = field(default_factory=dict)
    """Of each arm but the controls: accuracy over what it spends."""
    seeds: OverSeeds | None = None
    """Where the recipe names runs of other seeds: differences over seeds and tasks."""
    asked: Mapping[str, Asked] = field(default_factory=dict)
    """What was asked of each member, each call once, and not again where a benchmark before this one has asked it."""
    search: Mapping[str, Asked] = field(default_factory=dict)
    """With the first benchmark: what was asked on the holdout to choose the words of the `constant` control."""
    attribution: Mapping[str, Attribution] = field(default_factory=dict)
    """Of each arm of which it can be told: where its gain comes from, in the first samples."""
    weights: Sequence[Outcome] = ()
    """With the first benchmark: of the trained weights that were measured on any, those of step 0."""


def evaluate(
    recipe: Recipe,
    run: Run,
    *,
    progress: Progress = lambda stage, done, of: None,
    meter: Meter | None = None,
    recorded: bool = False,
    processes: Processes | None = None,
) -> list[Result]:
    """Play and measure every arm of a recipe, with each team of `evaluate.models`.

    Args:
        recipe: its `evaluate` section says which benchmarks and arms.
        run: where the record is; its best weights are the trained arm, where there are any.
        progress: told of each finished episode.
        meter: counts what is spent, for whoever shows it.
        recorded: measure from the record alone, without models: see `recall`. The main process does.
        processes: of which this is the main one, and the others follow; this one alone when None.

    Raises:
        RecipeError: no benchmark to evaluate on, nothing to play there, or `evaluate.seeds` names a run without the
            same figures.
        RunError: nothing is to be played, and no arm is recorded whole.
        MaxCostReached: the run has spent what it may; says what is left.
    """
    if not recipe.evaluate.benchmarks:
        raise RecipeError("evaluate.benchmarks is empty; name one, e.g. --set 'evaluate.benchmarks=[math500]'")
    warn_of_greed(recipe)
    others = OtherSeeds(recipe)
    with VerifierPool() as pool:
        if recorded:
            results = asyncio.run(_remeasure(recipe, run, pool.judge, others))
        else:
            together = processes or Processes()
            together.call(partial(_take_part, recipe, run.folder))
            results = asyncio.run(_evaluate(recipe, run, pool.judge, others, progress, meter, together))
    first, *further = results
    results = [replace(first, weights=unhelped(recipe, run, results)), *further]
    write(results, run.folder)
    return results


async def _evaluate(
    recipe: Recipe,
    run: Run,
    judge: Judge,
    others: OtherSeeds,
    progress: Progress,
    meter: Meter | None,
    together: Processes,
) -> list[Result]:
    async with _opened(recipe, run, judge, meter, together) as (seats, fields):
        warn_of_overlap(recipe, run, fields)
        if others.folders:
            others.check(fields, [arm for team in recipe.teams() for arm in arms_of(team, recipe, run, Nobody())])
        since = time.time()
        played = await _played(recipe, run, seats, fields, progress)
        warn_of_other_calls([one for on in fields for one in played[on.benchmark]], since)
        judging = {name: seats.engine(name) for name in recipe.judges}
        return await _measured(recipe, fields, played, judging, others)


def _take_part(recipe: Recipe, folder: Path, together: Processes) -> None:
    """Play beside the main process, which has the run's lock, brings the news and gives the warnings."""
    with VerifierPool() as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(_play_along(recipe, Run(folder), pool.judge, together))


async def _play_along(recipe: Recipe, run: Run, judge: Judge, together: Processes) -> None:
    async with _opened(recipe, run, judge, None, together) as (seats, fields):
        await _played(recipe, run, seats, fields, lambda stage, done, of: None)


@asynccontextmanager
async def _opened(
    recipe: Recipe, run: Run, judge: Judge, meter: Meter | None, together: Processes
) -> AsyncIterator[tuple[Seats, list[Field]]]:
    """What one process plays with."""
    journal, kept = run.journal(), Journal(cache_folder() / "answers", shared=True)
    seats = Seats(recipe, journal, meter, together)
    try:
        with seats.sharing(), seats.answerable():
            yield seats, _fields(recipe, journal, judge, kept, together)
    finally:
        await seats.close()
        journal.close()
        kept.close()


async def _remeasure(recipe: Recipe, run: Run, judge: Judge, others: OtherSeeds) -> list[Result]:
    """The results of what is recorded whole; nobody is asked, and nothing is written into the record."""
    with closing(run.journal(writable=False)) as journal:
        fields = _fields(recipe, journal, judge, None, Processes())
        warn_of_overlap(recipe, run, fields)
        played = await recall(recipe, run, fields)
        for on in fields:
            others.check([on], [one.arm for one in played[on.benchmark]])
        return await _measured(recipe, fields, played, judges(recipe, played), others)


def _fields(recipe: Recipe, journal: Journal, judge: Judge, kept: Journal | None, together: Processes) -> list[Field]:
    at_once = recipe.evaluate.concurrency
    return [
        Field(source.title, load_tasks(source), journal, judge, recipe.seed, kept, at_once, together=together)
        for source in recipe.evaluate.benchmarks
    ]


async def _measured(
    recipe: Recipe,
    fields: Sequence[Field],
    played: Mapping[str, Sequence[Played]],
    judging: Mapping[str, Engine],
    others: OtherSeeds,
) -> list[Result]:
    """What was played on each benchmark, measured; a benchmark on which nothing was has no result."""
    counted: set[str] = set()
    search = asked(played[SEARCH], counted)
    measured = []
    for on in fields:
        if arms := played[on.benchmark]:
            # What is measured beside the episodes asks nobody.
            silent = replace(on, judge=heard_before(on.judge, recipe.members(), judging, on.journal))
            measured.append(await measure(silent, arms, others, counted))
    if not measured:
        raise RecipeError(
            "nothing is measured: no trained weights, evaluate.untrained is false and nothing stands in "
            "evaluate.against; set one of the two, or train first"
        )
    first, *further = measured
    return [replace(first, search=search), *further]


async def _played(
    recipe: Recipe, run: Run, seats: Seats, fields: Sequence[Field], progress: Progress
) -> dict[str, list[Played]]:
    """Every arm by benchmark, and what was played to choose constant words; team by team: a team's models are let go
    before the next one's are loaded."""
    played: dict[str, list[Played]] = {name: [] for name in (SEARCH, *(on.benchmark for on in fields))}
    tally = _Tally(recipe, fields, progress)
    try:
        for name, team in recipe.teams().items():
            seats.move_to(team)
            await seats.release()
            await _start_servers(name, recipe, run, seats, fields[0].together)
            arms = arms_of(name, recipe, run, seats)
            if fields[0].together.main:
                keep_seated(run, name, recipe, seats.engine)
            constants, tried = await constant(team, run, arms, fields[0])
            arms += constants
            played[SEARCH] += [one.without_engines() for one in tried]
            tally.arms = len(arms)
            for on in fields:
                found = await play_arms(on, arms, team.evaluate, tally.told)
                played[on.benchmark] += [one.without_engines() for one in found]
            del arms, found, constants, tried  # their engines hold weights
    except MaxCostReached as error:
        raise MaxCostReached(f"{error}. {tally}") from error
    return played


async def _start_servers(model: str, recipe: Recipe, run: Run, seats: Seats, together: Processes) -> None:
    """Start all servers that a team of several processes asks, before anybody loads weights. One process alone starts
    each with the first call that is not recorded."""
    if together.count == 1:
        return
    if together.main:
        arms_of(model, recipe, run, AtServers(seats))
    await asyncio.to_thread(seats.start_servers)


class _Tally:
    """Episodes played so far, and of how many."""

    def __init__(self, recipe: Recipe, fields: Sequence[Field], progress: Progress) -> None:
        self.progress = progress
        self.done = 0
        self.arms = 0
        follow = [control for control in recipe.evaluate.controls if control in ("empty", "shuffled")]
        self.more = len(follow) if recipe.trainee else 0
        self.each = len(recipe.teams()) * recipe.evaluate.samples * sum(len(on.tasks) for on in fields)

    def told(self, stage: str, done: int, of: int) -> None:
        self.done += 1
        self.progress(stage, done, of)

    def __str__(self) -> str:
        return f"{self.done} of about {(self.arms + self.more) * self.each} episodes are played"


async def compare(on: Field, arms: Sequence[Arm], recipe: Recipe, progress: Progress) -> Result:
    """Play all arms of one team, and the controls that follow from them, on one benchmark, and measure them."""
    return await measure(on, await play_arms(on, arms, recipe.evaluate, progress))


async def play_arms(on: Field, arms: Sequence[Arm], config: EvaluateConfig, progress: Progress) -> list[Played]:
    """Play all arms of one team, and the controls that follow from them, on one benchmark."""
    played: list[Played] = []
    lead, samples = leading(arms), config.samples
    queue = list(arms)
    if lead and "empty" in config.controls:
        queue.append(control(arm_name(lead.model, CONTROLS["empty"]), lead, lambda task: ""))
    while queue:
        arm = queue.pop(0)
        counted = replace(on, on_episode=_counter(progress, arm.name, samples * len(on.mine)))
        played.append(Played(arm, await counted.sample(arm, samples)))
        if arm is lead and "shuffled" in config.controls:
            words = another_tasks_words(played[-1].first, on.tasks)
            queue.append(control(arm_name(lead.model, CONTROLS["shuffled"]), lead, words))
    return played


async def measure(
    on: Field, played: Sequence[Played], others: OtherSeeds | None = None, counted: set[str] | None = None
) -> Result:
    """What arms were worth on a benchmark, and what they cost.

    Args:
        on: the tasks.
        played: the arms.
        others: runs of other seeds.
        counted: see `asked`.
    """
    rounds = {
        one.arm.name: await by_round(one.arm.topology, on.tasks, one.first, on.judge)
        for one in played
        if leader_of(one.arm.topology)
    }
    sampled = {one.arm.name: at_ks(one, on.tasks) for one in played}
    return Result(
        on.benchmark,
        rows(played, on.tasks),
        {one.arm.name: list(one.first) for one in played},
        rounds,
        [score for one in played for score in scored(on.benchmark, one, on.tasks)],
        [point for found in sampled.values() for point in found],
        {one.arm.name: await curve(one, on, sampled[one.arm.name]) for one in played if one.arm.role != "control"},
        _over_seeds(on, played, others),
        asked(played, set() if counted is None else counted),
        attribution={
            one.arm.name: found
            for one in played
            if (found := await attribute(one, _alone(one, played), on.tasks, on.judge))
        },
    )


def _over_seeds(on: Field, played: Sequence[Played], others: OtherSeeds | None) -> OverSeeds | None:
    """What holds over seeds; a run that lacks a figure costs this table and no other."""
    try:
        return others.compare(on, played) if others else None
    except RecipeError as error:
        warnings.warn(f"{on.benchmark}: no table over seeds: {error}", stacklevel=3)
        return None


def _alone(one: Played, played: Sequence[Played]) -> Played | None:
    """The actor alone, on the same models; None for itself."""
    beside = (other for other in played if other.arm.model == one.arm.model and other.arm.role == "baseline")
    alone = next((other for other in beside if other.arm.topology.name == "solo"), None)
    return None if alone is one else alone


def _counter(progress: Progress, name: str, of: int) -> Callable[[], None]:
    done = itertools.count(1)
    return lambda: progress(name, next(done), of)
