"""What a leader and its team were worth round by round, from the record of their episodes.

    cells = await by_round(topology, tasks, episodes, judge)

Accuracy of the leader, of each agent and of the agents' majority in each round; the leader's by how many agents were
right when it answered last; whose answer it gave; where it broke the form. Source: MLPO, figures "over rounds" and "by
correct agents"; error bars are two standard errors over tasks, as there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import isnan, nan

from pilotfish.episode import Episode, Judge, Turn
from pilotfish.evaluate.stats import two_se
from pilotfish.task import Task
from pilotfish.topology import Topology
from pilotfish.verify.form import form_fault
from pilotfish.verify.majority import agree, agreeing, read_vote
from pilotfish.verify.verdict import RIGHT

LEADER, MAJORITY, AGENTS = "leader", "majority of agents", "mean of agents"
MOST, FEWER, NOBODY, UNREAD = SIDES = ("the majority's", "a minority's", "no agent's", "not to be read")
IN_FORM = "none"

Played = tuple[list[Turn], Turn | None]
"""A round: the agents' turns, and the leader's turn on them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure. Shares are in [0, 1]; nan where there is nothing to measure."""

    table: str
    """`rounds`, `right`, `whose` or `form`."""
    line: str
    """Of `rounds`: who answered; of `right`: how many agents were right; of `whose`: one of `SIDES`; of `form`: the
    fault, or `none`."""
    column: str
    """Of `rounds`: the round's number, from 0; else whose accuracy it is, or `share` (of tasks; in `form` of a task's
    turns)."""
    mean: float
    low: float
    """Two standard errors over tasks below the mean; nan for fewer than two tasks."""
    high: float
    n: int
    """Tasks behind the line; turns in the table `form`."""
    absent: int = 0
    """Answers that never came: neither right nor wrong."""


@dataclass(frozen=True, slots=True)
class _Round:
    """One round of one task. A reward is nan where there is no answer or no verdict."""

    agents: Mapping[str, float]
    """Rewards by seat."""
    absent: frozenset[str]
    """Seats that did not answer."""
    majority: float
    leader: float
    side: str
    """Whose answer the leader gave, one of `SIDES`; empty where it did not speak."""
    fault: str
    """What was wrong with the form of its words, or `none`; empty where it did not speak."""


def leader_of(topology: Topology) -> str | None:
    """Who leads: the topology's option `leader`; None where it has none, and so no rounds to tell."""
    name = {**topology.defaults(), **topology.options}.get("leader")
    return name if isinstance(name, str) else None


async def by_round(topology: Topology, tasks: Sequence[Task], episodes: Sequence[Episode], judge: Judge) -> list[Cell]:
    """All figures of one team on one benchmark.

    Agents' words are read in the form `free`, the leader's in the topology's. Of answers that are given equally often,
    the first agent's is the majority's.

    Args:
        topology: `leader`, or another with an option of that name.
        tasks: one for each episode, in order.
        episodes: as they were played.
        judge: gives the verdict on each answer.

    Raises:
        ValueError: the topology has no leader.
    """
    leader = leader_of(topology)
    if leader is None:
        raise ValueError(f"topology {topology.name} has no option `leader`, so nobody's rounds can be told")
    told = await asyncio.gather(
        *(
            _told(task, split(episode, leader), topology.form, judge)
            for task, episode in zip(tasks, episodes, strict=True)
        )
    )
    last = [rounds[-1] for rounds in told if rounds and rounds[-1].side]
    return [*_rounds(told), *_right(last), *_whose(last), *_form(told)]


def split(episode: Episode, leader: str) -> list[Played]:
    """The rounds of an episode: what was said since the leader's turn before, and the leader's turn, which stands
    outside of any gather; None where it never came to that."""
    rounds: list[Played] = []
    agents: list[Turn] = []
    for placed in episode.turns:
        if placed.turn.member == leader and len(placed.position) == 1:
            rounds.append((agents, placed.turn))
            agents = []
        else:
            agents.append(placed.turn)
    return [*rounds, (agents, None)] if agents else rounds


async def _told(task: Task, rounds: Sequence[Played], form: str, judge: Judge) -> list[_Round]:
    return await asyncio.gather(*(_round(task, agents, view, form, judge) for agents, view in rounds))


