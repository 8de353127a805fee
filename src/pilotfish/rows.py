"""Rows: what a source of tasks holds before it is read as tasks.

A row is a plain dict with the place it stands at (`data.jsonl:12`), so that an error can name it. Rows come from
JSON lines (`.jsonl`, `.jsonl.gz`), from tables with a head (`.csv`, `.tsv`; every cell is text), from parquet, or from
Hugging Face datasets; reasoning-gym has its own module.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from pilotfish.missing import looked_in

JSON_LINES = (".jsonl", ".jsonl.gz")
TABLES = (".csv", ".tsv")
SUFFIXES = (*JSON_LINES, *TABLES, ".parquet")
LONGEST_CELL = 2**24
"""Characters."""


class TaskError(ValueError):
    """Tasks that cannot be used as they are; the message names the place and the way out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a source; None stands where it has null, NaN or an infinity."""

    where: str
    """`file:line` for JSON lines and tables, else the source and the row's index."""
    index: int
    """Position in the source, from 0, empty lines not counted."""
    data: dict[str, Any]


def read_file(path: Path) -> Iterator[Row]:
    """Rows of a `.jsonl`, `.jsonl.gz`, `.csv`, `.tsv` or `.parquet` file.

    Raises:
        TaskError: the file is missing, of another kind, damaged, a line is not a JSON object, or a row has more cells
            than the head.
    """
    if not path.is_file():
        raise TaskError(f"{path}: no such file{looked_in(path)}")
    if path.name.endswith(".parquet"):
        return read_hub("parquet", split="train", data_files=str(path), label=str(path))
    if path.name.endswith(JSON_LINES):
        return _read_json_lines(path)
    if path.name.endswith(TABLES):
        return _read_table(path)
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
    return (Row(f"{label} row {index}", index, _finite(dict(data))) for index, data in enumerate(dataset))


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
    return dict(_finite(data))


def _finite(value: Any) -> Any:
    """A value with None in place of NaN and the infinities: they stand for what a table lacks."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _read_table(path: Path) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_CELL)
    number = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = _delimiter(path, file.readline())
            file.seek(0)
            reader = csv.DictReader(file, delimiter=delimiter)
            _check_head(path, list(reader.fieldnames or ()))
            for index, cells in enumerate(reader):
                number = reader.line_num
                if None in cells:
                    raise TaskError(f"{path}:{number}: more cells than names in the head; quote those with commas")
                yield Row(f"{path}:{number}", index, {str(name): cell or "" for name, cell in cells.items()})
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not UTF-8 (after line {number}); save the file as UTF-8") from error
    except (OSError, csv.Error) as error:
        raise TaskError(f"{path}: damaged or unreadable after line {number} ({_first_line(error)})") from error


def _delimiter(path: Path, head: str) -> str:
    """What stands between the names in the head: most often a comma, in some countries a semicolon."""
    return "\t" if path.name.endswith(".tsv") else max(",;\t", key=head.count)


def _check_head(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise TaskError(f"{path}: empty; its first line has to name the columns")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise TaskError(f"{path}:1: two columns are called {twice!r}; rename one")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "no message")[:200]
