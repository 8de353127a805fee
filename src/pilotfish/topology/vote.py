"""Vote: a topology is played several times on a task, and the answer that most plays came to is the team's.

    {name: vote, options: {samples: 5}}                                        # self-consistency of the actor
    {name: vote, options: {members: [ann, bob, cy], samples: 15}}              # three members, five answers each
    {name: vote, options: {of: alone, samples: 40}}                            # the leader alone
    {name: vote, options: {of: leader, samples: 2, options: {rounds: 5}}}      # the whole team, twice

Source: self-consistency (Wang et al., 2023, arXiv 2203.11171); over team and leader at an equal number of generations:
MLPO, section "test-time scaling". How ties are broken is left open there; here the answer that came first wins.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pilotfish.task import Task
from pilotfish.team import Member, Messages
from pilotfish.topology.base import Topology, topology
from pilotfish.topology.find import find
from pilotfish.verify.extract import extract_answer
from pilotfish.verify.majority import agreeing, read_vote

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

T = TypeVar("T")


@topology
async def vote(
    task: Task,
    room: Room,
    *,
    of: str = "solo",
    samples: int = 5,
    member: str | None = None,
    members: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Turn | str:
    """`samples` plays of the topology `of`; the most frequent answer wins.

    The play that came to it first is returned as it is, or, where the topology's form is not `free`, with the answer in
    a box below its words. An answer that cannot be read has no vote; where none can, the first play stands.

    Options:
        of: the topology's name.
        samples: plays; each costs what the topology costs.
        member: who is asked, where the topology has an option `member`.
        members: several of them, who take turns.
        options: further options of the topology, `prompts` among them.
    """
    plays = ballot(of=of, samples=samples, member=member, members=members, options=options)
    _check_chance(room, plays)
    labels = [play.label for play in plays]
    said = await room.gather(*(_play(task, room, play, labels, at) for at, play in enumerate(plays)))
    heard = [one for one in said if isinstance(one, str) or one.answered]
    if not heard:
        return said[0]  # nobody was there to answer: the episode has no verdict
    form = plays[0].form
    groups = agreeing([read_vote(task, _text(one), form) for one in heard], task.verifier)
    won = heard[groups[0][0] if groups else 0]
    return won if form == "free" else _boxed(_text(won), form)


def ballot(
    *,
    of: str = "solo",
    samples: int = 5,
    member: str | None = None,
    members: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[Topology]:
    """The topology of each play, by the options of `vote`.

    Raises:
        ValueError: no such topology or option, `samples` that is no whole number from 1, `members` that is no list, or
            both `member` and `members`.
    """
    if type(samples) is not int or samples < 1:
        raise ValueError(f"vote: samples is {samples!r}; give a whole number, 1 or more")
    if isinstance(members, str):
        raise ValueError(f"vote: members is {members!r}; give a list, or member: {members}")
    if member is not None and members is not None:
        raise ValueError(f"vote: member is {member!r} and members is {list(members)!r}; give one of the two")
    played = find(of).bind(**(options or {}))
    seats = [member] if member is not None else list(members or ())
    taking_turns = [played.bind(member=seat) for seat in seats] or [played]
    return [taking_turns[at % len(taking_turns)] for at in range(samples)]


def _check_chance(room: Room, plays: Sequence[Topology]) -> None:
    """Refuse a vote whose plays must all say the same."""
    asked = [{**play.defaults(), **play.options}.get("member") for play in plays]
    names = [name for name in dict.fromkeys(asked) if name] or list(room.members)
    greedy = [name for name in names if name in room.members and room.members[name].sampling.temperature == 0]
    if len(greedy) == len(names) and len(plays) > len(set(asked)):
        raise ValueError(
            f"vote: {' and '.join(greedy)} at temperature 0 would give {len(plays)} times the same; "
            f"set team.{greedy[0]}.sampling.temperature above 0"
        )


async def _play(task: Task, room: Room, play: Topology, labels: list[str], at: int) -> Turn | str:
    """The play at a place of the vote, numbered among those that play the same."""
    again = _Again(room, labels[:at].count(play.label), labels.count(play.label))
    return await play.function(task, again, **play.options)


@dataclass(frozen=True)
class _Again:
    """The room of one play of several: its draws and its shuffles are its own. The first play of `solo` asks solo's
    very call."""

    room: Room
    number: int
    of: int

    @property
    def members(self) -> Mapping[str, Member]:
        return self.room.members

    async def ask(
        self,
        member: str,
        messages: Messages | str,
        *,
        optional: bool = False,
        draw: int | None = None,
        final: bool = False,
    ) -> Turn:
        """As `Room.ask`; no turn is final, since the vote comes after."""
        own = None if draw is None else draw * self.of + self.number
        return await self.room.ask(member, messages, optional=optional, draw=own)

    async def gather(self, *branches: Coroutine[Any, Any, T]) -> list[T]:
        return await self.room.gather(*branches)

    def rng(self, label: str) -> random.Random:
        return self.room.rng(f"{label}/{self.number}" if self.number else label)


def _text(said: Turn | str) -> str:
    return said if isinstance(said, str) else said.text


def _boxed(text: str, form: str) -> str:
    """Words with their answer where the form `free` finds it; empty where they hold none, lest it finds another."""
    found = extract_answer(text, form)
    return "" if found.answer is None else f"{text}\n\nThe answer is \\boxed{{{found.region}}}"
