"""Accuracy over budget: what a method is worth for so many calls and tokens, so that methods meet at equal cost.

points = await curve(played, field, at_ks(played, tasks))

A method that is played for `rounds`, `samples`, `iterations` or `layers` is played again for fewer of them, from the
record of its own episodes: nobody is asked, and what the shorter method would have to ask is left out (a judge who
chooses among four answers has not chosen among two). With several samples a task, majority@k stands at k times the
calls. Source of the idea: MLPO, section "test-time scaling", which compares at 40 generations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean

from pilotfish.episode import Episode, Judge, Scopes, Turn
from pilotfish.episode.calls import Call, deterministic, identity_in, name
from pilotfish.episode.room import EpisodeOver, Room, enter, placed
from pilotfish.evaluate.accounts import calls, charged
from pilotfish.evaluate.arms import Field, Played, reward_of
from pilotfish.evaluate.samples import AtK, steps_to
from pilotfish.evaluate.stats import Interval, mean_interval
from pilotfish.task import Task
from pilotfish.team import Member
from pilotfish.topology import Topology

LENGTHS = ("samples", "rounds", "iterations", "layers")
"""Options that say for how long a method is played; of several, the first."""
WHOLE, MAJORITY = "whole", "majority"


@dataclass(frozen=True, slots=True)
class Point:
    """A method at one budget. Shares are in [0, 1]; nan where no task was judged."""

    by: str
    """What the budget buys: one of `LENGTHS`, `majority` of whole episodes, or `whole` for a method of one length."""
    length: int
    """How many of them."""
    accuracy: float
    low: float
    high: float
    n: int
    """Tasks with a verdict."""
    calls: float
    """Mean calls a task, those that were answered from the record included; of episodes with a verdict."""
    tokens: float
    """Mean prompt and completion tokens a task, of the same episodes."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A shorter play of one episode."""

    reward: float
    calls: int
    tokens: int


async def curve(played: Played, on: Field, sampled: Sequence[AtK] = ()) -> list[Point]:
    """A method's points, the cheapest first.

    Args:
        played: the method's episodes.
        on: the tasks they were played on.
        sampled: its figures by k, where there are several samples a task.
    """
    option, length = length_of(played.arm.topology) or (WHOLE, 1)
    whole = [[_whole(episode) for episode in episodes] for episodes in played.by_task]
    points = [_point(option, length, whole)]
    for shorter in (number for number in steps_to(length) if number < length):
        ended = await _shortened(played, on, {option: shorter})
        points += [_point(option, shorter, ended)] if ended else []
    points += [_majority(found.k, found.majority, points[0]) for found in sampled if found.k > 1]
    return sorted(points, key=lambda point: point.calls)


def length_of(topology: Topology) -> tuple[str, int] | None:
    """The option that says for how long a topology is played, and its value."""
    options = {**topology.defaults(), **topology.options}
    return next(((option, options[option]) for option in LENGTHS if isinstance(options.get(option), int)), None)


class _Unasked(Exception):
    """A call that the episode did not make."""


class _Known:
    """Answers from the turns of one episode, by key."""

    def __init__(self, episode: Episode, scopes: Scopes) -> None:
        self.scopes = scopes
        self.said, self.verdict = episode.answer, episode.verdict
        turns = [one.turn for one in episode.turns]
        self._turns = {turn.key: turn for turn in turns}
        self._versions = {turn.member: turn.version for turn in turns}
        self._identities = {turn.member: identity_in(turn.scope) for turn in turns if deterministic(turn.scope)}

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        member = call.member.name
        key, _ = name(call, self.scopes, self._versions.get(member, 0), self._identities.get(member), counts)
        if key not in self._turns:
            raise _Unasked
        return self._turns[key]


async def _shortened(played: Played, on: Field, length: Mapping[str, int]) -> list[list[_Ended]] | None:
    """The samples of each task, played for less; None where that cannot be told."""
    topology = played.arm.topology.bind(**length)

    async def short(task: Task, episodes: Sequence[Episode]) -> list[_Ended]:
        scopes = (on.scopes(played.arm, task, sample) for sample in range(len(episodes)))
        known = [_Known(episode, scope) for episode, scope in zip(episodes, scopes, strict=True)]
        return [await _short(task, topology, played.arm.team.members, one, on.judge) for one in known]

    pairs = list(zip(on.tasks, played.by_task, strict=True))
    try:
        return [await short(*pairs[0]), *await asyncio.gather(*(short(*pair) for pair in pairs[1:]))]
    except (_Unasked, ValueError):
        return None


async def _short(task: Task, topology: Topology, members: Mapping[str, Member], known: _Known, judge: Judge) -> _Ended:
    room = Room(members, known, {})
    result: Turn | str | None = None
    with suppress(EpisodeOver):
        result = await enter(topology(task, room))
    turns = [one.turn for one in placed(room)]
    tokens, made = sum(turn.usage.total for turn in charged(turns)), calls(turns)
    lost = any(turn.outcome == "failed" for turn in turns) or (isinstance(result, Turn) and not result.answered)
    if result is None or lost:
        return _Ended(nan, made, tokens)
    answer = result if isinstance(result, str) else result.text
    verdict = known.verdict if answer == known.said else await judge(task, answer, topology.form)
    return _Ended(nan if verdict.reward is None else verdict.reward, made, tokens)


def _whole(episode: Episode) -> _Ended:
    tokens = sum(usage.total for usage in episode.usage().values())
    return _Ended(reward_of(episode), calls(one.turn for one in episode.turns), tokens)


def _point(by: str, length: int, ended: Sequence[Sequence[_Ended]]) -> Point:
    found = mean_interval([[one.reward for one in samples] for samples in ended])
    every = [one for samples in ended for one in samples]
    flat = [one for one in every if not isnan(one.reward)] or every
    calls, tokens = (fmean(figures) for figures in ([one.calls for one in flat], [one.tokens for one in flat]))
    return Point(by, length, found.estimate, found.low, found.high, found.n, calls, tokens)


def _majority(k: int, found: Interval, whole: Point) -> Point:
    return Point(MAJORITY, k, found.estimate, found.low, found.high, found.n, k * whole.calls, k * whole.tokens)
