"""What a leader and its team were worth round by round, as tables: in the terminal, in Markdown, as CSV and as JSON.

    Console().print(rounds_rich(cells))

Shares are in percent with two standard errors, `61.5 ±3.1`. CSV and JSON carry the unrounded figures.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from math import isnan
from typing import Any

from rich.console import Group

from pilotfish.evaluate.rounds import LEADER, MAJORITY, Cell
from pilotfish.evaluate.table import NOTHING, Column, Section, markdown_table, percent, rich_table, without_nan

_ROUNDS_ABREAST = 5
_COLUMNS = {"share": "share, %", LEADER: "leader right, %", MAJORITY: "majority right, %"}
_TABLES = {
    "right": ("Last round: by how many agents were right", "agents right", "tasks"),
    "whose": ("Last round: whose answer the leader gave", "answer", "tasks"),
    "form": ("Form of the leader's words", "fault", "turns"),
}


def rounds_rich(cells: Sequence[Cell]) -> Group:
    """One team's figures for a terminal of 80 columns."""
    return Group(*(rich_table(section) for section in _sections(cells)))


def rounds_markdown(cells: Sequence[Cell]) -> str:
    """One team's figures as Markdown tables, each below a line that says what it shows."""
    return "\n\n".join(markdown_table(section) for section in _sections(cells)) + "\n"


def rounds_csv(teams: Mapping[str, Sequence[Cell]]) -> str:
    """One line a figure; `arm` and the fields of `Cell` are columns."""
    out = io.StringIO()
    writer = csv.DictWriter(out, ["arm", *(field.name for field in fields(Cell))], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"arm": arm, **asdict(cell)} for arm, cells in teams.items() for cell in cells)
    return out.getvalue()


def rounds_record(teams: Mapping[str, Sequence[Cell]]) -> dict[str, Any]:
    """Plain data for JSON, by arm; nan becomes None."""
    return {arm: [without_nan(asdict(cell)) for cell in cells] for arm, cells in teams.items()}


def _sections(cells: Sequence[Cell]) -> list[Section]:
    tables = [(name, [cell for cell in cells if cell.table == name]) for name in _TABLES]
    return [*_by_round([cell for cell in cells if cell.table == "rounds"]), *(_section(*of) for of in tables if of[1])]


def _by_round(cells: Sequence[Cell]) -> list[Section]:
    """Who answered, down; the rounds, a few abreast, across."""
    rounds = list(dict.fromkeys(cell.column for cell in cells))
    groups = [rounds[at : at + _ROUNDS_ABREAST] for at in range(0, len(rounds), _ROUNDS_ABREAST)]
    sections = []
    for group in groups:
        shown = [cell for cell in cells if cell.column in group]
        lines = list(dict.fromkeys(cell.line for cell in shown))
        tasks = [max(cell.n for cell in shown if cell.line == line) for line in lines]
        absent = [sum(cell.absent for cell in shown if cell.line == line) for line in lines]
        columns: list[Column] = [
            ("who", lines),
            *((f"round {number}", _column(shown, lines, number)) for number in group),
        ]
        columns.append(("tasks", [f"{count:,}" for count in tasks]))
        columns += [("absent", [f"{count:,}" if count else NOTHING for count in absent])] if any(absent) else []
        sections.append(Section("Right, % ± 2 standard errors, by round", columns))
    return sections


def _section(name: str, cells: Sequence[Cell]) -> Section:
    title, head, unit = _TABLES[name]
    lines = list(dict.fromkeys(cell.line for cell in cells))
    first = cells[0].column
    counts = [next(cell.n for cell in cells if (cell.line, cell.column) == (line, first)) for line in lines]
    columns: list[Column] = [(head, lines), (unit, [f"{count:,}" for count in counts])]
    for column in dict.fromkeys(cell.column for cell in cells):
        columns.append((_COLUMNS[column], _column(cells, lines, column)))
    return Section(title, columns)


def _column(cells: Sequence[Cell], lines: Sequence[str], column: str) -> list[str]:
    found = {cell.line: cell for cell in cells if cell.column == column}
    return [_figure(found.get(line)) for line in lines]


def _figure(cell: Cell | None) -> str:
    if cell is None or isnan(cell.mean):
        return NOTHING
    reach = "" if isnan(cell.low) else f" ±{percent(cell.mean - cell.low)}"
    return percent(cell.mean) + reach
