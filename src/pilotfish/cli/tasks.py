"""`pilotfish tasks`: the built-in benchmarks; `pilotfish tasks SOURCE`: what a source holds, checked row by row."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pilotfish.cli.console import out, printable
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Setting, Traceback, settings

if TYPE_CHECKING:
    from pilotfish.benchmarks import Benchmark
    from pilotfish.source import TaskSource
    from pilotfish.task import Task

SHOWN = 400
"""Characters of a question that are shown."""


def tasks(
    source: Annotated[
        str | None,
        typer.Argument(help="A benchmark, gym:NAME, hf:OWNER/NAME, or a file. Lists the benchmarks if left out."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many tasks to show.")] = 3,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """List benchmarks, or look into a source.

    Every row of a source is checked; the first tasks are shown, then how many there are by level and subject. --set
    gives the source's options: --set split=train --set levels=[4,5].
    """
    with one_line(traceback):
        if source is None:
            out().print(benchmarks())
            return
        from pilotfish.task import load_tasks

        spec = source_of(source, settings(set))
        found = load_tasks(spec)
        for task in found[:limit]:
            out().print(task_lines(task))
        out().print(counts(found))


def benchmarks() -> Table:
    """The built-in benchmarks."""
    from pilotfish.benchmarks import BENCHMARKS

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    table.add_column("judged by", no_wrap=True)
    table.add_column("place and licence", overflow="fold")
    for name, known in BENCHMARKS.items():
        place = Text(_local_copy(known) or f"hf:{known.hub}").append(f"\n{known.licence}", style="dim")
        table.add_row(name, f"{known.size:,}", known.verifier, place)
    return table


def source_of(source: str, given: dict[str, str]) -> TaskSource:
    """A source with options, `--set split=train`.

    Raises:
        TaskError: an unknown source or option, or a value that is not YAML.
    """
    import yaml
    from pydantic import ValidationError

    from pilotfish.source import TaskSource
    from pilotfish.task import TaskError

    options: dict[str, Any] = {}
    for field, value in given.items():
        try:
            *parents, last = field.split(".")
            place = options
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = yaml.safe_load(value)
        except (yaml.YAMLError, AttributeError) as error:
            raise TaskError(f"--set {field}={value}: not a YAML value for a source's option") from error
    try:
        return TaskSource.model_validate({"source": source, **options})
    except ValidationError as error:
        known = ", ".join(TaskSource.model_fields)
        parts = (
            f"{'.'.join(map(str, part['loc']))}: no such option; there are: {known}"
            if part["type"] == "extra_forbidden"
            else f"{'.'.join(map(str, part['loc']))} {part['msg']}".strip()
            .removeprefix("source ")
            .removeprefix("Value error, ")
            for part in error.errors()
        )
        raise TaskError("; ".join(parts)) from error


def task_lines(task: Task) -> Group:
    """A task as a reader wants it: id, question, gold answer."""
    question = printable(task.question.strip())
    shown = question if len(question) <= SHOWN else f"{question[:SHOWN].rstrip()} … ({len(question):,} characters)"
    gold = f"\n= {printable(task.answer)}\n" if task.answer else "\n"
    body = Text(shown).append(gold, style="green")
    return Group(Text(printable(task.id), style="bold"), Padding(body, (0, 0, 0, 2)))


def counts(found: list[Task]) -> Text:
    """How many tasks there are, by what tells them apart."""
    verifiers = Counter(task.verifier for task in found)
    lines = [f"{len(found):,} tasks, judged by {', '.join(verifiers)}"]
    for kind in ("level", "subject"):
        by = Counter(str(task.meta[kind]) for task in found if kind in task.meta)
        if by:
            shown = sorted(by.items()) if kind == "level" else by.most_common(20)
            more = f", and {len(by) - len(shown)} more" if len(by) > len(shown) else ""
            lines.append(f"by {kind}: " + ", ".join(f"{printable(name)} ({count:,})" for name, count in shown) + more)
    return Text("\n".join(lines))


def _local_copy(known: Benchmark) -> str | None:
    """The file in $PILOTFISH_DATA that stands in for the hub, if there is one."""
    from pilotfish.source import DATA_VARIABLE

    folder = os.environ.get(DATA_VARIABLE)
    found = known.local_file(Path(folder).expanduser(), known.split) if folder else None
    return str(found) if found else None
