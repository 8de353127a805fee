"""Rollouts: from row ids to rows that can be trained on, by playing forked episodes.

A row is one of G samples of one decision of the trainee in one episode of one task; its id is (task, stored set,
decision). The G rows of a group have the same prompt and share every call that does not depend on that decision.
TRL is not known here: `train.grpo` hands these rows to it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pilotfish.episode import Episode, Horizon, Journal, Judge, Scopes, Team, check_group, fork, play
from pilotfish.task import Task
from pilotfish.team import Usage
from pilotfish.topology import Topology
from pilotfish.train.profile import TrainConfig
from pilotfish.verify import contains_answer
from pilotfish.verify.form import form_fault

RIGHT = 0.5
"""The reward from which an answer counts as right where right and wrong are counted: in the flips."""


class TooManyOutages(Exception):
    """More of a step's rows than allowed have no verdict; what was played is in the journal."""


@dataclass(frozen=True, slots=True)
class RowId:
    """What a group of rows trains: a decision of the trainee on a task, over one stored set of answers."""

    task: str
    set: int = 0
    decision: int = 0

    def __str__(self) -> str:
        return f"{self.task}|{self.set}|{self.decision}"

    @classmethod
    def parse(cls, text: str) -> RowId:
        task, set, decision = text.rsplit("|", 2)
        return cls(task, int(set), int(decision))


@dataclass(frozen=True, slots=True)
class Row:
    """One sample of a decision: what the engine saw and said, and what it was worth."""

    id: RowId
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    reward: float | None
    trained: bool = True
    """False for a row whose decision was never reached: nobody said anything."""
    text: str = ""
    episodes: tuple[Episode, ...] = field(default=())

    @property
    def learnable(self) -> bool:
        """Whether anything can be learned from it: it was said, and it was judged."""
        return self.trained and self.reward is not None


class Rollout:
    """Plays the rows of a step.

    Args:
        topology: who asks whom.
        team: members as they are sampled in training, and their engines; one is the trainee, in process.
        tasks: by id.
        journal: the run's record.
        judge: gives verdicts.
        config: group size, decision, reward.
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
        alone: Topology | None = None,
        seed: int = 0,
        kept: Journal | None = None,
        place: str = "",
        shaped: str | None = None,
    ) -> None:
        self.topology = topology.reaching(max(config.decisions)) if config.horizon == "decision" else topology
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
            step: number of the step; calls at temperature above 0 are shared within it only.

        Raises:
            TooManyOutages: the share of rows without a verdict is above `config.outages`.
            ReplayMismatch: the topology asked the rows of a group for the decision in different words.
        """
        groups = [RowId.parse(ids[start]) for start in range(0, len(ids), self.config.group_size)]
        rows = await self._rows(groups, step)
        if self._too_many(rows) and self._failed_before(rows):
            rows = await self._rows(groups, step, ask_again=True)
        if self._too_many(rows):
            lost = [row for row in rows if row.reward is None]
            raise TooManyOutages(
                f"step {step}: {len(lost)} of {len(rows)} rows have no verdict ({_why(lost)}); nothing was trained on "
                "them. Mend the cause and resume: what was answered is in the journal"
            )
        return rows

    def _too_many(self, rows: Sequence[Row]) -> bool:
        asked = [row for row in rows if not _ended_before(row)]
        if not asked:
            raise ValueError(
                f"{self.topology.name} does not come to decision {rows[0].id.decision} of "
                f"{rows[0].episodes[0].trainee}; correct train.decision (they count from 0) or the topology"
            )
        return sum(row.reward is None for row in asked) > self.config.outages * len(rows)

    def _failed_before(self, rows: Sequence[Row]) -> bool:
        """Whether calls of these rows failed in an earlier run: what stopped it may have been mended since.

        Failures of a step that went on all the same stand, so that a resumed run learns from the same rows.
        """
        turns = (placed.turn for row in rows for episode in row.episodes for placed in episode.turns)
        return any(turn.outcome == "failed" and turn.started < self._began for turn in turns)

    async def _rows(self, groups: Sequence[RowId], step: int, *, ask_again: bool = False) -> list[Row]:
        numbers = [groups[:at].count(group) for at, group in enumerate(groups)]
        names = [f"{self.place}train/{step}/{group.task}/{group.set}" for group in groups]
        scopes = [f"{name}#{number}" if number else name for name, number in zip(names, numbers, strict=True)]
        played = (self._group(*pair, ask_again) for pair in zip(groups, scopes, strict=True))
        return [row for group in await asyncio.gather(*played) for row in group]

    async def _group(self, id: RowId, scope: str, ask_again: bool) -> list[Row]:
        scopes = Scopes(scope, seed=self.seed)
        if self.config.prefix != "fresh":
            shaped = f"{self.shaped}/{id.task}/{id.set}" if self.config.prefix == "shaped" else None
            scopes = replace(scopes, stored=f"stored/{id.task}/{id.set}", shaped=shaped, before=id.decision)
        rows = (self._row(id, number, scopes, ask_again) for number in range(self.config.group_size))
        made = list(await asyncio.gather(*rows))
        check_group([row.episodes[0] for row in made], id.decision)
        return made

    async def _row(self, id: RowId, number: int, scopes: Scopes, ask_again: bool) -> Row:
        continuations = ["" if answer == 0 else f"answer {answer}" for answer in range(self.config.answers)]
        played = (
            play(
                self.tasks[id.task],
                self.topology,
                self.team,
                self.journal,
                scopes,
                judge=self.judge,
                salts=fork(id.decision, number),
                then=then,
                kept=self.kept,
                ask_again=ask_again,
                until=Horizon(id.decision) if self.config.horizon == "decision" else None,
            )
            for then in continuations
        )
        return self._made(id, tuple(await asyncio.gather(*played)))

    def _made(self, id: RowId, episodes: tuple[Episode, ...]) -> Row:
        decided = episodes[0].decisions(id.decision)
        if len(decided) > 1:
            raise ValueError(
                f"{id.task}: decision {id.decision} is asked on {len(decided)} concurrent branches; a group needs one"
            )
        done = decided[0].turn.completion if decided else None
        if done is None:
            return Row(id, [0], [0], [0.0], None, trained=False, episodes=episodes)
        if done.prompt_ids is None or done.completion_ids is None or done.logprobs is None:
            raise ValueError(f"{decided[0].turn.member}: its engine reports no token ids, so it cannot be trained")
        return Row(
            id,
            list(done.prompt_ids),
            list(done.completion_ids),
            list(done.logprobs),
            self._reward(episodes, done.text, done.finish_reason, len(done.completion_ids)),
            text=done.text,
            episodes=episodes,
        )

    def _reward(self, episodes: tuple[Episode, ...], text: str, finish: str, tokens: int) -> float | None:
        verdicts = [episode.verdict.reward for episode in episodes if episode.verdict.reward is not None]
        if not verdicts:
            return None
        terms = self.config.reward
        whole = bool(text.strip()) and finish == "stop" and form_fault(text, self.topology.form) is None
        limit = self.team.members[episodes[0].trainee or ""].sampling.max_tokens
        return sum(verdicts) / len(verdicts) + terms.format * whole - terms.length * tokens / limit

    async def without_trainee(self, rows: Sequence[Row]) -> dict[str, float | None]:
        """Rewards of `alone` for the rows' tasks, by task; empty when there is no such topology."""
        if self.alone is None:
            return {}
        ids = list(dict.fromkeys(row.id.task for row in rows))
        played = await asyncio.gather(*(self._alone(id, self.alone) for id in ids))
        return {id: episode.verdict.reward for id, episode in zip(ids, played, strict=True)}

    async def _alone(self, task: str, topology: Topology) -> Episode:
        scopes = Scopes(f"alone/{task}", seed=self.seed)
        return await play(self.tasks[task], topology, self.team, self.journal, scopes, judge=self.judge, kept=self.kept)


