"""A task: a question, its gold answer, and the name of the verifier that judges it. And loading them.

In Python (a recipe names its sources by the same fields):

    load_tasks("math500")
    load_tasks({"source": "math8k", "path": "data/math8k.jsonl.gz", "limit": 500})
    load_tasks({"source": "gym:chain_sum", "size": 200, "seed": 1, "options": {"max_terms": 3}})
    load_tasks({"source": "mine.jsonl", "question": "problem", "answer": "letter", "verifier": "choice"})
    load_tasks({"source": "bbh", "subjects": ["date_understanding", "navigate"]})
    load_tasks("hf:owner/name", split="validation")
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from pydantic import ValidationError

from pilotfish.benchmarks import BOXED, LETTER, AnswerForm
from pilotfish.rows import Row, TaskError, field_of
from pilotfish.source import TaskSource, check_subjects, read_source
from pilotfish.team import Message
from pilotfish.verifier import BUILT_IN, JudgeConfig, MemberVerifier

__all__ = ["Task", "TaskError", "TaskSource", "load_tasks"]

MARKS = (") ", ". ", ": ", "] ")
"""What may stand between the letter of an option and its text."""


@dataclass(frozen=True, slots=True)
class Task:
    """One item of a benchmark or a training set."""

    id: str
    question: str
    """As the source has it, with the lettered options below it where a multiple choice does not show them itself; never
    formatted into a template twice, so braces and percent signs survive."""
    answer: str
    """The gold answer, as the verifier reads it."""
    verifier: str = "maths"
    """`maths`, `choice`, `exact`, `reasoning_gym`, `judge`, `reward_model`, or one of the user's own by its name."""
    instruction: str = ""
    """How the answer is to be written, for the solving prompt: `… put your final answer within \\boxed{}`."""
    choices: tuple[str, ...] = ()
    """The options of a multiple-choice question, in the order of their letters; for `exact`, the few words that may be
    the answer."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What the source tells beside: `level`, `subject`, `alt_answers` (other accepted gold answers), and for
    reasoning-gym the `dataset` name and `entry` its scorer needs."""
    judge: MemberVerifier | None = None
    """Where a member judges: who, and by what."""
    context: tuple[Message, ...] = ()
    """What was said before the question, where it is the last of a conversation: stands in front of every call."""


def load_tasks(
    source: str | Path | Mapping[str, Any] | TaskSource,
    *,
    limit: int | None = None,
    shuffle_seed: int | None = None,
    split: str | None = None,
    size: int | None = None,
    seed: int | None = None,
    path: str | Path | None = None,
) -> list[Task]:
    """Tasks of a source, in the order of the release unless `shuffle_seed` is given.

    Args:
        source: a benchmark's name, `gym:NAME`, `hf:OWNER/NAME`, a `.jsonl`, `.csv` or `.parquet` file, or a
            `TaskSource` (or a mapping that reads as one) for anything beyond.
        limit: at most so many tasks: the first, or a sample where `shuffle_seed` is given.
        shuffle_seed: shuffle by this seed before the limit is applied.
        split: the split of a benchmark or hub data set.
        size: how many items reasoning-gym makes.
        seed: reasoning-gym's seed.
        path: a local file or folder that stands in for the hub.

    Raises:
        TaskError: a source that cannot be read, an empty question or answer, or an id that occurs twice; the message
            names the row.
    """
    given = {"limit": limit, "shuffle_seed": shuffle_seed, "split": split, "size": size, "seed": seed, "path": path}
    spec = _specified(source, {key: value for key, value in given.items() if value is not None})
    tasks = _selected(list(_tasks(spec)), spec)
    _warn_of_repeats(tasks, spec)
    return tasks


def _specified(source: str | Path | Mapping[str, Any] | TaskSource, given: dict[str, Any]) -> TaskSource:
    if isinstance(source, TaskSource):
        fields: Mapping[str, Any] = source.model_dump(exclude_unset=True)
    else:
        fields = source if isinstance(source, Mapping) else {"source": str(source)}
    try:
        return TaskSource.model_validate({**fields, **given})
    except ValidationError as error:
        parts = (f"{'.'.join(map(str, part['loc']))} {part['msg']}".strip() for part in error.errors())
        raise TaskError("; ".join(part.removeprefix("Value error, ") for part in parts)) from error


def _selected(tasks: list[Task], spec: TaskSource) -> list[Task]:
    if not tasks:
        of = [f"{name} {list(wanted)}" for name in ("levels", "subjects") if (wanted := getattr(spec, name))]
        raise TaskError(f"{spec.source}: no tasks" + (f" of {' and '.join(of)}" if of else ""))
    if spec.shuffle_seed is not None:
        random.Random(spec.shuffle_seed).shuffle(tasks)
    return tasks[: spec.limit]


def _warn_of_repeats(tasks: list[Task], spec: TaskSource) -> None:
    repeats = len(tasks) - len({" ".join(task.question.split()) for task in tasks})
    if repeats:
        warnings.warn(f"{spec.source}: {repeats} of {len(tasks)} tasks repeat an earlier question", stacklevel=3)


def _tasks(spec: TaskSource) -> Iterator[Task]:
    """All tasks of a source that are of the wanted levels and subjects; every row is checked, wanted or not."""
    seen: dict[str, str] = {}
    subjects: set[str] = set()
    for row in read_source(spec):
        task = _task(row, spec)
        if task.id in seen:
            raise TaskError(f"{row.where}: the id {task.id!r} was already used at {seen[task.id]}; ids must differ")
        seen[task.id] = row.where
        subjects.add(str(task.meta.get("subject", "")))
        if _is_wanted(task, spec):
            yield task
    check_subjects(spec, subjects - {""})


