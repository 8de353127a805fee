"""Reflect: a member answers, comments on its own answer and revises it, until it finds nothing wrong (Self-Refine).

y_0 ~ phi(. | q); f_t ~ phi(. | q, y_t); y_(t+1) ~ phi(. | q, y_t, f_t); the end is y_t as soon as f_t says that it is
right, or y_T. 1 + 2 T calls at most. Source: Self-Refine (Madaan et al., 2023, arXiv 2303.17651): four attempts, as in
its code for mathematics, where comment and revision are one call. A comment by another member is the topology `critic`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.solo import SOLVE

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

CHECK = Prompt(
    user="Problem: {question}\n\nYour answer:\n{answer}\n\nGo through your answer step by step and name each error, or "
    "say that there is none. Do not answer again yet. End with one line: Verdict: right or Verdict: wrong."
)
REVISE = Prompt(
    user="Problem: {question}\n\nYour answer:\n{answer}\n\nYour comment on it:\n{feedback}\n\n"
    "Mend what is wrong and answer again. {instruction}"
)
PROMPTS = Prompts(solve=SOLVE, check=CHECK, revise=REVISE)

VERDICT = re.compile(r"\bverdict\b\W*(right|correct|wrong|incorrect)\b", re.IGNORECASE)


@topology
async def reflect(
    task: Task, room: Room, *, member: str = "actor", rounds: int = 4, prompts: Prompts = PROMPTS
) -> Turn:
    """An answer and at most `rounds` of comment and revision, all by `member`."""
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"reflect: rounds is {rounds!r}; give 1 or more")
    answer = await room.ask(member, prompts.solve(task), draw=0)
    for number in range(1, rounds + 1):
        feedback = await room.ask(member, prompts.check(task, answer=answer.text))
        if finds_it_right(feedback.text):
            return answer
        revise = prompts.revise(task, answer=answer.text, feedback=feedback.text)
        answer = await room.ask(member, revise, final=number == rounds)
    return answer


def finds_it_right(feedback: str) -> bool:
    """Whether a comment ends with the verdict that nothing is wrong; a comment without a verdict does not."""
    verdicts = VERDICT.findall(feedback)
    return bool(verdicts) and verdicts[-1].lower() in ("right", "correct")
