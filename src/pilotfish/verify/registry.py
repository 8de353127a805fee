"""The verifiers by name, and what is asked of them: judge a reply, compare two answers, find an answer in a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..task import Task
from . import by_member, choice, exact, gym, latex, maths, own
from .extract import FORMS
from .number import read_number, same_number
from .verdict import Verdict

Verifier = Callable[[str, str, Task, str], Verdict]

VERIFIERS: dict[str, Verifier] = {
    "maths": maths.verify,
    "choice": choice.verify,
    "exact": exact.verify,
    "reasoning_gym": gym.verify,
    "judge": by_member.verify,
    "reward_model": by_member.verify,
}
"""name -> f(gold, text, task, form) -> Verdict."""

_SAFE = ("choice", "exact", "judge", "reward_model")
"""Verifiers whose cost is linear in the reply: they need no worker."""


def judge(task: Task, text: str, form: str = "free") -> Verdict:
    """Judge a reply in this process, without a limit on time or memory (`VerifierPool` has both).

    Args:
        task: its `verifier`, `answer` and `meta["alt_answers"]` decide.
        text: the reply.
        form: `free` or `answer_tag` (see `extract_answer`).

    Raises:
        ValueError: an unknown verifier or form.
    """
    verify = check(task, form)
    return best(verify(gold, text, task, form) for gold in golds(task))


def quick_judge(task: Task, text: str, form: str = "free") -> Verdict | None:
    """The verdict where it takes microseconds and cannot hang; None where a worker has to find it."""
    verify = check(task, form)
    if task.verifier in _SAFE:
        return best(verify(gold, text, task, form) for gold in golds(task))
    if task.verifier != "maths":
        return None
    verdicts = [maths.quick(gold, text, task, form) for gold in golds(task)]
    known = [verdict for verdict in verdicts if verdict is not None]
    if any(verdict.correct for verdict in known) or len(known) == len(verdicts):
        return best(known)
    return None


def check(task: Task, form: str) -> Verifier:
    """The task's verifier.

    Raises:
        ValueError: there is none of this name, or no such form.
    """
    if form not in FORMS:
        raise ValueError(f"form {form!r} is not one of {', '.join(FORMS)}")
    if task.verifier in VERIFIERS:
        return VERIFIERS[task.verifier]
    own.check(task.verifier)
    return own.verify


def golds(task: Task) -> tuple[str, ...]:
    """The gold answer and the other accepted ones."""
    others = task.meta.get("alt_answers") or ()
    others = (others,) if isinstance(others, str) else others
    return (task.answer, *(str(other) for other in others if str(other).strip() and other != task.answer))


def best(verdicts: Iterable[Verdict]) -> Verdict:
    """The highest reward; a verdict that could not be given counts only where none was."""
    return max(verdicts, key=lambda verdict: -1.0 if verdict.reward is None else verdict.reward)


def equivalent(first: str, second: str, verifier: str = "maths") -> bool:
    """Whether two extracted answers are one answer (majority vote). In this process, without a time limit.

    Raises:
        ValueError: an unknown verifier (`reasoning_gym` answers are compared as text).
    """
    if not first.strip() or not second.strip():
        return False
    if verifier == "maths":
        return maths.equivalent(first, second)
    if verifier == "choice":
        letter = choice.letter(first)
        return letter == choice.letter(second) if letter else exact.same(first, second)
    if verifier in ("exact", "reasoning_gym"):
        return exact.same(first, second)
    raise ValueError(f"verifier {verifier!r} is not one of {', '.join(VERIFIERS)}")


def leaks(task: Task, text: str) -> bool:
    """Whether a text already contains a gold answer of a task."""
    golds = [task.answer, *task.meta.get("alt_answers", ())]
    return any(contains_answer(str(gold), text, task.verifier) for gold in golds)


def contains_answer(gold: str, text: str, verifier: str = "maths") -> bool:
    """Whether the gold answer stands in a text as a whole number, word or formula (the leak rate of a hint).

    12 in "120" or "12.5" is no leak; 0.5 in "a half is 1/2" is one.
    """
    gold = maths.gold_answer(gold) if verifier == "maths" else gold
    if not gold.strip():
        return False
    if verifier == "choice":
        return _names_option(gold, text)
    if _stands_in(re.escape(exact.normal(gold)), exact.normal(text)):
        return True
    return verifier == "maths" and _value_stands_in(latex.clean(gold), text)


def _stands_in(pattern: str, text: str) -> bool:
    """Whether a pattern is found that is not cut out of a longer word or number."""
    before = r"(?<!\w)(?<!\d[.,])" if pattern[:1].isalnum() else ""
    after = r"(?!\w|[.,]\d)" if pattern[-1:].isalnum() else ""
    return bool(pattern) and re.search(before + pattern + after, text) is not None


_NUMBERS = re.compile(
    r"(?<![\w.])(?<!\d,)-?(?:\\[dt]?frac\{\d+\}\{\d+\}|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:\s*/\s*\d+)?)(?:\s*\\?%)?"
    r"(?![\w]|[.,]\d)"
)


def _value_stands_in(gold: str, text: str) -> bool:
    """The gold number in another spelling, or the gold formula with other spaces, sizes and dollar signs."""
    number = read_number(gold)
    if number is not None:
        given = (read_number(latex.clean(match.group())) for match in _NUMBERS.finditer(text))
        return any(other is not None and same_number(number, other) for other in given)
    spaced = " ?".join(re.escape(character) for character in latex.squeeze(gold))
    return _stands_in(spaced, latex.squeeze(latex.clean(text), " "))


def _names_option(gold: str, text: str) -> bool:
    letter = choice.letter(gold, leading=True)
    if letter is None:
        return False
    spoken = rf"(?i:answer|option|choice|choose|pick)\W*(?i:is\W*)?{letter}(?![\w'’])"
    return re.search(rf"\({letter}\)|\*\*{letter}\*\*|\\boxed\{{{letter}\}}|{spoken}", text) is not None or (
        letter not in "AI" and re.search(rf"(?<![\w'’]){letter}(?![\w'’])", text) is not None
    )
