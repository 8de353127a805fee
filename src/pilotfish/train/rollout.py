"""Rollouts: from row ids to rows that can be trained on, by playing forked episodes.

A row is one of G samples of one decision of the trainee in one episode of one task; its id is (task, stored set,
decision, topology). The G rows of a group have the same prompt and share every call that does not depend on that
decision; with `credit: episode` they share what does not depend on the first one. TRL is not known here: `train.grpo`
hands these rows to it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pilotfish.engine.base import Completion, Engine, Wrapped
from pilotfish.episode import Episode, Horizon, Journal, Judge, Scopes, Team, check_group, episode_id, play
from pilotfish.evaluate.arms import Said, titles, trainee_of
from pilotfish.task import Task
from pilotfish.topology import Topology
from pilotfish.train.credit import branches, lost_branch, salts_of, worth
from pilotfish.train.decisions import on_branches
from pilotfish.train.profile import TrainConfig
from pilotfish.train.row import Row, RowId

COLLECTED_AFTER = 100_000
"""New objects after which the garbage collector looks at them while rows are played."""


class TooManyOutages(Exception):
    """More of a step's rows than allowed have no verdict; what was played is in the journal."""


@dataclass(frozen=True, slots=True)
class _Fork:
    """How a row's episode is played."""

    id: RowId
    team: Team
    scopes: Scopes
    salts: Mapping[int, str]
    ask_again: bool
    episodes: dict[str, asyncio.Task[Episode]] = field(default_factory=dict)
    """Of the step, by id: one that several decisions are trained in is played and judged once."""


class _Heard(Wrapped):
    """An engine that lets know when it is first asked."""

    def __init__(self, engine: Engine, asked: asyncio.Event) -> None:
        super().__init__(engine)
        self.asked = asked

    async def around(self, ask: Callable[[], Awaitable[Completion]]) -> Completion:
        self.asked.set()
        return await ask()


