"""Alone: the leader without its team, in the same form. The second mode of a trained leader, and what zero-shot GRPO
trains: its training differs from the leader's in nothing but the agents' answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

THINK = Prompt(
    user="Problem: {question}\n\nThink it through inside <think> and </think>. Then give the result, and nothing else, "
    "inside <answer> and </answer>, and stop.",
)
PROMPTS = Prompts(think=THINK)


@topology(form="answer_tag")
async def alone(task: Task, room: Room, *, member: str = "leader", prompts: Prompts = PROMPTS) -> Turn:
    """`member` thinks and answers; draw 0 of every method that samples the same call."""
    return await room.ask(member, prompts.think(task), draw=0, final=True)
