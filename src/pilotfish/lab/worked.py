"""Problems that fall into lines which can each be right or wrong by themselves, and solutions written in such lines.

    3 crabs: 3 x 10 = 30. 2 ants: 2 x 6 = 12, perhaps. 30 + 12 = 42. The answer is 42.

Whoever reads several solutions can take each line from another one and add the lines up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pilotfish.lab.row import lab_task
from pilotfish.task import Task

INSTRUCTION = "Work it out and end with: The answer is N."
"""One for all families of the team, so that their tasks can be mixed in one source."""
HEDGE = ", perhaps"
"""Follows a line whose writer is not sure of it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a solution, and the value in it that has to be known."""

    skills: frozenset[str]
    """Whoever has one of these knows the value."""
    truth: int
    guesses: tuple[int, ...]
    """What those write who do not know it; the truth may be among them."""
    told: tuple[int, ...]
    """Values to write in place of the truth where a member is to learn to read, and not what is true."""
    template: str
    """The line, with `{value}` and `{amount}`."""
    times: int = 1
    """The line adds so many times the value to the total."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question and the lines of its solution."""

    question: str
    lines: tuple[Line, ...]
    scale: int = 1
    """Values are in units of 1 / scale: 10 for tenths."""

    @property
    def truths(self) -> list[int]:
        return [line.truth for line in self.lines]

    @property
    def task(self) -> Task:
        """The task as the topologies' prompts take it."""
        return lab_task(self.question, total(self, self.truths), INSTRUCTION)


def amounts(problem: Problem, values: Sequence[int]) -> list[int]:
    """What each line adds to the total."""
    return [line.times * value for line, value in zip(problem.lines, values, strict=True)]


def total(problem: Problem, values: Sequence[int]) -> str:
    """The result that the lines add up to."""
    return shown(sum(amounts(problem, values)), problem.scale)


def working(problem: Problem, values: Sequence[int], hedged: Sequence[bool] | None = None) -> str:
    """Each line, then the running sum, without the answer.

    Args:
        problem: what is solved.
        values: one for each line, right or wrong; the sums are right for them.
        hedged: after which lines a doubt is written; none by default.
    """
    scale, added = problem.scale, amounts(problem, values)
    lines = [
        line.template.format(value=shown(value, scale), amount=shown(amount, scale)) + (HEDGE if doubt else "")
        for line, value, amount, doubt in zip(problem.lines, values, added, hedged or [False] * len(added), strict=True)
    ]
    for (before, after), amount in zip(pairwise(accumulate(added)), added[1:], strict=True):
        sign = "-" if amount < 0 else "+"
        lines.append(f"{shown(before, scale)} {sign} {shown(abs(amount), scale)} = {shown(after, scale)}")
    return " ".join(f"{line}." for line in lines)


def solution(problem: Problem, values: Sequence[int], hedged: Sequence[bool] | None = None) -> str:
    """The working and the answer."""
    return f"{working(problem, values, hedged)} The answer is {total(problem, values)}."


def shown(value: int, scale: int) -> str:
    """A value as it is written: 25 tenths are 2.5."""
    return f"{value / scale:g}"
