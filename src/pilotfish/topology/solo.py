"""Solo: one member answers alone. The actor's own accuracy, and (with the trainee in the seat) plain GRPO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

SOLVE = Prompt(user="{question}\n{instruction}")
PROMPTS = Prompts(solve=SOLVE)


@topology
async def solo(task: Task, room: Room, *, member: str = "actor", prompts: Prompts = PROMPTS) -> Turn:
    """`member` reads the task and answers: draw 0 of every method that samples the same call."""
    return await room.ask(member, prompts.solve(task), draw=0, final=True)
