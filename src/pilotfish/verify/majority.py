"""Which of several answers to one task are one answer, without algebra: the same at once, in any process, every time.

    agreeing(["1/2", None, "0.5", "3"], "maths")      # [[0, 2], [3]]

A vote is counted where nothing can be killed (`pool`), and must come out the same whenever an episode is replayed. So
spelling, numbers and shape decide; two answers that only algebra would tell to be one are two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..task import Task
from . import choice, exact
from .extract import extract_answer
from .registry import quick_judge


def read_vote(task: Task, text: str, form: str = "free") -> str | None:
    """The answer of a reply as it is compared with others; None where it cannot be read.

    Args:
        task: its verifier says how, its choices what may be said. The gold answer plays no part.
        text: the reply.
        form: `free` or `answer_tag`.
    """
    found = extract_answer(text, form)
    if found.answer is None:
        return None
    if task.verifier == "choice":
        return choice.letter(found.region, task.choices, leading=found.source != "final line")
    if task.verifier == "exact":
        return exact.named(found.region, task.choices) if task.choices else found.region
    return found.answer


def agreeing(answers: Sequence[str | None], verifier: str = "maths") -> list[list[int]]:
    """Positions of equal answers together: the most frequent first, of equally frequent ones the one that came first.

    Args:
        answers: as `read_vote` gives them; None and empty ones are in no group.
        verifier: of the task.
    """
    groups: list[list[int]] = []
    for at, answer in enumerate(answers):
        if not answer:
            continue
        own = next((group for group in groups if agree(answers[group[0]] or "", answer, verifier)), None)
        if own is None:
            groups.append([at])
        else:
            own.append(at)
    return sorted(groups, key=len, reverse=True)


@lru_cache(maxsize=65_536)  # a vote compares the same few answers again and again
def agree(first: str, second: str, verifier: str = "maths") -> bool:
    """Whether two answers are one, whichever of them is taken for the gold one."""
    if first == second:
        return True
    if verifier != "maths":
        return exact.same(first, second)
    return _is(first, second) and _is(second, first)


def _is(gold: str, answer: str) -> bool:
    verdict = quick_judge(Task("", "", gold), f"\\boxed{{{answer}}}")
    return verdict is not None and bool(verdict.correct)