def diagnose(
    rows: Sequence[Row],
    alone: Mapping[str, float | None],
    tasks: Mapping[str, Task],
    size: int,
    form: str = "free",
) -> dict[str, float]:
    """What is logged of a step's rows; docs/metrics.md explains each name.

    Args:
        rows: groups of `size`, one behind the other.
        alone: reward of the answering member alone, by task.
        tasks: by id.
        size: rows in a group.
        form: in which the trainee is to answer; where it is `answer_tag`, faults of form are counted.
    """
    groups = [rows[start : start + size] for start in range(0, len(rows), size)]
    judged = [(row.id.task, reward) for row in rows for reward in _verdicts(row)]
    pairs = [(before, after) for task, after in judged if (before := alone.get(task)) is not None]
    said = [row for row in rows if row.trained]
    metrics = {
        "team/no_verdict": _mean([row.reward is None for row in rows]),
        "group/no_spread": _mean([len({row.reward for row in group} - {None}) <= 1 for group in groups]),
    }
    if judged:
        metrics["team/accuracy"] = _mean([reward for _, reward in judged])
    if said:
        metrics["trainee/tokens"] = _mean([len(row.completion_ids) for row in said])
        metrics["trainee/leak_rate"] = _mean([leaks(tasks[row.id.task], row.text) for row in said])
        metrics |= _form_faults([row.text for row in said], form)
    if pairs:
        metrics["flips/wrong_to_right"] = _mean([before < RIGHT <= after for before, after in pairs])
        metrics["flips/right_to_wrong"] = _mean([after < RIGHT <= before for before, after in pairs])
    for member, usage in _usage(rows).items():
        metrics[f"tokens/{member}"] = usage.total / len(rows)
    return metrics


def _form_faults(texts: Sequence[str], form: str) -> dict[str, float]:
    """The share of words that break their form, in all and by fault."""
    if form == "free":
        return {}
    faults = [form_fault(text, form) for text in texts]
    kinds = sorted({fault for fault in faults if fault})
    named = {f"form/{re.sub('[^a-z]+', '_', kind).strip('_')}": _mean([f == kind for f in faults]) for kind in kinds}
    return {"form/broken": _mean([fault is not None for fault in faults]), **named}


def _verdicts(row: Row) -> list[float]:
    """The team's rewards on a row, without the terms: one for each of its judged answers."""
    return [episode.verdict.reward for episode in row.episodes if episode.verdict.reward is not None]


def leaks(task: Task, text: str) -> bool:
    """Whether the trainee's words already contain a gold answer."""
    golds = [task.answer, *task.meta.get("alt_answers", ())]
    return any(contains_answer(str(gold), text, task.verifier) for gold in golds)


def _usage(rows: Sequence[Row]) -> dict[str, Usage]:
    """Tokens that the step cost: a call that rows share counts once."""
    seen: dict[str, tuple[str, Usage]] = {}
    for row in rows:
        for episode in row.episodes:
            seen.update({place.turn.key: (place.turn.member, place.turn.usage) for place in episode.turns})
    total: dict[str, Usage] = {}
    for member, usage in seen.values():
        total[member] = total.get(member, Usage()) + usage
    return total


def _ended_before(row: Row) -> bool:
    """Whether the topology came to its end without this decision; no outage."""
    return not row.trained and row.episodes[0].answer is not None


def _why(rows: Sequence[Row]) -> str:
    return next((episode.verdict.why for row in rows for episode in row.episodes if episode.verdict.why), "no reason")


def _mean(values: Sequence[float | bool]) -> float:
    return sum(values) / len(values)
