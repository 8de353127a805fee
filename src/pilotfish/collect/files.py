"""How stored answers are laid down in files: JSON lines, packed or not, or Parquet."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pilotfish.recipe import RecipeError
from pilotfish.rows import JSON_LINES, read_file

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

SUFFIXES = (*JSON_LINES, ".parquet")
BATCH = 4096
"""Rows of a Parquet file that are in memory together."""


def check_name(file: Path) -> None:
    """Raises RecipeError: the file's name does not say how it is laid out."""
    if not file.name.endswith(SUFFIXES):
        raise RecipeError(f"{file}: stored answers are read and written as {', '.join(SUFFIXES)}; name the file so")


def write(file: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> int:
    """Write rows that have these columns, all or none; returns how many.

    Raises:
        RecipeError: see `check_name`.
    """
    check_name(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.part")
    with partial.open("wb") as opened:
        if file.suffix == ".parquet":
            count = _write_parquet(opened, rows, columns)
        elif file.suffix == ".gz":
            with gzip.GzipFile(fileobj=opened, mode="wb", mtime=0) as packed:
                count = _write_lines(packed, rows)
        else:
            count = _write_lines(opened, rows)
    os.replace(partial, file)
    return count


def read(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file.

    Raises:
        RecipeError: see `check_name`; or a Parquet file that cannot be read.
        TaskError: JSON lines that cannot be read.
    """
    check_name(file)
    return _read_parquet(file) if file.suffix == ".parquet" else (row.data for row in read_file(file))


def _write_lines(file: IO[bytes] | gzip.GzipFile, rows: Iterable[Mapping[str, Any]]) -> int:
    return sum(bool(file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")) for row in rows)


def _write_parquet(file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> int:
    import pyarrow
    import pyarrow.parquet  # type: ignore[import-untyped]

    count, rest, schema = 0, iter(rows), _schema(columns)
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(rest, BATCH)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def _read_parquet(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(BATCH):
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise RecipeError(f"{file}: not a Parquet file that can be read ({error}); export it again") from error


def _schema(columns: Sequence[str]) -> pyarrow.Schema:
    import pyarrow

    text, whole, number = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    counts = dict.fromkeys(("prompt", "completion", "cached", "reasoning"), whole)
    sampling = {"temperature": number, "top_p": number, "max_tokens": whole, "stop": pyarrow.list_(text)}
    nested = {
        "messages": pyarrow.list_(pyarrow.struct({"role": text, "content": text})),
        "sampling": pyarrow.struct(sampling),
        "tokens": pyarrow.struct({**counts, "estimated": pyarrow.bool_()}),
    }
    plain = dict.fromkeys(("set", "round", "copy"), whole) | dict.fromkeys(("seconds", "reward"), number)
    return pyarrow.schema([(name, {**nested, **plain}.get(name, text)) for name in columns])
