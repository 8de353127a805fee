"""Rows: what a source of tasks holds before it is read as tasks.

A row is a plain dict with the place it stands at (`data.jsonl:12`), so that an error can name it. Rows come from
JSON lines (`.jsonl`, `.jsonl.gz`), from parquet, or from Hugging Face datasets; reasoning-gym has its own module.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JSON_LINES = (".jsonl", ".jsonl.gz")
SUFFIXES = (*JSON_LINES, ".parquet")


class TaskError(ValueError):
    """Tasks that cannot be used as they are; the message names the place and the way out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a source."""

    where: str
    """`file:line` for JSON lines, else the source and the row's index."""
    index: int
    """Position in the source, from 0, empty lines not counted."""
    data: dict[str, Any]


def read_file(path: Path) -> Iterator[Row]:
    """Rows of a `.jsonl`, `.jsonl.gz` or `.parquet` file.

    Raises:
        TaskError: the file is missing, of another kind, damaged, or a line is not a JSON object.
    """
    if not path.is_file():
        raise TaskError(f"{path}: no such file")
    if path.name.endswith(".parquet"):
        return read_hub("parquet", split="train", data_files=str(path), label=str(path))
    if path.name.endswith(JSON_LINES):
        return _read_json_lines(path)
    raise TaskError(f"{path}: not a kind of file that is read here; use one of {', '.join(SUFFIXES)}")


def read_hub(
    name: str,
    *,
    split: str,
    config: str | None = None,
    revision: str | None = None,
    data_files: str | None = None,
    label: str | None = None,
) -> Iterator[Row]:
    """Rows of a Hugging Face dataset.

    Args:
        name: `owner/name`, a folder that `datasets.load_dataset` reads, or one of its builders.
        split: the split to read.
        config: the dataset's configuration, where it has several.
        revision: a commit or tag of the dataset, to pin it.
        data_files: one file inside the dataset, where it has no configuration for it.
        label: the name used in errors; `hf:NAME[SPLIT]` when not given.

    Raises:
        TaskError: the `datasets` package is missing, or it cannot load this.
    """
    label = label or f"hf:{name}[{split}]"
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise TaskError(f"{label}: the datasets package is missing; pip install 'pilotfish[tasks]'") from error
    try:
        dataset = load_dataset(name, config, split=split, revision=revision, data_files=data_files)
    except Exception as error:  # its errors range from OSError to its own; each means the same here
        raise TaskError(f"{label}: cannot be loaded ({type(error).__name__}: {_first_line(error)})") from error
    return (Row(f"{label} row {index}", index, dict(data)) for index, data in enumerate(dataset))


def field_of(data: dict[str, Any], name: str) -> Any:
    """The value under `name`, or under a dotted path such as `reward_model.ground_truth`; None when absent."""
    if name in data:
        return data[name]
    value: Any = data
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def _read_json_lines(path: Path) -> Iterator[Row]:
    index = 0
    for number, line in _numbered_lines(path):
        if line.strip():
            yield Row(f"{path}:{number}", index, _json_object(line, f"{path}:{number}"))
            index += 1


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield number, line
    except (EOFError, OSError, zlib.error) as error:
        raise TaskError(f"{path}: damaged or unreadable after line {number} ({_first_line(error)})") from error


def _json_object(line: bytes, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TaskError(f"{where}: not UTF-8 (byte {error.start} of the line); save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        place = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise TaskError(f"{where}: not JSON ({getattr(error, 'msg', error)}{place})") from error
    if not isinstance(data, dict):
        raise TaskError(f"{where}: a row is a JSON object, here it is {type(data).__name__}")
    return data


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "no message")[:200]