async def _round(task: Task, agents: Sequence[Turn], view: Turn | None, form: str, judge: Judge) -> _Round:
    rewards = await asyncio.gather(*(_reward(task, turn, "free", judge) for turn in agents))
    votes = [read_vote(task, turn.text) for turn in agents]
    groups = agreeing(votes, task.verifier)
    seats = _seats(agents)
    absent = frozenset(seat for seat, turn in zip(seats, agents, strict=True) if not turn.answered)
    unread = nan if len(absent) == len(seats) else 0.0
    spoken = view.text if view is not None and view.answered else None
    return _Round(
        dict(zip(seats, rewards, strict=True)),
        absent,
        majority=rewards[groups[0][0]] if groups else unread,
        leader=await _reward(task, view, form, judge),
        side="" if spoken is None else _side(task, spoken, form, [votes[group[0]] or "" for group in groups]),
        fault="" if spoken is None else form_fault(spoken, form) or IN_FORM,
    )


async def _reward(task: Task, turn: Turn | None, form: str, judge: Judge) -> float:
    if turn is None or not turn.answered:
        return nan
    reward = (await judge(task, turn.text, form)).reward
    return nan if reward is None else reward


def _seats(agents: Sequence[Turn]) -> list[str]:
    """The agents' names; a further copy of one has its number behind it."""
    names = [f"{LEADER} (as agent)" if turn.member == LEADER else turn.member for turn in agents]
    copies = [names[: at + 1].count(name) for at, name in enumerate(names)]
    return [f"{name} {copy}" if copy > 1 else name for name, copy in zip(names, copies, strict=True)]


def _side(task: Task, text: str, form: str, answers: Sequence[str]) -> str:
    """Whose a leader's answer is, of the agents' different answers, the most frequent one first."""
    own = read_vote(task, text, form)
    if own is None:
        return UNREAD
    at = next((at for at, answer in enumerate(answers) if agree(answer, own, task.verifier)), None)
    return NOBODY if at is None else FEWER if at else MOST


def _rounds(told: Sequence[Sequence[_Round]]) -> Iterator[Cell]:
    for number, played in enumerate(zip_longest(*told)):
        rounds = [one for one in played if one is not None]
        absent = sum(len(one.absent) for one in rounds)
        yield _cell("rounds", LEADER, str(number), [one.leader for one in rounds])
        yield _cell("rounds", MAJORITY, str(number), [one.majority for one in rounds])
        yield _cell("rounds", AGENTS, str(number), [_mean(one.agents.values()) for one in rounds], absent=absent)
        for seat in dict.fromkeys(seat for one in rounds for seat in one.agents):
            rewards = [one.agents.get(seat, nan) for one in rounds]
            yield _cell("rounds", seat, str(number), rewards, absent=sum(seat in one.absent for one in rounds))


def _right(last: Sequence[_Round]) -> Iterator[Cell]:
    agents = max((len(one.agents) for one in last), default=0)
    judged = [one for one in last if sum(map(isnan, one.agents.values())) == len(one.absent)]
    for right in range(agents + 1):
        rounds = [one for one in judged if sum(reward >= RIGHT for reward in one.agents.values()) == right]
        yield _cell("right", f"{right} of {agents}", LEADER, [one.leader for one in rounds])
        yield _cell("right", f"{right} of {agents}", MAJORITY, [one.majority for one in rounds])


def _whose(last: Sequence[_Round]) -> Iterator[Cell]:
    for side in SIDES:
        rounds = [one for one in last if one.side == side]
        yield _cell("whose", side, "share", [float(one.side == side) for one in last], n=len(rounds))
        yield _cell("whose", side, LEADER, [one.leader for one in rounds])


def _form(told: Sequence[Sequence[_Round]]) -> Iterator[Cell]:
    spoken = [faults for rounds in told if (faults := [one.fault for one in rounds if one.fault])]
    counts = Counter(fault for faults in spoken for fault in faults)
    for fault in sorted(counts, key=lambda fault: (fault != IN_FORM, -counts[fault])):
        shares = [faults.count(fault) / len(faults) for faults in spoken]
        yield _cell("form", fault, "share", shares, n=counts[fault])


def _cell(
    table: str, line: str, column: str, shares: Sequence[float], *, n: int | None = None, absent: int = 0
) -> Cell:
    found = two_se(shares)
    return Cell(table, line, column, found.estimate, found.low, found.high, found.n if n is None else n, absent)


def _mean(rewards: Iterable[float]) -> float:
    judged = [reward for reward in rewards if not isnan(reward)]
    return sum(judged) / len(judged) if judged else nan
