"""Training tasks that also stand in a test set: found by their text, then dropped, refused or kept.

A training task repeats a test task when their texts are equal but for spacing and LaTeX dressing; or when they have the
same answer, numbers and mathematical signs, and the same sequence of letters and numbers or 70 % of the runs of six
words in common. So a reworded copy is found, and another instance of the same template (other numbers, or another
answer) is not.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pilotfish.rows import TaskError
from pilotfish.task import Task

Policy = Literal["drop", "refuse", "keep"]

SHARE = 0.7
"""Shared part (Jaccard) of the runs of words from which on two texts are near."""
RUN = 6
LISTED = 10
"""Repeats that an error lists."""

_TIGHT = re.compile(r"\\[,;:!]|\{,\}|\\(?:(?:left|right)\.?|displaystyle|textstyle|limits|text|mathrm|mbox)(?![a-z])")
_LOOSE = re.compile(r"[{}$~]|\\[()\[\] ]|\\q?quad(?![a-z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_SIGN = re.compile(r"[-+*/^=<>!%×÷±≤≥≠¬∧∨→↔]")
_WORD = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Overlap:
    """One training task that repeats a test task."""

    train_id: str
    benchmark: str
    test_id: str
    same_answer: bool
    """Whether the gold answers are written alike too; one of two unlike ones may be wrong."""

    def __str__(self) -> str:
        answers = "same answer" if self.same_answer else "another answer"
        return f"{self.train_id} repeats {self.test_id} of {self.benchmark} ({answers})"


def overlap(train: Iterable[Task], tests: Mapping[str, Sequence[Task]]) -> list[Overlap]:
    """Training tasks that repeat a test task, in the order of the training set.

    Args:
        train: the training tasks.
        tests: test tasks by the name of their benchmark.

    Returns:
        One entry for each pair.
    """
    index = _Index([(name, _Text(task)) for name, tasks in tests.items() for task in tasks])
    return [
        Overlap(text.task.id, *index.place(number), text.shares_answer(index.tests[number][1]))
        for text in map(_Text, train)
        for number in sorted(index.repeats(text))
    ]


def without_overlap(
    train: Sequence[Task], tests: Mapping[str, Sequence[Task]], policy: Policy = "drop"
) -> tuple[list[Task], list[Overlap]]:
    """The training tasks under a policy, and the repeats that were found.

    Args:
        train: the training tasks.
        tests: test tasks by the name of their benchmark.
        policy: `drop` takes the repeats out, `keep` leaves them in, `refuse` stops.

    Raises:
        TaskError: there are repeats and the policy is `refuse`, or dropping them leaves nothing.
    """
    found = overlap(train, tests)
    if not found or policy == "keep":
        return list(train), found
    repeated = {repeat.train_id for repeat in found}
    if policy == "refuse":
        listed = "; ".join(str(repeat) for repeat in found[:LISTED])
        more = f"; and {len(found) - LISTED} more" if len(found) > LISTED else ""
        raise TaskError(f"overlap: {len(repeated)} training tasks stand in a test set: {listed}{more}")
    kept = [task for task in train if task.id not in repeated]
    if not kept:
        raise TaskError(
            f"overlap: all {len(repeated)} training tasks stand in a test set; choose other tasks (for reasoning-gym, "
            "seeds further apart than the size of the sets) or set overlap: keep"
        )
    return kept, found


@dataclass(frozen=True)
class _Text:
    """A task as it is compared."""

    task: Task

    @cached_property
    def plain(self) -> str:
        return _undressed(self.task.question)

    @cached_property
    def bare(self) -> str:
        """The question without spacing; that between two numbers stays."""
        return _SPACE.sub("", self.plain)

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(_WORD.findall(self.plain))

    @cached_property
    def letters(self) -> str:
        """Letters and numbers alone; two numbers in a row stay two."""
        return "".join(f"{word} " if word[0].isdigit() else word for word in self.words)

    @cached_property
    def figures(self) -> tuple[str, ...]:
        """Its numbers and mathematical signs, sorted."""
        return tuple(sorted([*(word for word in self.words if word[0].isdigit()), *_SIGN.findall(self.bare)]))

    @cached_property
    def answers(self) -> frozenset[str]:
        """The accepted answers as they are compared."""
        written = [self.task.answer, *self.task.meta.get("alt_answers", [])]
        return frozenset(_SPACE.sub("", _undressed(text)) for text in written)

    @cached_property
    def runs(self) -> frozenset[tuple[str, ...]]:
        return frozenset(self.words[start : start + RUN] for start in range(len(self.words) - RUN + 1))

    def shares_answer(self, other: _Text) -> bool:
        return not self.answers.isdisjoint(other.answers)


class _Index:
    """Finds the test tasks that a text repeats without comparing it with each of them.

    Near texts share one of their rarest runs: of n runs, a share of 0.7 leaves room for 0.3 n that differ, so one of
    the rarest 0.3 n + 1 must be common. Only those are looked up, which keeps long templates cheap.
    """

    def __init__(self, tests: list[tuple[str, _Text]]) -> None:
        self.tests = tests
        self._bare: dict[str, list[int]] = defaultdict(list)
        self._letters: dict[tuple[str, tuple[str, ...], str], list[int]] = defaultdict(list)
        self._runs: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[int]] = defaultdict(list)
        self._figures: set[tuple[str, ...]] = set()
        self._count = Counter(run for _, text in tests for run in text.runs)
        for number, (_, text) in enumerate(tests):
            self._add(number, text)

    def _add(self, number: int, text: _Text) -> None:
        self._bare[text.bare].append(number)
        self._figures.add(text.figures)
        rarest = self._rarest(text)
        for answer in text.answers:
            self._letters[answer, text.figures, text.letters].append(number)
            for run in rarest:
                self._runs[answer, text.figures, run].append(number)

    def place(self, number: int) -> tuple[str, str]:
        """Benchmark and id of a test task."""
        name, text = self.tests[number]
        return name, text.task.id

    def repeats(self, text: _Text) -> set[int]:
        """The test tasks that a text repeats."""
        found = set(self._bare.get(text.bare, ()))
        if text.figures in self._figures:
            for answer in text.answers:
                found.update(self._letters.get((answer, text.figures, text.letters), ()))
            found.update(number for number in self._candidates(text) if _near(text, self.tests[number][1]))
        return found

    def _candidates(self, text: _Text) -> set[int]:
        rarest = self._rarest(text)
        keys = ((answer, text.figures, run) for answer in text.answers for run in rarest)
        return {number for key in keys for number in self._runs.get(key, ())}

    def _rarest(self, text: _Text) -> list[tuple[str, ...]]:
        size = len(text.runs)
        ordered = sorted(text.runs, key=lambda run: (self._count.get(run, 0), run))
        return ordered[: size - math.ceil(SHARE * size) + 1]


def _near(first: _Text, second: _Text) -> bool:
    common = len(first.runs & second.runs)
    return common >= SHARE * (len(first.runs) + len(second.runs) - common) > 0


def _undressed(text: str) -> str:
    """Case folded, LaTeX spacing and delimiters gone, fractions as a/b, numbers without thousands separators."""
    folded = _FRACTION.sub(r"\1\2/\3\4", unicodedata.normalize("NFKC", text).casefold())
    return _THOUSANDS.sub("", _LOOSE.sub(" ", _TIGHT.sub("", folded)))


def listed(repeats: Sequence[Overlap]) -> str:
    """The first of them, in a line."""
    shown = "; ".join(str(repeat) for repeat in repeats[:5])
    more = f"; and {len(repeats) - 5} more" if len(repeats) > 5 else ""
    return f"training tasks that stand in a benchmark (all in overlap.json): {shown}{more}"