class Rollout:
    """Plays the rows of a step.

    Args:
        topology: who asks whom.
        team: members as they are sampled in training, and their engines; one is the trainee, in process.
        tasks: by id.
        journal: the run's record.
        judge: gives verdicts.
        config: group size, credit, reward.
        mix: further topologies; `RowId.topology` counts through all.
        alone: a topology without the trainee, played once a task: what the team is compared with while it learns.
        seed: the run's seed.
        kept: answers at temperature 0 that outlive the run.
        place: begins the scopes of the calls; tells the stages of a run apart.
        shaped: the scope of the answers that an earlier leader has shaped, where decisions are trained on these.
    """

    def __init__(
        self,
        topology: Topology,
        team: Team,
        tasks: Mapping[str, Task],
        journal: Journal,
        judge: Judge,
        config: TrainConfig,
        *,
        mix: Sequence[Topology] = (),
        alone: Topology | None = None,
        seed: int = 0,
        kept: Journal | None = None,
        place: str = "",
        shaped: str | None = None,
    ) -> None:
        self.topologies = (topology, *mix)
        self.mixed = tuple(map(titles(topology, mix), self.topologies)) if mix else ()
        """What each topology of a mix is called; empty where there is one."""
        self.team = team
        self.tasks = tasks
        self.journal = journal
        self.judge = judge
        self.config = config
        self.alone = alone
        self.seed = seed
        self.kept = kept
        self.place = place
        self.shaped = shaped
        self._began = time.time()

    async def step(self, ids: Sequence[str], step: int) -> list[Row]:
        """Play the rows of a step.

        Args:
            ids: a row id for each row, the rows of a group one behind the other.
            step: number of the step, from 0; calls at temperature above 0 are shared within it only.

        Raises:
            TooManyOutages: the share of rows without a verdict is above `config.outages`.
            ReplayMismatch: the topology asked the rows of a group for the decision in different words.
        """
        rows = await self._played(ids, step, slice(None), self.team)
        self.check(rows, step)
        return rows

    async def compared(
        self, ids: Sequence[str], step: int, part: slice = slice(None), share: slice = slice(None)
    ) -> tuple[list[Row], dict[str, float | None]]:
        """Play rows of a step, and beside them the rows' tasks without the trainee.

        The latter begins once the trainee is asked: where members share a device it has the first turn, and these calls
        find places in the batches that the rows' own calls make.

        Args:
            ids: see `step`.
            step: number of the step, from 0.
            part: which of the groups are played, where other processes play the others.
            share: which of the tasks are played without the trainee.

        Returns:
            The rows, not checked yet (`check`), and what `without_trainee` gives.

        Raises:
            ReplayMismatch: see `step`.
        """
        trainee, asked = trainee_of(self.team), asyncio.Event()
        heard = {**self.team.engines, trainee: _Heard(self.team.engines[trainee], asked)}
        rows = asyncio.create_task(self._played(ids, step, part, replace(self.team, engines=heard)))
        rows.add_done_callback(lambda _: asked.set())

        async def without() -> dict[str, float | None]:
            await asked.wait()
            return await self.without_trainee([RowId.parse(id).task for id in ids], share)

        alone = asyncio.create_task(without())
        try:
            return await rows, await alone
        finally:
            rows.cancel()
            alone.cancel()
            await asyncio.gather(rows, alone, return_exceptions=True)

    async def _played(self, ids: Sequence[str], step: int, part: slice, team: Team) -> list[Row]:
        groups = [RowId.parse(ids[start]) for start in range(0, len(ids), self.config.group_size)]
        with _seldom_collected():
            rows = await self._rows(groups, step, part, team)
            if self._too_many(rows) and self._failed_before(rows):
                rows = await self._rows(groups, step, part, team, ask_again=True)
        return rows

    def check(self, rows: Sequence[Row], step: int) -> None:
        """Make sure that enough of a step's rows can be learned from.

        Raises:
            TooManyOutages: see `step`.
        """
        if self._too_many(rows):
            lost = [row for row in rows if row.lost]
            raise TooManyOutages(
                f"step {step + 1}: {len(lost)} of {len(rows)} rows have no verdict ({_why(lost)}); nothing was trained "
                "on them. Mend the cause and resume: what was answered is in the journal"
            )

    def _too_many(self, rows: Sequence[Row]) -> bool:
        return sum(row.lost for row in rows) > self.config.outages * len(rows)

    def _failed_before(self, rows: Sequence[Row]) -> bool:
        """Whether calls of these rows failed in an earlier run: what stopped it may have been mended since.

        Failures of a step that went on all the same stand, so that a resumed run learns from the same rows.
        """
        turns = (turn for row in rows for episode in row.played for turn in episode.asked)
        return any(turn.outcome == "failed" and turn.started < self._began for turn in turns)

    async def _rows(
        self, groups: Sequence[RowId], step: int, part: slice, team: Team, *, ask_again: bool = False
    ) -> list[Row]:
        together: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        for id in groups:
            together[id.stand].append(id.decision)
        episodes: dict[str, asyncio.Task[Episode]] = {}
        played = (
            self._group(_Fork(id, team, self._scopes(id, step), {}, ask_again, episodes), together[id.stand])
            for id in groups[part]
        )
        return [row for group in await asyncio.gather(*played) for row in group]

    def _scopes(self, id: RowId, step: int) -> Scopes:
        """Whatever topologies of a mix ask in equal words, each has answers of its own: they may meet in a step or
        not."""
        name = f"{self.place}train/{step}/{id.task}/{id.set}"
        scopes = Scopes(f"{name}#{id.topology}" if id.topology else name, seed=self.seed)
        if self.config.prefix == "fresh":
            return scopes
        shaped = f"{self.shaped}/{id.task}/{id.set}" if self.config.prefix == "shaped" else None
        return replace(scopes, stored=f"stored/{id.task}/{id.set}", shaped=shaped, before=id.decision)

    async def _group(self, fork: _Fork, decisions: Sequence[int]) -> list[Row]:
        """The rows of a group; `decisions` are all that the step trains in its episodes."""
        id, place = fork.id, f"{self.seed}/{fork.scopes.group}"
        goes_on = self.config.prefix != "shaped" and self.config.credit == "decision"
        earlier = [depth for depth in decisions if depth < id.decision] if goes_on else []
        drawn = {depth: branches(self.config, depth, place) for depth in earlier}
        while True:
            prefix = {depth: rows[0] for depth, rows in drawn.items()}
            made = await self._forked(fork, prefix)
            lost = lost_branch(made[0].episodes[0], prefix)
            if lost is None or len(drawn[lost]) == 1:
                break
            del drawn[lost][0]
        check_group([row.episodes[0] for row in made], 0 if self.config.credit == "episode" else id.decision)
        return made

    async def _forked(self, fork: _Fork, prefix: Mapping[int, int]) -> list[Row]:
        rows = range(self.config.group_size)
        salts = [salts_of(self.config, fork.id.decision, row, prefix) for row in rows]
        return list(await asyncio.gather(*(self._row(replace(fork, salts=salt)) for salt in salts)))

    async def _row(self, fork: _Fork) -> Row:
        continuations = ["" if answer == 0 else f"answer {answer}" for answer in range(self.config.answers)]
        playing = [self._play(fork, fork.team, fork.salts, then) for then in continuations]
        row = self._made(fork.id, tuple(await asyncio.gather(*playing)))
        # The rows of a group share what stands before the first decision: compared with it, all would lose the same.
        if not self.config.reward.counterfactual or not fork.id.decision or row.reward is None:
            return row
        silent = await self._silent(fork) if row.trained else row.episodes[0]
        without = silent.verdict.reward
        reward = None if without is None else row.reward - self.config.reward.counterfactual * without
        return replace(row, reward=reward, silent=silent)

    async def _silent(self, fork: _Fork) -> Episode:
        """A row's episode with the trainee silent from the decision on; what stands before it is in the record."""
        trainee = trainee_of(fork.team)
        said = Said("", fork.team.engines[trainee].version)
        team = replace(fork.team, engines={**fork.team.engines, trainee: said})
        return await self._play(fork, team, {**fork.salts, fork.id.decision: f"silent {fork.id.decision}"})

    def _play(self, fork: _Fork, team: Team, salts: Mapping[int, str], then: str = "") -> asyncio.Task[Episode]:
        topology = self._topology(fork.id)
        name = episode_id(topology, fork.scopes, salts, then=then)
        if name not in fork.episodes:
            fork.episodes[name] = asyncio.create_task(self._anew(fork, topology, team, salts, then))
        return fork.episodes[name]

    async def _anew(self, fork: _Fork, topology: Topology, team: Team, salts: Mapping[int, str], then: str) -> Episode:
        return await play(
            self.tasks[fork.id.task],
            topology,
            team,
            self.journal,
            fork.scopes,
            judge=self.judge,
            salts=salts,
            then=then,
            kept=self.kept,
            ask_again=fork.ask_again,
            until=Horizon(fork.id.decision) if self.config.horizon == "decision" else None,
        )

    def _topology(self, id: RowId) -> Topology:
        topology = self.topologies[id.topology]
        return topology.reaching(id.decision) if self.config.horizon == "decision" else topology

    def _made(self, id: RowId, episodes: tuple[Episode, ...]) -> Row:
        decided = episodes[0].decisions(id.decision)
        if len(decided) > 1:
            trainee = decided[0].turn.member
            why = on_branches(self.topologies[id.topology], trainee, id.decision, len(decided))
            raise ValueError(f"task {id.task}: {why}")
        done, form = decided[0].turn.completion if decided else None, self.topologies[id.topology].form
        whole = self.config.credit == "episode"
        if done is None:  # a whole episode stands in its group's mean, also where it ended before this decision
            reward = self._worth(id, episodes, _words(episodes[0])) if whole else None
            return Row(id, [0], [0], [0.0], reward, trained=False, form=form, episodes=episodes)
        if done.prompt_ids is None or done.completion_ids is None or done.logprobs is None:
            raise ValueError(f"{decided[0].turn.member}: its engine reports no token ids, so it cannot be trained")
        return Row(
            id,
            list(done.prompt_ids),
            list(done.completion_ids),
            list(done.logprobs),
            self._worth(id, episodes, _words(episodes[0]) if whole else [done]),
            text=done.text,
            form=form,
            episodes=episodes,
        )

    def _worth(self, id: RowId, episodes: tuple[Episode, ...], said: Sequence[Completion]) -> float | None:
        verdicts = [episode.verdict.reward for episode in episodes if episode.verdict.reward is not None]
        limit = self.team.members[episodes[0].trainee or ""].sampling.max_tokens
        form = self.topologies[id.topology].form
        return worth(self.config.reward, verdicts, said, task=self.tasks[id.task], form=form, limit=limit)

    async def without_trainee(self, tasks: Sequence[str], part: slice = slice(None)) -> dict[str, float | None]:
        """Rewards of `alone` for tasks, or a part of these, by their ids; empty when there is no such topology."""
        if self.alone is None:
            return {}
        ids = list(dict.fromkeys(tasks))[part]
        played = await asyncio.gather(*(self._alone(id, self.alone) for id in ids))
        return {id: episode.verdict.reward for id, episode in zip(ids, played, strict=True)}

    async def _alone(self, task: str, topology: Topology) -> Episode:
        scopes = Scopes(f"alone/{task}", seed=self.seed)
        return await play(self.tasks[task], topology, self.team, self.journal, scopes, judge=self.judge, kept=self.kept)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Have the garbage collector look less often.

    A rollout makes many objects that live until its end. By its usual count the collector then walks the whole heap,
    half a million objects with torch in it: some tenths of a second, in which no thread runs and no engine goes on.
    """
    usual = gc.get_threshold()
    gc.set_threshold(max(usual[0], COLLECTED_AFTER) if usual[0] else 0, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _words(episode: Episode) -> list[Completion]:
    """What the trainee said in an episode."""
    return [placed.turn.completion for placed in episode.decisions() if placed.turn.completion]


def _why(rows: Sequence[Row]) -> str:
    return next((episode.verdict.why for row in rows for episode in row.played if episode.verdict.why), "no reason")
