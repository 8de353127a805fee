"""Agents who answer side by side: who they are, their answers, and how others read them.

An agent is a member by its name. A name that stands several times is as many copies, each with answers of its own: the
i-th copy's answer to the bare question is draw i, so that the first shares solo's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotfish.team import Messages
from pilotfish.topology.share import shared

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn


def check_agents(topology: str, room: Room, agents: Sequence[str]) -> list[str]:
    """The agents' names, in order.

    Raises:
        ValueError: no list of names, an empty one, or copies of a member that would all say the same.
    """
    if isinstance(agents, str) or not isinstance(agents, Sequence) or not agents:
        raise ValueError(f"{topology}: agents is {agents!r}; give a list of members, such as [actor, actor, actor]")
    for name in dict.fromkeys(agents):
        check_draws(topology, room, name, agents.count(name))
    return list(agents)


def check_draws(topology: str, room: Room, member: str, draws: int) -> None:
    """Refuse several draws of a member that says the same each time."""
    if draws > 1 and member in room.members and room.members[member].sampling.temperature == 0:
        raise ValueError(
            f"{topology}: {member} at temperature 0 would give {draws} times the same; "
            f"set team.{member}.sampling.temperature above 0"
        )


async def first_answers(room: Room, agents: Sequence[str], chat: Messages) -> list[Turn]:
    """Each agent's answer to the same words; one that cannot be reached is absent."""
    draws = [agents[:at].count(name) for at, name in enumerate(agents)]
    asked = (room.ask(name, chat, optional=True, draw=draw) for name, draw in zip(agents, draws, strict=True))
    return await room.gather(*asked)


async def next_answers(room: Room, agents: Sequence[str], chats: Sequence[Messages]) -> list[Turn]:
    """Each agent's answer to a chat of its own; one that cannot be reached is absent."""
    asked = (room.ask(name, chat, optional=True) for name, chat in zip(agents, chats, strict=True))
    return await room.gather(*asked)


def listed(turns: Sequence[Turn], budget: int | None, places: Sequence[int] | None = None) -> str:
    """Answers under their agents' numbers, from 1.

    Args:
        turns: of all agents, in their order.
        budget: most tokens of one answer; a longer one loses its middle, with a mark.
        places: whose answers are shown; everyone's when not given.
    """
    shown = range(len(turns)) if places is None else places
    return "\n\n".join(f"Answer of agent {at + 1}:\n{shared(turns[at], 'full', budget)}" for at in shown)
