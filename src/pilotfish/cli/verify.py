"""`pilotfish verify FILE.jsonl`: judge rows of {"gold", "pred"}, one JSON row out for each, in the order of the input.

A verdict is written as soon as it and all before it are there, also while the input is still being written. A row that
cannot be judged gets `correct: null` and the reason, with the number of its line; the others are not touched by it.
"""

from __future__ import annotations

import gzip
import json
import queue
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pilotfish.cli.console import say_error
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Traceback

if TYPE_CHECKING:
    from pilotfish.task import Task
    from pilotfish.verify import Verdict, VerifierPool

AHEAD = 1024
"""Rows that may wait for their verdicts."""

_Waiting = queue.Queue["Future[Verdict] | Exception | None"]


class _BadInput(Exception):
    """The rest of the input cannot be read."""


class _BadRow(ValueError):
    """A row that cannot be judged; says why."""


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines (.jsonl, .jsonl.gz); - is standard input.")],
    verifier: Annotated[str, typer.Option(help="maths, choice, exact, reasoning_gym, or FILE.py:FUNCTION.")] = "maths",
    form: Annotated[str, typer.Option(help="Where the answer stands: free, or answer_tag.")] = "free",
    traceback: Traceback = False,
) -> None:
    """Judge rows of {"gold", "pred"}.

    Each gets a JSON row with "correct" (true, false, null), "extracted" and "why", in the order of the input, and a
    "reward" where it lies between 0 and 1.
    """
    with one_line(traceback):
        _check(verifier, form)
        counts = {True: 0, False: 0, None: 0}
        with _lines(file) as lines:
            for verdict in verdicts(lines, verifier, form):
                counts[verdict.correct] += 1
                partly = {} if verdict.reward in (0, 1, None) else {"reward": verdict.reward}
                _write({"correct": verdict.correct, **partly, "extracted": verdict.extracted, "why": verdict.why})
        if sys.stderr.isatty():
            say_error(
                f"{sum(counts.values())} rows: {counts[True]} right, {counts[False]} wrong, {counts[None]} not judged"
            )


def verdicts(lines: Iterable[bytes], verifier: str, form: str = "free") -> Iterator[Verdict]:
    """Verdicts of JSON lines, in their order; empty lines have none."""
    from pilotfish.verify import VerifierPool

    waiting: _Waiting = queue.Queue(maxsize=AHEAD)
    with VerifierPool() as pool:
        # The reader is a thread of its own: a verdict must not wait for the next line of a slow input.
        judge = partial(_submitted, pool, verifier, form)
        threading.Thread(target=_read, args=(lines, waiting, judge), daemon=True, name="pilotfish-read").start()
        while (given := waiting.get()) is not None:
            if isinstance(given, _BadInput):
                raise ValueError(str(given))
            if isinstance(given, Exception):
                raise given
            yield given.result()


def _read(lines: Iterable[bytes], waiting: _Waiting, judge: Callable[[int, bytes], Future[Verdict]]) -> None:
    number = 0
    try:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                waiting.put(judge(number, line))
        waiting.put(None)
    except (OSError, EOFError, zlib.error) as error:
        waiting.put(_BadInput(f"the input is damaged or unreadable after line {number} ({error})"))
    except Exception as error:  # raised again where the verdicts are taken
        waiting.put(error)


def _submitted(pool: VerifierPool, verifier: str, form: str, number: int, line: bytes) -> Future[Verdict]:
    from pilotfish.verify import Verdict

    try:
        return pool.submit(*_row(line, verifier), form)
    except ValueError as error:  # _BadRow, or a field that the verifier cannot read
        refused: Future[Verdict] = Future()
        refused.set_result(Verdict(None, why=f"line {number}: {error}"))
        return refused


def _row(line: bytes, verifier: str) -> tuple[Task, str]:
    from pilotfish.task import Task

    row = _object(line)
    choices, meta = row.get("choices") or [], row.get("meta") or {}
    if not isinstance(choices, list):
        raise _BadRow("choices is no list of options")
    if not isinstance(meta, dict):
        raise _BadRow("meta is no JSON object")
    options = tuple(str(option) for option in choices)
    gold, pred = _text(row, "gold"), _text(row, "pred")
    if not gold.strip():
        raise _BadRow("gold is empty")
    question = str(row.get("question") or "")
    return Task(str(row.get("id", "")), question, gold, verifier, choices=options, meta=meta), pred


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _BadRow(f"not UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise _BadRow(f"not JSON ({getattr(error, 'msg', error)})") from error
    if not isinstance(row, dict):
        raise _BadRow('not a JSON object with "gold" and "pred"')
    return row


def _text(row: dict[str, Any], name: str) -> str:
    if name not in row:
        raise _BadRow(f"no {name!r} in it (it has: {', '.join(map(str, row)) or 'nothing'})")
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value in (inf, -inf) or value != value:
        raise _BadRow(f"{name!r} is no text but {json.dumps(value)}")
    return str(value)


def _write(row: dict[str, Any]) -> None:
    """UTF-8; half of a surrogate pair is written as the escape that JSON has for it."""
    sys.stdout.buffer.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


@contextmanager
def _lines(file: Path) -> Iterator[Iterable[bytes]]:
    if str(file) == "-":
        # Not sys.stdin's own buffer: at exit the interpreter closes that one, and fails where a thread is reading it.
        # Nor is this one closed: that would wait for the reader, which an interrupt leaves waiting for the next line.
        yield open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
        return
    with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) if file.suffix == ".gz" else raw as opened:
        yield opened


def _check(verifier: str, form: str) -> None:
    from pilotfish.verifier import BY_MEMBER, check_name
    from pilotfish.verify import FORMS

    if verifier in BY_MEMBER:
        raise ValueError(f"--verifier {verifier}: it asks a member of a team; `pilotfish eval` of a recipe seats one")
    check_name(verifier)
    if form not in FORMS:
        raise ValueError(f"--form {form}: there is no such form; use one of {', '.join(FORMS)}")
