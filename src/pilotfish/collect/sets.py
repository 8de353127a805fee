"""Collecting sets: an episode for each task and set that ends where the trainee's decision would be asked.

The episodes make exactly the calls that training makes before that decision, in the same scopes, so that training
finds them answered. A bounded number is in flight; what is in the journal is not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pilotfish.collect.manifest import Leader
from pilotfish.collect.store import Line, Store
from pilotfish.engine.base import Completion, Refused
from pilotfish.episode import Episode, Horizon, Scopes, Team, Turn, episode_id, play
from pilotfish.episode.calls import Live, digest
from pilotfish.episode.hearing import heard, scopes_of
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.spread import spread
from pilotfish.task import Task
from pilotfish.team import Messages, Sampling
from pilotfish.topology import Topology
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import TooManyOutages
from pilotfish.verify import Verdict
from pilotfish.workshop import Workshop

Told = Callable[[str, int, Mapping[str, float]], None]
"""See `pilotfish.train.main.Told`; `collect` comes with sets done, and `of`, `answers` and `absent`."""

OUTAGES = 0.5
"""See `train.outages`; for stages that have no such setting."""


class Unasked:
    """Sits in the trainee's seat: its turns are an earlier leader's, or the episode ends before them."""

    version = 0
    identity = None

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        raise Refused("the trainee is not asked while answers are collected")

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Prefix:
    """What is played of an episode: all that comes before one decision of the trainee."""

    topology: Topology
    rounds: tuple[int, ...]
    """Of answers, that are to be whole in the end."""
    leader: Leader | None
    """Who speaks in the trainee's seat before the decision; none before decision 0."""
    seed: int

    @property
    def decision(self) -> int:
        return max(self.rounds)

    @cached_property
    def played(self) -> Topology:
        """The topology, with enough rounds to come to the decision."""
        return self.topology.reaching(self.decision)

    def scopes(self, task: str, set: int) -> Scopes:
        """Those of training, but for the group."""
        shaped = f"{self.leader.scope}/{task}/{set}" if self.leader else None
        group = f"collect/{self.leader.scope if self.leader else 'stored'}/{task}/{set}"
        return Scopes(group, f"stored/{task}/{set}", self.seed, shaped, self.decision)

    def episode(self, task: str, set: int) -> str:
        """The id of a set's episode."""
        return episode_id(self.played, self.scopes(task, set))


