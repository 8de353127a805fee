"""Play a topology on a task, resume it, replay it, or fork it at a decision of the trainee.

episode = await play(task, hint, team, journal, scopes, judge=pool.judge)      # asks what is not recorded
again = await replay(episode.id, task, hint, team.members, journal, scopes)    # strict: asks nothing
rows = [await play(..., salts=fork(decision=0, row=i)) for i in range(8)]      # a GRPO group
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pilotfish.engine.base import Engine
from pilotfish.episode.audience import Audience
from pilotfish.episode.calls import Live, ReplayMismatch, Scopes, Strict
from pilotfish.episode.hearing import Judge, heard, scopes_of
from pilotfish.episode.journal import Journal
from pilotfish.episode.room import EpisodeOver, Horizon, Room, TopologyError, enter, placed
from pilotfish.episode.turn import Episode, Turn
from pilotfish.task import Task
from pilotfish.team import Member
from pilotfish.topology.base import Topology
from pilotfish.verify.verdict import Verdict


@dataclass(frozen=True)
class Team:
    """Members and the engines behind them, by name."""

    members: Mapping[str, Member]
    engines: Mapping[str, Engine]
    earlier: Engine | None = None
    """Who speaks in the trainee's seat before the trained decision, where that is an earlier leader (see `Scopes`)."""
    instead: Mapping[int, Engine] | None = None
    """Who speaks in the trainee's seat at some of its decisions, by depth: words that a reader has edited."""

    def __post_init__(self) -> None:
        trainees = [name for name, member in self.members.items() if member.trainee]
        if len(trainees) > 1:
            raise ValueError(f"a team has one trainee at most; this one has {', '.join(trainees)}")
        silent = [name for name in self.members if name not in self.engines]
        if silent:
            raise ValueError(f"no engine for {', '.join(silent)}; there are engines for: {', '.join(self.engines)}")


async def play(
    task: Task,
    topology: Topology,
    team: Team,
    journal: Journal,
    scopes: Scopes,
    *,
    judge: Judge,
    salts: Mapping[int, str] | None = None,
    arm: str = "",
    then: str = "",
    kept: Journal | None = None,
    ask_again: bool = False,
    until: Horizon | None = None,
    audience: Audience | None = None,
) -> Episode:
    """Run a topology on a task; calls that are recorded are answered from the record, the rest is asked.

    Args:
        task: what is asked of the team.
        topology: who asks whom.
        team: members and engines.
        journal: the run's record.
        scopes: who may share this episode's answers.
        judge: gives the verdict on the team's answer, unless a member of the team judges the task.
        salts: for each depth of the trainee's decisions at which this episode leaves its group, the row's name.
        arm: tells episodes apart that differ in their team only (trained, untrained, …).
        then: names one of several continuations of the same fork: calls that depend on its last decision are apart.
        kept: answers at temperature 0 that outlive the run.
        ask_again: ask once more what the record says has failed.
        until: end at this decision of the trainee, whose words are then the answer, or just before it.
        audience: who watches.

    Returns:
        The episode, recorded. If a required call failed, or the turn that was to be the answer is absent, its answer
        and reward are None.

    Raises:
        Refused: an engine will never answer such a call.
        TopologyError: see `episode.room`.
    """
    id = episode_id(topology, scopes, salts, arm=arm, then=then)
    earlier = set(journal.asked_by(id))
    live = partial(Live, team.engines, journal, episode=id, kept=kept, ask_again=ask_again)
    calls = live(scopes, earlier=team.earlier, instead=team.instead)
    room = Room(team.members, calls, salts or {}, then, until, task.context, audience)
    started = time.monotonic()
    answer, why = await _run(task, topology, room)
    if calls.stopped:
        raise calls.stopped
    if answer is None:
        verdict = Verdict(None, None, why)
    elif answer and task.judge:  # an episode that ends before a decision has no answer to judge
        verdict = await heard(task, answer, topology.form, team.members, live(scopes_of(task, scopes)))
    else:
        verdict = await judge(task, answer, topology.form)
    turns = placed(room)
    unused = earlier - {place.turn.key for place in turns} - {turn.key for turn in verdict.turns}
    trainee = next((name for name, member in team.members.items() if member.trainee), None)
    seconds = time.monotonic() - started
    episode = Episode(
        id, task.id, topology.name, scopes.group, turns, answer, verdict, trainee, seconds, tuple(sorted(unused))
    )
    await journal.finish(episode)
    return episode


async def replay(
    id: str,
    task: Task,
    topology: Topology,
    members: Mapping[str, Member],
    journal: Journal,
    scopes: Scopes,
    *,
    salts: Mapping[int, str] | None = None,
    then: str = "",
    until: Horizon | None = None,
) -> Episode:
    """Play a finished episode again from its record, strictly: nothing is asked, no engine is needed.

    Raises:
        LookupError: no finished episode of that id.
        ReplayMismatch: the topology makes a call that differs from the record, does not make one that is there, or
            takes another answer from the same calls.
    """
    record = journal.episode(id)
    if record is None:
        raise LookupError(f"no finished episode {id!r} in {journal.folder}")
    calls = Strict(record, scopes)
    room = Room(members, calls, salts or {}, then, until, task.context)
    try:
        answer, _ = await _run(task, topology, room)
    except ReplayMismatch:
        answer = None
    differing = [*calls.mismatches, *calls.missing()]
    if differing:
        raise min(differing, key=lambda mismatch: mismatch.position)
    if answer != record.answer:
        raise ReplayMismatch((), f"equal calls, another answer: recorded {record.answer!r}, replayed {answer!r}")
    return replace(record, turns=placed(room))


def episode_id(
    topology: Topology, scopes: Scopes, salts: Mapping[int, str] | None = None, *, arm: str = "", then: str = ""
) -> str:
    """An episode's name: scope, topology, arm, and the salts of its fork."""
    fork = ",".join(salts[depth] for depth in sorted(salts)) if salts else ""
    parts = [scopes.group, topology.label, arm, fork, then]
    return "|".join(parts).rstrip("|")


async def _run(task: Task, topology: Topology, room: Room) -> tuple[str | None, str]:
    """The team's answer, or None and why there is none."""
    result: Turn | str = ""
    with suppress(EpisodeOver):
        result = await _uncancelled(enter(topology(task, room)))
    result = result if room.reached is None else room.reached
    # A topology may have caught the failure and gone on: the episode has failed all the same.
    lost = [place.turn for place in placed(room) if place.turn.outcome == "failed"]
    if isinstance(result, Turn) and not result.answered:
        lost.append(result)
    if lost:
        return None, f"{lost[0].member}: {lost[0].error}"
    if not isinstance(result, Turn | str):
        raise TopologyError(f"topology {topology.name} returned {result!r}; return a turn or a string")
    return (result if isinstance(result, str) else result.text), ""


async def _uncancelled(topology: asyncio.Task[Turn | str]) -> Turn | str:
    """The topology's result; a cancellation stands, also where the topology caught it and made up an answer."""
    here = asyncio.current_task()
    before = here.cancelling() if here else 0
    result = await topology
    if here and here.cancelling() > before:
        raise asyncio.CancelledError
    return result
