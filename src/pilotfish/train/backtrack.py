"""Backtracking, MLPO's first stage: the leader learns from chains of thought that start wrong, notice it and recover.

The untrained leader answers each task several times, over the task's stored sets. Where it was both right and wrong it
is asked for one train of thought that begins as the wrong answer did and ends as the right one. Chains that verify,
keep the form and were wrong first are learned by fine-tuning. In the run's folder, `backtrack.jsonl` holds them behind
the prompts that they answer, `backtrack.json` how many tasks and chains came to what. Source: MLPO, section "SFT".

    train: {method: backtrack, samples: 16}      # or a stage of this kind, before MLPO
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish import state
from pilotfish.collect.sets import OUTAGES
from pilotfish.collect.store import Store
from pilotfish.episode import Episode, Horizon, Scopes, Team, play
from pilotfish.lab.data import read_rows
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.run import Run
from pilotfish.spread import spread
from pilotfish.task import Task
from pilotfish.team import Message
from pilotfish.topology import Topology
from pilotfish.train.chains import FORM, OUTCOMES, Pair, Sample, begun, judged, mend, pairs, spliced
from pilotfish.train.profile import BacktrackConfig
from pilotfish.train.rollout import TooManyOutages
from pilotfish.train.sifted import sifted
from pilotfish.verify import Verdict
from pilotfish.verify.verdict import RIGHT
from pilotfish.workshop import Workshop

if TYPE_CHECKING:
    from pilotfish.train.main import Told

Made = tuple[str, dict[str, Any] | None]
"""One of `OUTCOMES`, and the row where a chain was kept."""


def backtrack(recipe: Recipe, run: Run, workshop: Workshop, told: Told) -> None:
    """Make the chains, unless they are made, and fine-tune the trainee on them.

    Without a single chain nothing is learned and no weights are written: what comes next starts from the same ones.

    Args:
        recipe: its `train` is a `BacktrackConfig`.
        run: or a stage of one, where chains and weights go.
        workshop: seats the team.
        told: called with news.

    Raises:
        RecipeError: the stored answers are not of this recipe, no task is left by the filter, or the topology does not
            ask the trainee.
        TooManyOutages: more than half of the samples have no verdict.
        ValueError: no chain fits into `max_length`.
    """
    from pilotfish.train.fine_tune import fine_tune
    from pilotfish.train.quiet import quiet

    config, file = recipe.train, run.folder / "backtrack.jsonl"
    assert isinstance(config, BacktrackConfig)
    if not run.state("backtrack"):
        tasks, _ = sifted(recipe, run, workshop, run.curriculum(told).train, told)
        told(f"note: backtracking: {config.samples} answers to each of {len(tasks)} tasks", 0, {})
        with quiet():
            writer = _Writer(recipe, config, run, workshop, tasks)
            made = workshop.play(writer.all())
        _write(file, [row for _, row in made if row])
        run.keep("backtrack", writer.report([outcome for outcome, _ in made]))
    rows = read_rows(str(file), 0, recipe.seed)
    told(f"note: backtracking: {_summary(run.state('backtrack'))}", 0, {})
    if rows:
        workshop.play(workshop.seats.vacate())
        batch, micro_batch = batches(config, len(rows), workshop.processes.count)
        metrics = fine_tune(
            recipe, config, run, workshop.processes, told, rows, batch, micro_batch, epochs=config.epochs
        )
        run.keep("finished", {"chains": len(rows), **metrics})
    else:
        run.keep("finished", {"chains": 0})
        told("note: no chain to learn from; what follows starts from the same weights", 0, {})


class _Writer:
    """Makes the chains of a run: what its steps share, and what it counts."""

    def __init__(
        self, recipe: Recipe, config: BacktrackConfig, run: Run, workshop: Workshop, tasks: Sequence[Task]
    ) -> None:
        self.recipe = recipe
        self.config = config
        self.place = run.place
        self.workshop = workshop
        self.tasks = tasks
        self.trainee = recipe.trainee or ""
        self.topology = recipe.topology.load()
        seats = workshop.seats
        engines = {**seats.frozen(), self.trainee: seats.engine(self.trainee)}
        self.team = Team(recipe.members(training=True), engines)
        self.sampled = self.unjudged = 0
        self._began = time.time()
        # Who was absent when answers were collected stays absent.
        self._asked_again = ("failed",) if Store(run.root.folder).sets else ("failed", "absent")
        self._free = asyncio.Semaphore(recipe.collect.concurrency)

    async def all(self) -> list[Made]:
        """What came of every task and chain, in the order of the tasks."""
        made: dict[str, list[Made]] = {}

        async def one(task: Task) -> None:
            made[task.id] = await self._task(task)

        await spread(self.tasks, one, self.recipe.collect.concurrency)
        return [chain for task in self.tasks for chain in made[task.id]]

    def report(self, outcomes: Sequence[str]) -> dict[str, Any]:
        """What the run keeps of it."""
        counted = Counter(outcomes)
        counts = {outcome: counted[outcome] for outcome in OUTCOMES}
        return {"tasks": len(self.tasks), "samples": self.sampled, "unjudged": self.unjudged, "counts": counts}

    async def _task(self, task: Task) -> list[Made]:
        asked = await asyncio.gather(*(self._sample(task, number) for number in range(self.config.samples)))
        samples = [sample for sample in asked if sample]
        found = pairs(samples, self.config, f"{self.recipe.seed}/{task.id}/pairs")
        if isinstance(found, str):
            return [(found, None)]
        return list(await asyncio.gather(*(self._chain(task, *numbered) for numbered in enumerate(found))))

    async def _sample(self, task: Task, number: int) -> Sample | None:
        set = number % self.recipe.collect.sets
        group, stored = f"{self.place}samples/{task.id}/{set}#{number}", f"stored/{task.id}/{set}"
        episode = await self._play(task, self.topology, Scopes(group, stored, self.recipe.seed), Horizon(0))
        self._count(episode)
        verdict, decided = episode.verdict, episode.decisions(0)
        if verdict.reward is None:
            return None
        if not decided:
            raise RecipeError(
                f"{self.topology.name} does not ask {self.trainee}; give `train` to a member that it asks"
            )
        turn = decided[0].turn
        return Sample(set, turn.messages, turn.text.strip(), verdict.reward >= RIGHT, verdict.extracted)

    async def _chain(self, task: Task, number: int, pair: Pair) -> Made:
        text, verdict = await self._written(task, number, pair)
        outcome = judged(task, text, verdict, pair.wrong)
        return outcome, self._row(task, pair, text) if outcome == "kept" else None

    async def _written(self, task: Task, number: int, pair: Pair) -> tuple[str, Verdict]:
        """The chain of a pair, from where it begins to think, and the verdict on it."""
        if self.config.chains == "spliced":
            text = spliced(pair)
            return text, await self.workshop.pool.judge(task, text, FORM)
        scopes = Scopes(f"{self.place}chains/{task.id}/{number}", seed=self.recipe.seed)
        episode = await self._play(task, mend(self.trainee, pair), scopes)
        return begun(episode.answer or ""), episode.verdict

    def _row(self, task: Task, pair: Pair, chain: str) -> dict[str, Any]:
        messages = [*pair.right.prompt, Message(role="assistant", content=chain)]
        about = {"family": "backtrack", "kind": self.config.chains, "task": task.id, "set": pair.right.set}
        return {"messages": messages, **about, "wrong": pair.wrong.text, "right": pair.right.text}

    async def _play(self, task: Task, topology: Topology, scopes: Scopes, until: Horizon | None = None) -> Episode:
        shop, judge = self.workshop, self.workshop.pool.judge
        once = partial(play, task, topology, self.team, shop.journal, scopes, judge=judge, kept=shop.kept, until=until)
        async with self._free:
            episode = await once()
            # What stopped an earlier run may have been mended since.
            return await once(ask_again=True) if self._failed_before(episode) else episode

    def _failed_before(self, episode: Episode) -> bool:
        return episode.verdict.reward is None and any(
            turn.outcome in self._asked_again and turn.started < self._began for turn in episode.asked
        )

    def _count(self, episode: Episode) -> None:
        """Raises TooManyOutages; the first few samples alone do not decide it."""
        self.sampled += 1
        self.unjudged += episode.verdict.reward is None
        total = len(self.tasks) * self.config.samples
        if self.unjudged > OUTAGES * max(self.sampled, min(total, 64)):
            raise TooManyOutages(
                f"backtrack: {self.unjudged} of {self.sampled} samples have no verdict ({episode.verdict.why}). Mend "
                "the cause and resume: what was answered is in the journal"
            )


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    state.write(file, "".join(json.dumps(row) + "\n" for row in rows))


def _summary(report: dict[str, Any]) -> str:
    counts = {outcome: count for outcome, count in report["counts"].items() if count and outcome != "kept"}
    rest = ", ".join(f"{outcome} {count}" for outcome, count in counts.items())
    return f"{report['counts']['kept']} chains from {report['tasks']} tasks" + (f" (left out: {rest})" if rest else "")


def batches(config: BacktrackConfig, rows: int, processes: int = 1) -> tuple[int, int | None]:
    """`batch` and `micro_batch`, made smaller where there are fewer rows than a batch; processes divide the batch."""
    if rows >= config.batch:
        return config.batch, config.micro_batch
    micro_batch = min(config.micro_batch or rows, rows)
    batch = rows // micro_batch * micro_batch
    if batch % processes:  # a few rows are learned in one pass of each; where there are fewer still, some twice
        batch = micro_batch = max(1, batch // processes) * processes
    return batch, micro_batch
