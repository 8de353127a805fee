"""`pilotfish tasks`: the built-in benchmarks; `pilotfish tasks SOURCE`: what a source holds, checked row by row."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pilotfish.cli.console import out, printable
from pilotfish.cli.errors import one_line
from pilotfish.cli.options import Setting, Traceback, settings

if TYPE_CHECKING:
    from pilotfish.source import TaskSource
    from pilotfish.task import Task

SHOWN = 400
"""Characters of a question that are shown."""


def tasks(
    source: Annotated[
        str | None, typer.Argument(help="A benchmark, gym:NAME, hf:OWNER/NAME, or a file. Lists the benchmarks if left out.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many tasks to show.")] = 3,
    set: Setting = None,
    traceback: Traceback = False,
) -> None:
    """List the benchmarks, or read a source: its first tasks, and how many there are by level and subject."""
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
    from pilotfish.source import TaskSource

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head, justify in (("name", "left"), ("tasks", "right"), ("judged by", "left"), ("place", "left"), ("licence", "left")):
        table.add_column(head, justify=justify, overflow="fold", no_wrap=head in ("name", "judged by"))  # type: ignore[arg-type]
    for name, known in BENCHMARKS.items():
        place = _local_copy(TaskSource(source=name)) or f"hf:{known.hub}"
        table.add_row(name, f"{known.size:,}", known.verifier, Text(place), Text(known.licence))
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
            else f"{'.'.join(map(str, part['loc']))} {part['msg']}".strip().removeprefix("source ").removeprefix("Value error, ")
            for part in error.errors()
        )
        raise TaskError("; ".join(parts)) from error


def task_lines(task: Task) -> Text:
    """A task as a reader wants it: id, question, options, gold answer."""
    question = printable(task.question.strip())
    shown = question if len(question) <= SHOWN else f"{question[:SHOWN].rstrip()} … ({len(question):,} characters)"
    text = Text(printable(task.id), style="bold")
    text.append("\n  " + shown.replace("\n", "\n  "), style="not bold")
    for number, option in enumerate(task.choices):
        text.append(f"\n  ({chr(ord('A') + number)}) {printable(option)}", style="not bold")
    return text.append(f"\n  = {printable(task.answer)}\n", style="not bold green")


def counts(found: list[Task]) -> Padding:
    """How many tasks there are, by what tells them apart."""
    verifiers = Counter(task.verifier for task in found)
    lines = [f"{len(found):,} tasks, judged by {', '.join(verifiers)}"]
    for kind in ("level", "subject"):
        by = Counter(str(task.meta[kind]) for task in found if kind in task.meta)
        if by:
            shown = sorted(by.items()) if kind == "level" else by.most_common(20)
            more = f", and {len(by) - len(shown)} more" if len(by) > len(shown) else ""
            lines.append(f"by {kind}: " + ", ".join(f"{printable(name)} {count:,}" for name, count in shown) + more)
    return Padding(Text("\n".join(lines)), (0, 0))


def _local_copy(spec: TaskSource) -> str | None:
    """The file in $PILOTFISH_DATA that stands in for the hub, if there is one."""
    import os
    from pathlib import Path

    from pilotfish.source import DATA_VARIABLE

    folder = os.environ.get(DATA_VARIABLE)
    known = spec.benchmark
    found = known.local_file(Path(folder).expanduser(), known.split) if folder and known else None
    return str(found) if found else None