class Collector:
    """Plays the sets of a run and writes down how right they are.

    Args:
        recipe: how many sets are in flight, and how many may be lost.
        workshop: the record, and who judges.
        prefix: what is played.
        team: who answers a task and set.
        tasks: to collect for.
        store: has begun; gets a line for each round.
        told: called with news.
        keep: share answers at temperature 0 with other runs.
    """

    def __init__(
        self,
        recipe: Recipe,
        workshop: Workshop,
        prefix: Prefix,
        team: Callable[[Task, int], Team],
        tasks: Sequence[Task],
        store: Store,
        told: Told,
        *,
        keep: bool = True,
    ) -> None:
        self.at_once = recipe.collect.concurrency
        self.outages = recipe.train.outages if isinstance(recipe.train, TrainConfig) else OUTAGES
        self.journal, self.pool = workshop.journal, workshop.pool
        self.kept = workshop.kept if keep else None
        self.prefix = prefix
        self.team = team
        self.tasks = tasks
        self.store = store
        self.told = told
        self.done = self.lost = self.answers = self.absent = 0
        self.why = ""

    async def collect(self) -> None:
        """Play the sets that are not whole.

        Raises:
            TooManyOutages: too many sets in which nobody answered; what was answered is kept.
            RecipeError: the topology asks the trainee first.
        """
        jobs = self._begin()
        self._tell()
        await spread(jobs, self._set, self.at_once)
        self._check(self.of)
        self.store.finish(range(self.prefix.decision + 1), self.prefix.leader)

    @property
    def of(self) -> int:
        return len(self.tasks) * self.store.sets

    def _begin(self) -> list[tuple[Task, int]]:
        """Counts the sets that are whole, and gives the others; a task's, which share their prompts, together."""
        jobs = []
        for task in self.tasks:
            for set in range(self.store.sets):
                lines = self._lines(task.id, set)
                settled = self.prefix.leader is None and self.store.is_shaped(task.id, set)
                if all(line and _is_judged(task, line) and (settled or not line.absent) for line in lines):
                    self._count([line for line in lines if line])
                else:
                    jobs.append((task, set))
        return jobs

    def _lines(self, task: str, set: int) -> list[Line | None]:
        """Of all rounds up to the decision."""
        return [self.store.line(task, set, round) for round in range(self.prefix.decision + 1)]

    async def _set(self, job: tuple[Task, int]) -> None:
        task, set = job
        episode = await play(
            task,
            self.prefix.played,
            self.team(task, set),
            self.journal,
            self.prefix.scopes(task.id, set),
            judge=_unjudged,
            kept=self.kept,
            ask_again=True,
            until=Horizon(self.prefix.decision, asked=False),
        )
        rounds = rounds_of(episode)
        if not rounds and episode.answer == "":
            raise RecipeError(
                f"{episode.topology} asks {episode.trainee} before anybody else: there is nothing to collect; train it "
                "with `prefix: fresh`"
            )
        lines = [await self._judged(task, set, round, turns) for round, turns in rounds.items()]
        self._count(lines)
        if any(not line or not line.usable for line in self._lines(task.id, set)):
            self.lost += 1
            self.why = episode.verdict.why or f"{episode.topology} ends without decision {self.prefix.decision}"
            self._check(max(self.done, min(self.of, self.at_once)))
        self._tell()

    async def _judged(self, task: Task, set: int, round: int, turns: Sequence[Turn]) -> Line:
        """The line of a round, written down unless it stands."""
        leader = self.prefix.leader.scope if self.prefix.leader and round else None
        known = self.store.line(task.id, set, round)
        absent = sum(not turn.answered for turn in turns)
        said = digest([turn.text for turn in turns])
        if known and (known.said, known.absent) == (said, absent) and _is_judged(task, known):
            return known
        rewards = await asyncio.gather(*(self._reward(task, set, turn) for turn in turns))
        agents = tuple(turn.member for turn in turns)
        line = Line(task.id, set, round, agents, tuple(rewards), absent, leader, said)
        if line != known:
            self.store.add(line)
        return line

    async def _reward(self, task: Task, set: int, turn: Turn) -> float | None:
        if not turn.answered:
            return None
        if task.judge is None:
            return (await self.pool.judge(task, turn.text, "free")).reward
        team, scopes = self.team(task, set), scopes_of(task, self.prefix.scopes(task.id, set))
        asker = f"{self.prefix.episode(task.id, set)}|judge"
        calls = Live(team.engines, self.journal, scopes, episode=asker, kept=self.kept, ask_again=True)
        return (await heard(task, turn.text, "free", team.members, calls)).reward

    def _count(self, lines: Sequence[Line]) -> None:
        self.done += 1
        self.absent += sum(line.absent for line in lines)
        self.answers += sum(len(line.agents) - line.absent for line in lines)

    def _tell(self) -> None:
        self.told("collect", self.done, {"of": self.of, "answers": self.answers, "absent": self.absent})

    def _check(self, of: int) -> None:
        if self.lost > self.outages * of:
            raise TooManyOutages(
                f"collect: {self.lost} of {self.done} sets cannot be used ({self.why}). Mend the cause and collect "
                "again: what was answered is in the journal"
            )


def _is_judged(task: Task, line: Line) -> bool:
    """Whether nothing more can be told of a line: where a member judges, an outage may have left verdicts open."""
    return task.judge is None or line.rewards.count(None) == line.absent


def rounds_of(episode: Episode) -> dict[int, list[Turn]]:
    """The agents' turns, by how many decisions of the trainee they depend on."""
    rounds: dict[int, list[Turn]] = {}
    for placed in episode.turns:
        if placed.turn.member != episode.trainee:
            rounds.setdefault(placed.depth, []).append(placed.turn)
    return rounds


async def _unjudged(task: Task, answer: str, form: str) -> Verdict:
    """There is no team's answer yet."""
    return Verdict(None)
