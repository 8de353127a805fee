"""reasoning-gym: tasks made on the spot from a name, a size, a seed and options, judged by the gym's own scorers.

`gym:chain_sum` is a source like any other: `load_tasks({"source": "gym:chain_sum", "size": 100, "seed": 1})`. Each task
carries the data set's name and the entry its scorer needs in `meta`. Item i is made from the number seed + i, so two
sets whose seeds are less than `size` apart share items.

    python -m pilotfish.gym NAME SIZE SEED OPTIONS     # rows as JSON lines

Some data sets draw from Python's sets of strings, whose order is another in each process; they are made by this
command, in a process where it is always the same.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from pilotfish.rows import Row, TaskError

EXAMPLE_KEYS = ("example_answer", "example_correct_answer", "possible_answer")
"""Where a data set with many right answers keeps one of them; its `answer` is then null."""

BY_HASH = {"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder"}
"""Data sets that depend on the order of Python's sets (reasoning-gym 0.1.25)."""


def read_gym(name: str, *, size: int, seed: int, options: Mapping[str, Any]) -> Iterator[Row]:
    """Rows of a reasoning-gym data set: id, question, answer, and `dataset` and `entry` for the scorer.

    Args:
        name: the data set's name, such as `chain_sum`.
        size: how many items.
        seed: item i is made from seed + i.
        options: fields of the data set's configuration, such as `min_terms`.

    Raises:
        TaskError: no such data set or option, a value it does not take, no gold answer, or an entry that its scorer
            cannot use once it has been through JSON.
    """
    label = f"gym:{name}"
    factory = _factory(label)
    _check_names(factory, label, name, options)
    if name in BY_HASH and sys.flags.hash_randomization:
        return _made_elsewhere(label, name, size, seed, options)
    try:
        dataset = factory.create_dataset(name, size=size, seed=seed, **options)
    except Exception as error:  # its configurations complain with assert, ValueError and TypeError alike
        raise TaskError(f"{label}: the options {dict(options)} are not accepted ({error})") from error
    tag = f"{name}-{_digest(options)}{seed}"
    return _rows(dataset, factory, label, name, tag)


def _made_elsewhere(label: str, name: str, size: int, seed: int, options: Mapping[str, Any]) -> Iterator[Row]:
    command = [sys.executable, "-m", "pilotfish.gym", name, str(size), str(seed), json.dumps(options)]
    made = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True)
    if made.returncode:
        said = made.stderr.strip().rpartition("\n")[2]
        raise TaskError(said or f"{label}: the process that makes it was ended ({made.returncode})")
    for index, line in enumerate(made.stdout.splitlines()):
        yield Row(f"{label} item {index}", index, json.loads(line))


def _rows(dataset: Any, factory: ModuleType, label: str, name: str, tag: str) -> Iterator[Row]:
    for index in range(len(dataset)):
        where = f"{label} item {index}"
        original = dataset[index]
        answer = _gold(original, where)
        entry = _through_json(original, where)
        if index == 0:
            _check_scorer(factory, label, name, answer, original, entry)
        data = {"id": f"{tag}-{index}", "question": entry["question"], "answer": answer}
        yield Row(where, index, {**data, "dataset": name, "entry": entry})


def _factory(label: str) -> ModuleType:
    try:
        import reasoning_gym.factory as factory
    except ImportError as error:
        raise TaskError(f"{label}: reasoning-gym is missing; pip install 'pilotfish[tasks]'") from error
    module: ModuleType = factory
    return module


def _check_names(factory: ModuleType, label: str, name: str, options: Mapping[str, Any]) -> None:
    if name not in factory.DATASETS:
        near = difflib.get_close_matches(name, factory.DATASETS, n=3) or sorted(factory.DATASETS)[:3]
        raise TaskError(f"{label}: reasoning-gym has no {name!r}; near names: {', '.join(near)}")
    known = {field.name for field in dataclasses.fields(factory.DATASETS[name][1])} - {"size", "seed"}
    if unknown := sorted(set(options) - known):
        raise TaskError(f"{label}: no option {unknown[0]!r}; its options: {', '.join(sorted(known))}")


def _gold(entry: dict[str, Any], where: str) -> str:
    metadata = entry.get("metadata") or {}
    for value in (entry.get("answer"), *(metadata.get(key) for key in EXAMPLE_KEYS)):
        if value is not None and str(value).strip():
            return value if isinstance(value, str) else json.dumps(value)
    raise TaskError(f"{where}: this data set gives no gold answer, so it cannot be used as tasks")


def _through_json(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """The entry as it will be after a journal or a pipe to another process: tuples become lists, keys strings."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(entry))
    except (TypeError, ValueError) as error:
        raise TaskError(f"{where}: the entry does not fit into JSON ({error})") from error
    return plain


def _check_scorer(
    factory: ModuleType, label: str, name: str, answer: str, original: dict[str, Any], entry: dict[str, Any]
) -> None:
    score = factory.get_score_answer_fn(name)
    before, after = score(answer=answer, entry=original), score(answer=answer, entry=entry)
    if before != after:
        raise TaskError(
            f"{label}: its scorer gives the gold answer {before:g}, and {after:g} once the entry has been through "
            "JSON, so it cannot be used as tasks"
        )


def _digest(options: Mapping[str, Any]) -> str:
    """Tells apart the ids of sets that differ in options only; empty for none."""
    if not options:
        return ""
    return hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode()).hexdigest()[:6] + "-"


def main() -> None:
    name, size, seed, options = sys.argv[1:]
    try:
        for row in read_gym(name, size=int(size), seed=int(seed), options=json.loads(options)):
            print(json.dumps(row.data))
    except TaskError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
