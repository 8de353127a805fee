"""Critic: the actor drafts, the collaborator criticises, the actor revises (AgentPO, feedback topology).

y_init ~ phi(. | q); c ~ pi(. | [q; y_init]); y_ref ~ phi(. | [q; y_init; c]); with `rounds` above 1 the revised answer
is the next draft. Drafts are fresh each step, or the same stored ones at every step where the recipe says
`train.prefix: stored`. Source: AgentPO, section "two topologies"; the released code uses one stored draft a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.solo import SOLVE

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

CRITICISE = Prompt(
    system="You check another model's solution. Say briefly and concretely what is wrong or missing, or that it is "
    "right. Do not rewrite the solution.",
    user="Problem: {question}\n\nSolution:\n{draft}",
)
REVISE = Prompt(
    user="Problem: {question}\n\nYour solution:\n{draft}\n\nComment on it:\n{comment}\n\n"
    "Review your solution in the light of the comment, mend what is wrong and answer again. {instruction}"
)
PROMPTS = Prompts(draft=SOLVE, criticise=CRITICISE, revise=REVISE)


@topology
async def critic(
    task: Task,
    room: Room,
    *,
    rounds: int = 1,
    collaborator: str = "collaborator",
    actor: str = "actor",
    prompts: Prompts = PROMPTS,
) -> Turn:
    """A draft and `rounds` of comment and revision."""
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"critic: rounds is {rounds!r}; give 1 or more")
    answer = await room.ask(actor, prompts.draft(task), draw=0)
    for number in range(1, rounds + 1):
        comment = await room.ask(collaborator, prompts.criticise(task, draft=answer.text))
        revise = prompts.revise(task, draft=answer.text, comment=comment.text)
        answer = await room.ask(actor, revise, final=number == rounds)
    return answer
