"""Which column of a user's rows is the question, which the answer, and which the options.

roles = choose(columns(rows), {})
roles.question.name, roles.question.why          # "problem", "by its name"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from pilotfish.rows import TaskError, field_of
from pilotfish.start.values import is_chat, texts

QUESTIONS = (
    *("question", "problem", "prompt", "query", "instruction", "input", "task", "text", "message", "messages", "body"),
    *("问题", "题目", "提问", "指令", "输入"),
)
ANSWERS = (
    *("answer", "final_answer", "gold", "gold_answer", "ground_truth", "label", "target", "expected", "solution"),
    *("output", "response", "reference", "completion", "answers"),
    *("答案", "标准答案", "参考答案", "最终答案", "回答", "标签", "输出"),
)
QUALIFIERS = {
    *("correct", "right", "true", "gold", "final", "expected", "reference", "target", "full", "user"),
    *("text", "key", "statement", "string", "value"),
}
"""What may stand beside these names: `Expected Answer`, `answerKey`, `question_text`."""
MATERIAL = ("context", "passage", "input", "background", "材料", "背景", "上下文", "输入")
"""What a question is about, in a column of its own."""
CHOICES = ("choices", "options", "选项")
INNER = ("text", "value")
"""Names that say less than that of the field around them."""
IDS = re.compile(r"(?:.*_)?(?:id|uid|uuid|index|idx|nr)||编号|序号")
"""Of words; empty of a name that is signs alone, `#`."""
OPTION = re.compile(r"(?:(?:option|choice|opt|选项)_?)?([a-j])")
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
    """Mean characters of its values, of lists of the first one; 0 where they are no text and no number."""
    listed: bool
    """Whether its values are lists, and no chats."""

    @property
    def above(self) -> str:
        """The path that it stands below."""
        return self.name.strip(". ").rpartition(".")[0]

    @cached_property
    def word(self) -> str:
        """The name without its path, in small letters, `_` between its parts; of `answers.text` it is `answers`."""
        own, outer = _word(self.name.strip(". ").rpartition(".")[2]), _word(self.above.rpartition(".")[2])
        return outer if own in INNER and outer in (*QUESTIONS, *ANSWERS, *CHOICES) else own


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
    material: tuple[str, ...] = ()
    """Columns with what the question is about, which go below it."""

    @property
    def used(self) -> tuple[str, ...]:
        """All of these columns."""
        return (self.question.name, *self.material, self.answer.name, *self.choices)


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
    left = [column for column in known if column.length and not is_option(column, choices)]
    often = [column for column in left if column.filled >= 0.5]
    question = _named(named, "question") or _question(often, named.get("answer"))
    answer = _named(named, "answer") or _answer(often, question.name)
    material = () if "question" in named else _material(left, (question.name, answer.name))
    return Roles(question, answer, choices, material)


def _word(name: str) -> str:
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).strip("_").lower()


def _names(row: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, dict) and value:
            yield from _names(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def _column(name: str, values: Sequence[Any]) -> Column:
    said = [(value, found[0]) for value in values if (found := texts(value)) and found[0].strip()]
    listed = bool(said) and all(isinstance(value, list) and not is_chat(value) for value, _ in said)
    return Column(name, len(said) / len(values), fmean(len(text) for _, text in said) if said else 0.0, listed)


def _choices(known: Sequence[Column]) -> tuple[str, ...]:
    for column in known:
        if column.listed and column.word in CHOICES:
            return (column.name,)
    return next(filter(None, (_lettered(known, above) for above in {column.above: None for column in known})), ())


def _lettered(known: Sequence[Column], above: str) -> tuple[str, ...]:
    """Columns of one path that hold one option each."""
    own = [(OPTION.fullmatch(column.word), column.name) for column in known if column.above == above]
    lettered = {match[1]: name for match, name in own if match}
    run = "abcdefghij"[: len(lettered)]
    return tuple(lettered[letter] for letter in run) if len(run) >= 2 and set(lettered) == set(run) else ()


def is_option(column: Column, choices: Sequence[str]) -> bool:
    """Whether a column holds options or, as does `choices.label` beside `choices.text`, their letters."""
    nested = {name.rpartition(".")[0] for name in choices if "." in name}
    return column.name in choices or column.above in nested


def _named(named: Mapping[str, str], role: str) -> Role | None:
    return Role(named[role], f"--{role}") if role in named else None


def _question(left: Sequence[Column], answer: str | None) -> Role:
    texts = [column for column in left if column.name != answer and not column.listed and not _is_id(column)]
    if found := _by_name(texts, QUESTIONS):
        return found
    by_length = sorted((column for column in texts if _ranked(column, ANSWERS) is None), key=lambda one: -one.length)
    if by_length and (len(by_length) == 1 or by_length[0].length >= LONGER * by_length[1].length):
        return Role(by_length[0].name, f"the longest text, {by_length[0].length:.0f} characters on average")
    raise Undecided("question", [column.name for column in by_length[:5]], [column.name for column in left])


def _answer(left: Sequence[Column], question: str) -> Role:
    others = [column for column in left if column.name != question and not _is_id(column)]
    if found := _by_name(others, ANSWERS):
        return found
    if len(others) == 1:
        return Role(others[0].name, "the only other column")
    raise Undecided("answer", [column.name for column in others], [column.name for column in left])


def _material(left: Sequence[Column], taken: Sequence[str]) -> tuple[str, ...]:
    return tuple(one.name for one in left if one.word in MATERIAL and one.name not in taken and not one.listed)


def _is_id(column: Column) -> bool:
    return IDS.fullmatch(column.word) is not None


def _by_name(those: Sequence[Column], names: Sequence[str]) -> Role | None:
    ranks = {column.name: rank for column in those if (rank := _ranked(column, names)) is not None}
    ranked = sorted(ranks, key=lambda name: ranks[name])
    if not ranked:
        return None
    more = ", ".join(ranked[1:])
    return Role(ranked[0], f"by its name; {more} may be meant too" if more else "by its name")


def _ranked(column: Column, names: Sequence[str]) -> int | None:
    """The place of a column's name among some, its very name before one with a qualifier; None if it is not one."""
    if column.word in names:
        return names.index(column.word)
    bare = [part for part in column.word.split("_") if part in names]
    rest = set(column.word.split("_")) - set(bare)
    return len(names) + min(map(names.index, bare)) if bare and rest <= QUALIFIERS else None
