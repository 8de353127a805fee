"""What an answer used: the sum over the team in OpenAI's form, with the split by member beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pilotfish.episode import Episode, Turn
from pilotfish.team import Member, Usage


def turns_of(episodes: Iterable[Episode]) -> list[Turn]:
    """The turns behind answers."""
    return [placed.turn for episode in episodes for placed in episode.turns]


def by_member(turns: Iterable[Turn]) -> dict[str, Usage]:
    """Tokens of each member; a turn that stands there several times counts once."""
    total: dict[str, Usage] = {}
    for turn in {turn.key: turn for turn in turns}.values():
        total[turn.member] = total.get(turn.member, Usage()) + turn.usage
    return total


def usage_of(used: Mapping[str, Usage], members: Mapping[str, Member]) -> dict[str, Any]:
    """The field `usage` of an answer; `members` and, where anybody has a price, `cost` are added to OpenAI's."""
    costs = {name: usage.cost(members[name].price) for name, usage in used.items()}
    split = {name: tokens(usage) for name, usage in used.items()}
    if any(member.price.paid for member in members.values()):
        split = {name: {**fields, "cost": costs[name]} for name, fields in split.items()}
        return {**tokens(sum(used.values(), Usage())), "cost": sum(costs.values()), "members": split}
    return {**tokens(sum(used.values(), Usage())), "members": split}


def tokens(usage: Usage) -> dict[str, Any]:
    """Tokens as OpenAI names them."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def turn_of(turn: Turn) -> dict[str, Any]:
    """A turn as clients see it. Why one is absent is for the log."""
    return {
        "member": turn.member,
        "messages": turn.messages,
        "text": turn.text,
        "outcome": turn.outcome,
        "finish_reason": turn.completion.finish_reason if turn.completion else None,
        "usage": tokens(turn.usage),
        "seconds": round(turn.seconds, 3),
    }
