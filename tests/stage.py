"""A scripted stage for episode tests: engines whose words tell who spoke when, and random topologies.

An answer is unique (`actor v0 #3`), so equal words mean the same call. How many turns of the event loop an answer
takes is drawn from a seed: each seed gives another order of completion, and nothing waits.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pilotfish.engine.base import CallFailed, Completion
from pilotfish.episode import Journal, Room, Team
from pilotfish.task import Task
from pilotfish.team import Member, Messages, Sampling, Usage
from pilotfish.topology import Topology, topology
from pilotfish.verify.verdict import Verdict

TASK = Task("sum", "What is 2 + 2?", "4")
Position = tuple[int, ...]


class Speaker:
    """Engine that says who it is, its version, and the number of the call among all calls of the stage."""

    def __init__(self, name: str, numbers: Iterator[int], order: random.Random, outages: float = 0.0) -> None:
        self.name = name
        self.identity: str | None = None
        self.version = 0
        self.asked: list[Messages] = []
        self.outages = outages
        self._numbers = numbers
        self._order = order

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        self.asked.append(messages)
        text = f"{self.name} v{self.version} #{next(self._numbers)}"
        lost = self._order.random() < self.outages
        for _ in range(self._order.randrange(6)):
            await asyncio.sleep(0)
        if lost:
            raise CallFailed("the line is dead")
        return Completion(text, "stop", Usage(10, 1))

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class Stage:
    """A team of speakers."""

    team: Team
    speakers: dict[str, Speaker]

    @property
    def calls(self) -> int:
        return sum(len(speaker.asked) for speaker in self.speakers.values())


def stage(members: Mapping[str, float], trainee: str | None = None, *, order: int = 0, outages: float = 0.0) -> Stage:
    """A team of members with their temperatures.

    Args:
        members: temperature by name.
        trainee: who is trained.
        order: seeds the order of completion.
        outages: share of the calls of a member called `flaky` that fail.
    """
    numbers, shuffled = iter(range(1_000_000)), random.Random(order)
    speakers = {name: Speaker(name, numbers, shuffled, outages if name == "flaky" else 0.0) for name in members}
    seats = {
        name: Member(name, "scripted", trainee=name == trainee, sampling=Sampling(temperature=temperature))
        for name, temperature in members.items()
    }
    return Stage(Team(seats, dict(speakers)), speakers)


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(1.0, answer)


@contextmanager
def journal() -> Iterator[Journal]:
    with tempfile.TemporaryDirectory() as folder:
        opened = Journal(Path(folder))
        yield opened
        opened.close()


# Random topologies


@dataclass(frozen=True)
class Ask:
    member: str
    words: str
    optional: bool = False
    draw: int | None = None
    listens: bool = True
    """Its messages hold what was heard before on its branch."""


@dataclass(frozen=True)
class Gather:
    branches: tuple[tuple[Ask | Gather, ...], ...]


Steps = tuple[Ask | Gather, ...]


def played(steps: Steps) -> Topology:
    """The topology of a program; its answer is all that was heard."""

    async def random_topology(task: Task, room: Room) -> str:
        return " / ".join(await _perform(steps, room, []))

    return topology(random_topology)


async def _perform(steps: Steps, room: Room, heard: list[str]) -> list[str]:
    for step in steps:
        if isinstance(step, Ask):
            words = f"{step.words}: {' / '.join(heard)}" if step.listens else step.words
            turn = await room.ask(step.member, words, optional=step.optional, draw=step.draw)
            heard = [*heard, turn.text or "(absent)"]
        else:
            results = await room.gather(*(_perform(branch, room, heard) for branch in step.branches))
            heard = [*heard, *(text for result in results for text in result[len(heard) :])]
    return heard


def asks(steps: Steps, path: Position = ()) -> Iterator[tuple[Position, Ask]]:
    """The calls of a program and their positions, in structural order."""
    for number, step in enumerate(steps):
        position = (*path, number)
        if isinstance(step, Ask):
            yield position, step
        else:
            for child, branch in enumerate(step.branches):
                yield from asks(branch, (*position, child))


@dataclass
class Dependence:
    """What a program's calls depend on, told from its text alone."""

    trainee: str
    decision: int
    depends: dict[Position, bool] = field(default_factory=dict)

    def walk(self, steps: Steps, path: Position = (), depth: int = 0, after: bool = False) -> tuple[int, bool]:
        for number, step in enumerate(steps):
            position = (*path, number)
            if isinstance(step, Ask):
                decides = step.member == self.trainee
                after = after or (decides and depth == self.decision)
                depth += decides
                self.depends[position] = after
            else:
                ends = [self.walk(branch, (*position, n), depth, after) for n, branch in enumerate(step.branches)]
                depth = max([depth, *(end for end, _ in ends)])
                after = any([after, *(late for _, late in ends)])
        return depth, after


def programs(*, optional_only: bool = False) -> st.SearchStrategy[Steps]:
    """Random programs over the members pilot (trainee), warm, cold (temperature 0) and flaky."""
    ask = st.builds(
        Ask,
        member=st.sampled_from(["pilot", "pilot", "warm", "cold", "flaky"]),
        words=st.sampled_from(["say", "tell"]),
        optional=st.booleans(),
        draw=st.sampled_from([None, None, None, 0, 1]),
        listens=st.booleans(),
    ).map(lambda one: Ask(one.member, one.words, True, one.draw, one.listens) if optional_only else one)
    steps: st.SearchStrategy[Steps] = st.recursive(
        st.lists(ask, min_size=1, max_size=4).map(tuple),
        lambda inner: st.lists(
            st.one_of(ask, st.lists(inner, min_size=1, max_size=3).map(tuple).map(Gather)), min_size=1, max_size=4
        ).map(tuple),
        max_leaves=6,
    )
    return steps


MEMBERS = {"pilot": 1.0, "warm": 0.7, "cold": 0.0, "flaky": 1.0}


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)
