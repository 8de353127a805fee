"""A turn (one call and its outcome) and an episode (one run of a topology on a task), as they are recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pilotfish.engine.base import Attempt, Completion, billed
from pilotfish.team import Messages, Sampling, Usage
from pilotfish.verify.verdict import Verdict

Outcome = Literal["answered", "absent", "failed"]
Position = tuple[int, ...]
"""Where in the topology a call stands: step on its branch, behind the (step, child) pairs of the gathers around it.
Sorting by position gives the structural order, whatever the latencies were."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a member and what became of it. Immutable; shared by every episode that made the same call."""

    key: str
    """Hash of what makes the call itself: see `episode.calls`."""
    scope: str
    member: str
    version: int
    """Version of the member's weights; 0 for a frozen member."""
    messages: Messages
    sampling: Sampling
    outcome: Outcome
    completion: Completion | None
    error: str = ""
    """Why it is absent or failed."""
    attempts: tuple[Attempt, ...] = ()
    """The tries that failed, also those before an answer."""
    asker: str = ""
    """The episode that asked first."""
    started: float = 0.0
    """Seconds since the epoch."""

    @property
    def text(self) -> str:
        """What the member said; empty when it is absent."""
        return self.completion.text if self.completion else ""

    @property
    def answered(self) -> bool:
        return self.outcome == "answered"

    @property
    def usage(self) -> Usage:
        return self.completion.usage if self.completion else Usage()

    @property
    def billed(self) -> Usage:
        """What is to be paid for: also tries that failed, where a server counts them."""
        return billed(self.attempts, self.usage)

    @property
    def seconds(self) -> float:
        """Seconds of the answering call, without the failed tries."""
        return self.completion.seconds if self.completion else 0.0


class Bill(NamedTuple):
    """What a turn cost, without its words."""

    asker: str
    """The episode that asked it; empty where an earlier run had the answer."""
    member: str
    usage: Usage
    """As `Turn.billed`."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A turn at its position in one episode."""

    position: Position
    turn: Turn
    depth: int
    """How many decisions of the trainee this turn depends on."""
    salt: tuple[str, ...] = ()
    """The forked decisions this turn depends on; turns without salt are shared by the whole group."""
    final: bool = False
    """Asked with `final=True`: the turn whose words are the team's answer."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One run of a topology on a task."""

    id: str
    task: str
    topology: str
    scope: str
    turns: tuple[Placed, ...]
    """In structural order."""
    answer: str | None
    """The team's answer; None when a required call failed."""
    verdict: Verdict
    trainee: str | None = None
    seconds: float = 0.0
    """Wall time of the run of the topology that made this record."""
    unused: tuple[str, ...] = field(default=())
    """Keys of turns that an earlier, interrupted run of this episode asked and this one did not come by."""

    def decisions(self, depth: int | None = None) -> list[Placed]:
        """The trainee's turns, or those at one depth, in structural order."""
        turns = [placed for placed in self.turns if placed.turn.member == self.trainee]
        return turns if depth is None else [placed for placed in turns if placed.depth == depth]

    @property
    def asked(self) -> tuple[Turn, ...]:
        """All calls behind it: the topology's, in structural order, and then its judge's."""
        return (*(placed.turn for placed in self.turns), *self.verdict.turns)

    def usage(self) -> dict[str, Usage]:
        """Tokens charged to this episode, per member; what its judge used is not the team's.

        A turn shared with other episodes is charged to each; one that stands in this episode twice is charged once.
        """
        total: dict[str, Usage] = {}
        for turn in {placed.turn.key: placed.turn for placed in self.turns}.values():
            total[turn.member] = total.get(turn.member, Usage()) + turn.usage
        return total
