"""Accounts: what members used, from the turns of episodes: calls, tokens, seconds, money.

    accounts(episodes, prices)["actor"].prompt     # charged: a call that methods share counts in each of them
    asked(played, counted)["actor"].calls          # asked: each call once, as a server's own count has it

A call is one that an engine was asked for and answered: not one that failed or was absent, and no words that a control
puts into a member's mouth.

Tokens are the server's, or the engine's in process; where a server does not count, a quarter of the characters, marked
`estimated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pilotfish.episode import Episode, Turn
from pilotfish.episode.calls import put_in
from pilotfish.team import Price, Usage

if TYPE_CHECKING:
    from pilotfish.evaluate.arms import Played

SEARCH = "search for constant words"
"""What stands in place of a benchmark where the words of the `constant` control are chosen."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one member used, in all."""

    calls: int = 0
    """Answered ones."""
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Of the prompt tokens, those that the server had in its cache."""
    reasoning: int = 0
    """Of the completion tokens, those that the server does not show."""
    estimated: bool = False
    """Whether any count is not the server's or the engine's own."""
    seconds: float = 0.0
    """Of the calls, one after the other."""
    cost: float | None = None
    """In the recipe's currency; None for a member without a price."""

    def __add__(self, other: Account) -> Account:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Account(
            self.calls + other.calls,
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
            self.seconds + other.seconds,
            sum(known) if known else None,
        )

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class Asked:
    """The calls behind all methods of an evaluation, each once."""

    account: Account = field(default_factory=Account)
    """What this run has asked, also while it trained."""
    recalled: int = 0
    """Calls that an earlier run had answered; they cost nothing."""


def accounts(episodes: Iterable[Episode], prices: Mapping[str, Price], *, judges: bool = False) -> dict[str, Account]:
    """What each member is charged for in episodes; a call that stands twice in one of them counts once.

    Args:
        episodes: of one method.
        prices: by member.
        judges: whether those who judged the answers are among the members; they are no part of what a method costs.
    """
    total: dict[str, Account] = {}
    for episode in episodes:
        for turn in charged(episode.asked if judges else (placed.turn for placed in episode.turns)):
            total[turn.member] = total.get(turn.member, Account()) + _account(turn, turn.usage, prices[turn.member])
    return total


def charged(turns: Iterable[Turn]) -> list[Turn]:
    """The turns of an episode that it is charged for: answered, and each once."""
    return [turn for turn in {turn.key: turn for turn in turns}.values() if turn.answered]


def calls(turns: Iterable[Turn]) -> int:
    """How many calls of an engine an episode is charged for; words that were put in are none."""
    return sum(not put_in(turn.scope) for turn in charged(turns))


def asked(played: Sequence[Played], counted: set[str]) -> dict[str, Asked]:
    """What was really asked of each member, however many methods share a call.

    Args:
        played: the arms of one benchmark.
        counted: keys of the calls that benchmarks before it have counted, which may share those at temperature 0;
            updated.
    """
    total: dict[str, Asked] = {}
    for one in played:
        members = one.arm.team.members
        for turn in (turn for episode in one.episodes for turn in episode.asked):
            if put_in(turn.scope) or not (turn.answered or turn.billed.total):
                continue
            so_far = total.setdefault(turn.member, Asked())
            if turn.key in counted:
                continue
            counted.add(turn.key)
            if turn.asker:
                account = so_far.account + _account(turn, turn.billed, members[turn.member].price)
                total[turn.member] = Asked(account, so_far.recalled)
            else:
                total[turn.member] = Asked(so_far.account, so_far.recalled + 1)
    return total


def asked_anew(episodes: Iterable[Episode], since: float) -> int:
    """How many calls topologies have made since a time in finished episodes, in place of others that the record has of
    them."""
    differing = [episode for episode in episodes if episode.unused and episode.answer is not None]
    turns = ((one.id, placed.turn) for one in differing for placed in one.turns)
    return sum(turn.asker == id and turn.started >= since for id, turn in turns)


def _account(turn: Turn, used: Usage, price: Price) -> Account:
    cost = used.cost(price) if price.input or price.output else None
    counts = (used.prompt, used.completion, used.cached, used.reasoning)
    return Account(int(turn.answered and not put_in(turn.scope)), *counts, used.estimated, turn.seconds, cost)