def _is_wanted(task: Task, spec: TaskSource) -> bool:
    of_level = not spec.levels or _level(task) in spec.levels
    return of_level and (not spec.subjects or str(task.meta.get("subject", "")) in spec.subjects)


def _task(row: Row, spec: TaskSource) -> Task:
    own_id = field_of(row.data, spec.id)
    form = _answer_form(row, spec)
    choices = _choices(row, spec)
    names = {spec.id, spec.question, spec.answer, spec.choices}
    gold = field_of(row.data, spec.answer)
    question = _text(row, spec.question, field_of(row.data, spec.question))
    if form.verifier == "choice" and choices:
        gold = gold if gold in (None, "") else _letter(row, gold, choices)
        question = _with_options(question, choices)
    task = Task(
        id=f"{spec.name}-{row.index}" if own_id is None else str(own_id),
        question=question,
        answer=_gold(row, spec, gold),
        verifier=form.verifier,
        instruction=form.instruction,
        choices=choices,
        meta={key: value for key, value in row.data.items() if key not in names and _is_plain(value)},
        judge=spec.verifier if isinstance(spec.verifier, MemberVerifier) else None,
    )
    _check_meta(row, task)
    return task


def _answer_form(row: Row, spec: TaskSource) -> AnswerForm:
    """What the source says, else what the benchmark has, else what suits the kind of source."""
    if spec.benchmark:
        own = spec.benchmark.answer_form(row)
    else:
        own = AnswerForm("reasoning_gym" if spec.kind == "gym" else "maths", BOXED if _is_ruled(spec) else "")
    named = spec.verifier.name if isinstance(spec.verifier, MemberVerifier) else spec.verifier
    verifier = named or own.verifier
    instruction = LETTER if verifier == "choice" else own.instruction
    return AnswerForm(verifier, instruction if spec.instruction is None else spec.instruction)


def _is_ruled(spec: TaskSource) -> bool:
    """Whether answers are compared with a gold one by a built-in rule; other verifiers may do without one."""
    return spec.verifier is None or spec.verifier in BUILT_IN


def _gold(row: Row, spec: TaskSource, gold: Any) -> str:
    """The gold answer; empty where there is none, no other field is named for it, and the verifier can do without."""
    absent = gold is None and spec.answer == "answer" and not _is_ruled(spec)
    return "" if absent else _text(row, spec.answer, gold)


def _choices(row: Row, spec: TaskSource) -> tuple[str, ...]:
    value = field_of(row.data, spec.choices)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(option, str | int | float) for option in value):
        raise TaskError(f"{row.where}: {spec.choices!r} is no list of options")
    return tuple(str(option) for option in value)


def _letter(row: Row, gold: Any, choices: tuple[str, ...]) -> str:
    """The letter of a gold answer that is a letter, a position from 0, or an option's own text."""
    if len(choices) > len(ascii_uppercase):
        raise TaskError(f"{row.where}: {len(choices)} choices, and only {len(ascii_uppercase)} letters; leave some out")
    letters = list(ascii_uppercase[: len(choices)])
    if isinstance(gold, int) and 0 <= gold < len(choices):
        return letters[gold]
    text = str(gold).strip()
    if (letter := text.strip("().").upper()) in letters:
        return letter
    if text in choices:
        return letters[choices.index(text)]
    raise TaskError(
        f"{row.where}: the answer {text!r} is neither a letter, a position nor a text of the {len(choices)} choices"
    )


def _with_options(question: str, choices: tuple[str, ...]) -> str:
    """The question as it is where it shows each option with its letter, else with the options below it."""
    lettered = list(zip(ascii_uppercase, (option.strip() for option in choices), strict=False))
    if all(any(f"{letter}{mark}{option}" in question for mark in MARKS) for letter, option in lettered):
        return question
    return "\n".join([question.rstrip(), *(f"{letter}. {option}" for letter, option in lettered)])


def _text(row: Row, name: str, value: Any) -> str:
    if value is None and name not in row.data:
        fields = ", ".join(row.data) or "none"
        raise TaskError(f"{row.where}: no {name!r} (its fields: {fields}); say in the source which field it is")
    if value is not None and not isinstance(value, str | int | float):
        raise TaskError(f"{row.where}: {name!r} is {type(value).__name__}, not text")
    text = "" if value is None else str(value)
    if not text.strip():
        raise TaskError(f"{row.where}: {name!r} is empty; fill it in or remove the row")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise TaskError(f"{row.where}: {name!r} holds half of a surrogate pair, which no text file can store")
    return text


def _check_meta(row: Row, task: Task) -> None:
    others = task.meta.get("alt_answers", [])
    if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
        raise TaskError(f"{row.where}: 'alt_answers' is no list of strings")
    if task.verifier == "reasoning_gym" and not {"dataset", "entry"} <= task.meta.keys():
        raise TaskError(f"{row.where}: the verifier reasoning_gym needs the fields 'dataset' and 'entry'")
    if isinstance(task.judge, JudgeConfig) and not str(task.meta.get("rubric") or task.judge.rubric or "").strip():
        raise TaskError(f"{row.where}: nothing to judge by; give verifier.rubric, or the row a field 'rubric'")


def _level(task: Task) -> int | None:
    """The level as a number, also from the form `Level 5`."""
    digits = re.search(r"\d+", str(task.meta.get("level", "")))
    return int(digits[0]) if digits else None


def _is_plain(value: Any) -> bool:
    """Whether a value can stand in a journal as it is; nulls, images and dates cannot."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and (part is None or _is_plain(part)) for key, part in value.items())
    if isinstance(value, list):
        return all(part is None or _is_plain(part) for part in value)
    return isinstance(value, str | int | float | bool)
