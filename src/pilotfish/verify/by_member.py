"""Answers that a member of the team judges: what can be told without asking, and the verdict of those who are asked.

    verdict = await hear(task, answer, form, ask)      # ask(messages) -> the judge's turn

`judge.py` and `reward_model.py` say what is asked and how the reply is read. A turn that is answered and cannot be read
is asked once more; what cannot be read then, and an outage, is no verdict: the answer is not wrong for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..task import Task
from ..team import Messages
from . import judge, reward_model
from .extract import Extraction, whole
from .verdict import Verdict

if TYPE_CHECKING:
    from pilotfish.episode.turn import Turn

GRADERS = {"judge": judge, "reward_model": reward_model}


def verify(gold: str, text: str, task: Task, form: str = "free") -> Verdict:
    """What can be told without asking: a reply without an answer is wrong; any other has no verdict yet."""
    found = readable(task, text, form)
    if found.answer is None:
        return Verdict(0.0, why=found.why)
    if task.judge is None:
        return Verdict(None, why=f"verifier {task.verifier}: the task has no `judge` to say who judges and by what")
    return Verdict(None, why=f"{task.judge.member} judges this: it is asked where an episode is played")


async def hear(task: Task, text: str, form: str, ask: Callable[[Messages], Awaitable[Turn]]) -> Verdict:
    """The judge's verdict on a reply.

    Args:
        task: its `judge` says who and by what.
        text: the team's reply.
        form: where the answer stands in it.
        ask: asks the judge, or looks up what it has said.
    """
    found = readable(task, text, form)
    if found.answer is None or task.judge is None:
        return verify(task.answer, text, task, form)
    grader, turns = GRADERS[task.judge.name], []
    for messages in grader.chats(task, found.answer):
        turns.append(await ask(messages))
        if not turns[-1].answered:
            return Verdict(None, why=f"{task.judge.member}: {turns[-1].error}", turns=tuple(turns))
        verdict = grader.read(task, found.answer, turns[-1].text)
        if verdict is not None:
            return Verdict(verdict.reward, verdict.extracted, verdict.why, tuple(turns))
    why = f"{task.judge.member}: its verdict cannot be read: {turns[-1].text[-80:]!r}"
    return Verdict(None, why=why, turns=tuple(turns))


def readable(task: Task, text: str, form: str) -> Extraction:
    """The answer that is judged; none where there is none, or where it is longer than the judge reads."""
    found = whole(text, form)
    if found.answer is None or task.judge is None or len(found.answer) <= task.judge.longest:
        return found
    length = len(found.answer)
    return Extraction(None, why=f"the answer is {length} characters long; at most {task.judge.longest} are judged")
