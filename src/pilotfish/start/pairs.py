"""Pairs of question and answer out of rows, without those that nothing can be learned from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pilotfish.benchmarks.benchmark import last_boxed
from pilotfish.rows import Row, field_of
from pilotfish.start.columns import Roles
from pilotfish.start.values import texts

KEPT = ("level", "subject", "alt_answers")
"""Columns that results are told by, and other accepted answers; they go along."""
MOST = 0.95
"""Share of the answers that must have a form for it to be taken for all."""


@dataclass(frozen=True)
class Pair:
    """A question, its answer, and what goes along."""

    id: str
    question: str
    answer: str
    choices: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass
class LeftOut:
    """Rows that were left out, and why."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, why: str, count: int = 1) -> None:
        if count:
            self.counts[why] = self.counts.get(why, 0) + count

    def __str__(self) -> str:
        return ", ".join(f"{count} {why}" for why, count in self.counts.items())


def pairs(rows: Iterable[Row], roles: Roles, name: str, left_out: LeftOut) -> list[Pair]:
    """Pairs that have a question and an answer, each question once.

    Args:
        rows: as they were read.
        roles: which column is what.
        name: begins the ids of rows that have none of their own.
        left_out: where to say what was left out.
    """
    found: dict[str, Pair] = {}
    ids: set[str] = set()
    for row in rows:
        pair = _pair(row, roles, name, ids)
        question = " ".join(pair.question.split()).casefold()
        if not question:
            left_out.add("without a question")
        elif not pair.answer.strip():
            left_out.add("without an answer")
        elif question in found:
            same = found[question].answer.strip() == pair.answer.strip()
            left_out.add("repeating a question" + ("" if same else " with another answer"))
        else:
            found[question] = pair
            ids.add(pair.id)
    return list(found.values())


def final_answers(known: Sequence[Pair]) -> tuple[list[Pair], str]:
    """The pairs with the final answer in place of a worked solution, where nearly all have a mark before it; and what
    was done."""
    for read, what in _READINGS:
        marked = [(pair, read(pair.answer)) for pair in known]
        with_mark = [replace(pair, answer=answer) for pair, answer in marked if answer]
        if len(with_mark) >= MOST * len(known):
            return with_mark, what
    return list(known), ""


def _after_marks(text: str) -> str | None:
    """The answer of GSM8K's form, `… #### 42`."""
    found = re.search(r"####\s*(\S[^\n]*?)\s*$", text)
    return found[1] if found else None


_READINGS: list[tuple[Callable[[str], str | None], str]] = [
    (_after_marks, "what follows the last ####"),
    (last_boxed, "what is in the last \\boxed{}"),
]


def _pair(row: Row, roles: Roles, name: str, taken: set[str]) -> Pair:
    id = _first(row, "id") or f"{name}-{row.index}"
    while id in taken:
        id += f"-{row.index}"
    question = _first(row, roles.question.name)
    material = [text for column in roles.material if question.strip() and (text := _first(row, column)).strip()]
    answer, *others = texts(field_of(row.data, roles.answer.name)) or ("",)
    meta = {"alt_answers": others} if others else {}
    meta |= {key: row.data[key] for key in KEPT if row.data.get(key) not in (None, "", [])}
    return Pair(id, "\n\n".join([question, *material]), answer, _choices(row, roles.choices), meta)


def _first(row: Row, column: str) -> str:
    return next(iter(texts(field_of(row.data, column))), "")


def _choices(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(said for name in names for text in texts(field_of(row.data, name)) if (said := text.strip()))
