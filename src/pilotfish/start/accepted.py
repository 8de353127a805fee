"""What a verifier takes for right in a user's rows, found out by running it.

with VerifierPool() as pool:
    taken = usable(tasks, pool, left_out)
    for example in examples(taken, pool): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from string import ascii_uppercase

from pilotfish.preflight.doctor import gold_reply
from pilotfish.start.pairs import LeftOut
from pilotfish.task import Task
from pilotfish.verify import VerifierPool

SHOWN = 3
"""Accepted replies that are shown, and one that is not accepted."""
TRIED = 60
"""Tasks that are looked through for them."""


@dataclass(frozen=True)
class Example:
    """A reply as the verifier judged it."""

    gold: str
    said: str
    right: bool


def usable(tasks: Sequence[Task], pool: VerifierPool, left_out: LeftOut) -> list[Task]:
    """The tasks whose own answer the verifier takes for right; no reply to the others can score."""
    verdicts = pool.judge_all((task, gold_reply(task, "free")) for task in tasks)
    taken = [task for task, verdict in zip(tasks, verdicts, strict=True) if verdict.correct]
    left_out.add(f"whose own answer {tasks[0].verifier} does not take for right", len(tasks) - len(taken))
    return taken


def examples(tasks: Sequence[Task], pool: VerifierPool) -> list[Example]:
    """Three replies that are accepted, each of another form and to another task where there are such, and one that is
    not: another task's answer."""
    tried = tasks[:TRIED]
    said = [(number, task, reply) for task in tried for number, reply in enumerate(_forms(task))]
    verdicts = pool.judge_all((task, reply) for _, task, reply in said)
    right = [one for one, verdict in zip(said, verdicts, strict=True) if verdict.correct]
    return [*islice(_varied(right), SHOWN), *_refused(tried, pool)]


def _varied(right: Sequence[tuple[int, Task, str]]) -> Iterator[Example]:
    """One of each form, where there is one with a gold answer that is not yet shown."""
    golds: set[str] = set()
    for form in sorted({number for number, _, _ in right}):
        of_form = [(task, reply) for number, task, reply in right if number == form]
        task, reply = next((one for one in of_form if one[0].answer not in golds), of_form[0])
        golds.add(task.answer)
        yield Example(task.answer, reply, True)


def _refused(tasks: Sequence[Task], pool: VerifierPool) -> list[Example]:
    for task, other in pairwise(tasks):
        said = f"The answer is {other.answer}."
        if next(pool.judge_all([(task, said)])).correct is False:
            return [Example(task.answer, said, False)]
    return []


def _forms(task: Task) -> Iterator[str]:
    """Ways in which a model may write a right answer."""
    yield f"The answer is {_dressed(task)}."
    yield f"… so it is **{task.answer}**"
    yield f"\\boxed{{{_otherwise(task)}}}"
    yield task.answer


def _dressed(task: Task) -> str:
    """The answer as people dress it: thousands with commas, an option with its text."""
    if task.answer.isdecimal() and len(task.answer) > 3:
        return f"{int(task.answer):,}"
    if task.choices and task.answer in ascii_uppercase[: len(task.choices)]:
        return f"({task.answer}) {task.choices[ascii_uppercase.index(task.answer)]}"
    return task.answer


def _otherwise(task: Task) -> str:
    """The same answer written in another way."""
    if task.verifier == "maths" and task.answer.isdecimal():
        return f"{task.answer}.0"
    return task.answer.upper() if task.verifier == "exact" else task.answer
