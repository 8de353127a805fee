"""The room: what a topology talks to. It has `ask`, `gather`, `rng` and `members`, and nothing else.

The room knows where in the topology a call stands (its branch) and what it depends on; `episode.calls` turns that into
a key and finds or makes the answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from pilotfish.episode.audience import Audience
from pilotfish.episode.calls import Call, Calls
from pilotfish.episode.turn import Placed, Position, Turn
from pilotfish.team import Member, Message, Messages
from pilotfish.topology.prompts import in_context

T = TypeVar("T")


class TopologyError(Exception):
    """A topology asked for something that cannot be: an unknown member, concurrency outside `room.gather`."""


class EpisodeOver(BaseException):
    """The episode ends here. Not an `Exception`, so that no topology catches it and goes on with other words."""


class EpisodeFailed(EpisodeOver):
    """A required call failed."""


class HorizonReached(EpisodeOver):
    """The episode was to end at this decision."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """Where an episode ends, if not with its topology: at a decision of the trainee."""

    decision: int
    asked: bool = True
    """Ends with the decision's answer, which is the team's; else just before it is asked."""


@dataclass
class Branch:
    """Where a coroutine of the topology stands. One branch runs one coroutine at a time."""

    path: Position = ()
    task: asyncio.Task[Any] | None = None
    steps: int = 0
    depth: int = 0
    salt: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    over: EpisodeOver | None = None

    def step(self) -> Position:
        self.steps += 1
        return (*self.path, self.steps - 1)

    def child(self, position: Position, number: int) -> Branch:
        return replace(self, path=(*position, number), steps=0, counts={})

    def join(self, children: list[Branch]) -> None:
        """What follows a gather depends on all that was decided in it."""
        self.depth = max((child.depth for child in children), default=self.depth)
        self.salt = tuple(dict.fromkeys(salt for branch in [self, *children] for salt in branch.salt))
        over = [child.over for child in children if child.over]
        self.over = next((end for end in over if isinstance(end, EpisodeFailed)), over[0] if over else None)


_branch: ContextVar[Branch] = ContextVar("pilotfish_branch")


class Room:
    """One episode's room.

    Args:
        members: the team's seats, by name; those who judge are not in the room.
        calls: finds or makes the answers.
        salts: for each depth of the trainee's decisions at which this episode leaves its group, the row's name.
        then: added behind the last of the salts once that decision is made: one of several continuations of a row.
        until: where the episode ends, if not with its topology.
        context: what was said before the question; stands in front of every call.
        audience: who watches.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        calls: Calls,
        salts: Mapping[int, str],
        then: str = "",
        until: Horizon | None = None,
        context: Sequence[Message] = (),
        audience: Audience | None = None,
    ) -> None:
        self.members = {name: member for name, member in members.items() if not member.judges}
        self.reached: Turn | str | None = None
        """The team's answer where the episode ended at its horizon."""
        self._until = until
        self._context = context
        self._audience = audience
        self._calls = calls
        self._salts = salts
        self._then = {max(salts): then} if salts and then else {}
        self._placed: list[Placed] = []

    async def ask(
        self,
        member: str,
        messages: Messages | str,
        *,
        optional: bool = False,
        draw: int | None = None,
        final: bool = False,
    ) -> Turn:
        """Ask a member and wait for its answer.

        Args:
            member: a name in `room.members`.
            messages: the chat, or one user message as a string; the task's context is put in front.
            optional: when the call fails after all retries, return an absent turn (empty text) and go on.
            draw: the i-th independent sample of this call; methods that name the same draw share it.
            final: this turn's words are the team's answer (what a server streams).

        Raises:
            TopologyError: no such member, or concurrency outside `room.gather`.
        """
        branch = self._here()
        if member not in self.members:
            raise TopologyError(f"no member {member!r} in this team; there are: {', '.join(self.members)}")
        chat = [Message(role="user", content=messages)] if isinstance(messages, str) else [m.copy() for m in messages]
        position, depth = branch.step(), branch.depth
        if self.members[member].trainee:
            if self._until == Horizon(depth, asked=False):
                self._end(branch, "")
            if depth in self._salts:
                branch.salt = (*branch.salt, self._salts[depth])
            branch.depth += 1
        chat = in_context(self._context, chat)
        call = Call(self.members[member], chat, position, branch.path, branch.salt, depth, optional, draw)
        turn = await self._answer(call, branch.counts, final)
        if not turn.answered:
            # An equal call that shares this outcome may have been required where this one is optional.
            turn = replace(turn, outcome="absent" if optional else "failed")
        self._placed.append(Placed(position, turn, depth, branch.salt, final))
        if self.members[member].trainee and depth in self._then:
            branch.salt = (*branch.salt, self._then[depth])
        if not turn.answered and not optional:
            branch.over = EpisodeFailed(f"{member}: {turn.error}")
            raise branch.over
        if self.members[member].trainee and self._until == Horizon(depth):
            self._end(branch, turn)
        return turn

    async def _answer(self, call: Call, counts: dict[str, int], final: bool) -> Turn:
        if self._audience is None:
            return await self._calls.answer(call, counts)
        return await self._audience.attend(call, final, lambda call: self._calls.answer(call, counts))

    def _end(self, branch: Branch, answer: Turn | str) -> NoReturn:
        self.reached = answer
        branch.over = HorizonReached()
        raise branch.over

    async def gather(self, *branches: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines concurrently, each on a branch of its own; results in the order given.

        All of them end before this returns or raises, so that what was asked does not depend on who was faster.
        """
        try:
            branch = self._here()
        except BaseException:
            for coroutine in branches:
                coroutine.close()  # nobody will ever await it
            raise
        position = branch.step()
        children = [branch.child(position, number) for number in range(len(branches))]
        tasks = [_start(child, coroutine) for child, coroutine in zip(children, branches, strict=True)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        branch.join(children)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results  # type: ignore[return-value]

    def rng(self, label: str) -> random.Random:
        """A generator that is the same for every row of a group: seeded by run seed, scope and label."""
        scopes, depth = self._calls.scopes, self._here().depth
        # What an earlier leader was asked was drawn when it was collected.
        scope = scopes.shaped if scopes.recalled(depth) else scopes.group
        return random.Random(f"{scopes.seed}/{scope}/{label}")

    def _here(self) -> Branch:
        branch = _branch.get()
        if branch.task is not asyncio.current_task():
            raise TopologyError("a topology's concurrency goes through room.gather, so that its branches have names")
        if branch.over:
            raise branch.over
        return branch


def enter(topology: Awaitable[T]) -> asyncio.Task[T]:
    """Start a topology on the root branch."""
    return _start(Branch(), _awaited(topology))


async def _awaited(topology: Awaitable[T]) -> T:
    return await topology


def placed(room: Room) -> tuple[Placed, ...]:
    """The room's turns in structural order."""
    return tuple(sorted(room._placed, key=lambda turn: turn.position))


def _start(branch: Branch, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    context = copy_context()
    context.run(_branch.set, branch)
    branch.task = asyncio.create_task(coroutine, context=context)
    return branch.task
