"""Which column of a user's rows is the question, which the answer, and which the options.

roles = choose(columns(rows), {})
roles.question.name, roles.question.why          # "problem", "by its name"
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pilotfish.rows import TaskError, field_of

QUESTIONS = ("question", "problem", "prompt", "query", "instruction", "input", "task", "text", "message", "body")
ANSWERS = (
    "answer",
    "final_answer",
    "gold",
    "gold_answer",
    "ground_truth",
    "label",
    "target",
    "expected",
    "solution",
    "output",
    "response",
    "reference",
    "completion",
)
CHOICES = ("choices", "options")
IDS = re.compile(r"(?:.*[_. -])?(?:id|uid|uuid|index|idx|nr)|#", re.IGNORECASE)
OPTION = re.compile(r"(?:(?:option|choice|opt)[_ -]?)?([A-Ja-j])")
"""A column that holds one option, by its letter: `A`, `option_b`."""
LONGER = 2.0
"""So many times longer than any other text, a column is taken for the question."""


@dataclass(frozen=True)
class Column:
    """One column as it is filled."""

    name: str
    """A dotted path where it is nested."""
    filled: float
    """Share of the rows that have a value."""
    length: float
    """Mean characters of its values; 0 where they are no text and no number."""
    listed: bool
    """Whether its values are lists."""

    @property
    def word(self) -> str:
        """The name without its path, in small letters."""
        return self.name.rpartition(".")[2].strip().lower().replace(" ", "_").replace("-", "_")


@dataclass(frozen=True)
class Role:
    """A column and why it was taken."""

    name: str
    why: str


@dataclass(frozen=True)
class Roles:
    """What the columns are."""

    question: Role
    answer: Role
    choices: tuple[str, ...] = ()
    """A column of lists, or several columns of one option each; empty where there are none."""


class Undecided(TaskError):
    """Several columns may have a role, or none."""

    def __init__(self, role: str, candidates: Sequence[str], known: Sequence[str]) -> None:
        could = f"it could be {', '.join(candidates)}" if candidates else f"there are: {', '.join(known)}"
        super().__init__(f"which column is the {role}? {could}; say --{role} COLUMN")
        self.role = role
        self.candidates = list(candidates or known)


def columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """The columns of rows, in the order in which they first appear; what is nested has a dotted name."""
    names = dict.fromkeys(name for row in rows for name in _names(row))
    return [_column(name, [field_of(dict(row), name) for row in rows]) for name in names]


def choose(known: Sequence[Column], named: Mapping[str, str]) -> Roles:
    """Who plays which role.

    Args:
        known: the columns.
        named: the columns of the roles `question` and `answer` that the user has named.

    Raises:
        Undecided: it cannot be told.
        TaskError: there is no column of a name that the user gave.
    """
    for role, name in named.items():
        if name not in [column.name for column in known]:
            raise TaskError(f"--{role} {name}: no such column; there are: {', '.join(column.name for column in known)}")
    choices = _choices(known)
    left = [column for column in known if column.name not in choices and column.length and column.filled >= 0.5]
    question = _named(named, "question") or _question(left, named.get("answer"))
    answer = _named(named, "answer") or _answer(left, question.name)
    return Roles(question, answer, choices)


def _names(row: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, dict) and value:
            yield from _names(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def _column(name: str, values: Sequence[Any]) -> Column:
    filled = [value for value in values if value is not None and str(value).strip()]
    texts = [str(value) for value in filled if isinstance(value, str | int | float)]
    listed = bool(filled) and all(isinstance(value, list) for value in filled)
    return Column(name, len(filled) / len(values), fmean(map(len, texts)) if texts else 0.0, listed)


def _choices(known: Sequence[Column]) -> tuple[str, ...]:
    for column in known:
        if column.listed and column.word in CHOICES:
            return (column.name,)
    lettered = {match[1].upper(): column.name for column in known if (match := OPTION.fullmatch(column.name.strip()))}
    run = [lettered[letter] for letter in "ABCDEFGHIJ" if letter in lettered]
    return tuple(run) if len(run) >= 2 and sorted(lettered) == list("ABCDEFGHIJ"[: len(run)]) else ()


def _named(named: Mapping[str, str], role: str) -> Role | None:
    return Role(named[role], f"--{role}") if role in named else None


def _question(left: Sequence[Column], answer: str | None) -> Role:
    texts = [column for column in left if column.name != answer and not IDS.fullmatch(column.name)]
    if found := _by_name(texts, QUESTIONS):
        return found
    by_length = sorted((column for column in texts if column.word not in ANSWERS), key=lambda column: -column.length)
    if by_length and (len(by_length) == 1 or by_length[0].length >= LONGER * by_length[1].length):
        return Role(by_length[0].name, f"the longest text, {by_length[0].length:.0f} characters on average")
    raise Undecided("question", [column.name for column in by_length[:5]], [column.name for column in left])


def _answer(left: Sequence[Column], question: str) -> Role:
    others = [column for column in left if column.name != question and not IDS.fullmatch(column.name)]
    if found := _by_name(others, ANSWERS):
        return found
    if len(others) == 1:
        return Role(others[0].name, "the only other column")
    raise Undecided("answer", [column.name for column in others], [column.name for column in left])


def _by_name(those: Sequence[Column], names: Collection[str]) -> Role | None:
    ranked = [column for name in names for column in those if column.word == name]
    if not ranked:
        return None
    more = ", ".join(column.name for column in ranked[1:])
    return Role(ranked[0].name, f"by its name; {more} may be meant too" if more else "by its name")
