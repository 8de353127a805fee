"""Hint: the collaborator advises, the actor answers with the advice at hand (AgentPO, feed-forward topology).

The collaborator h ~ pi(. | q); the actor y ~ phi(. | [q; h]). Source: AgentPO, section "two topologies".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

ADVISE = Prompt(
    system="You advise another model that will solve the user's problem. Give one short, concrete hint. "
    "Do not solve the problem and do not state the final answer.",
    user="{question}",
)
SOLVE_WITH_HINT = Prompt(user="{question}\n(Hint: {hint})\n{instruction}")
PROMPTS = Prompts(advise=ADVISE, solve=SOLVE_WITH_HINT)


@topology
async def hint(
    task: Task,
    room: Room,
    *,
    collaborator: str = "collaborator",
    actor: str = "actor",
    prompts: Prompts = PROMPTS,
) -> Turn:
    """One hint, one answer."""
    advice = await room.ask(collaborator, prompts.advise(task))
    return await room.ask(actor, prompts.solve(task, hint=advice.text), final=True)
