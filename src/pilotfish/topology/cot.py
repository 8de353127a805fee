"""Chain of thought: one member answers and is told to go step by step.

y ~ phi(. | q, "think step by step"). Source: Wei et al., 2022 (arXiv 2201.11903), here without examples as in Kojima et
al., 2022 (arXiv 2205.11916). Self-consistency of it is `{name: vote, options: {of: cot, samples: 5}}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

SOLVE = Prompt(
    user="{question}\n\nThink step by step: say what is given and what is asked, work it out one step at a time, and "
    "state the result only at the end. {instruction}"
)
PROMPTS = Prompts(solve=SOLVE)


@topology
async def cot(task: Task, room: Room, *, member: str = "actor", prompts: Prompts = PROMPTS) -> Turn:
    """`member` reasons and answers: draw 0 of every method that samples the same call."""
    return await room.ask(member, prompts.solve(task), draw=0, final=True)
