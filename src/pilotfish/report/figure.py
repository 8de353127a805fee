"""A figure of the report: a drawing, a table, or both, with the rows behind them for its CSV.

    figure = tabled("leaks", "Leaks", rows, {"method": text("method"), "leak, %": share("rate")})
    figure.csv()                    # one line a row, unrounded
    markdown_table(figure.section())

A row is plain data by column. A column of the table says how a row is shown in it; one in which no row has anything to
show is left out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from pilotfish.evaluate.table import NOTHING, Section, digits, percent, span

Row = Mapping[str, Any]
Cell = Callable[[Row], str]
"""How a row is shown in one column."""

MOST_LINES = 120
"""Lines of a table on the page; its CSV has all."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that the report shows."""

    name: str
    """Of its CSV, with the benchmark's before it."""
    title: str
    rows: Sequence[Row]
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    """What the table shows, as text."""
    names: int = 1
    """So many columns are text, the others figures."""
    note: str = ""
    """How it is to be read."""
    drawings: Sequence[str] = ()
    """HTML of pictures of the same rows."""
    shades: Sequence[Sequence[float | None]] = ()
    """Of each line: the share in [0, 1] that a cell is shaded by, None for a plain one."""

    def csv(self) -> str:
        """All rows, unrounded."""
        return as_csv(self.rows)

    def section(self) -> Section:
        """The table as the evaluation's other tables are laid out."""
        columns = [(head, [line[at] for line in self.lines]) for at, head in enumerate(self.head)]
        return Section(self.title, columns, names=self.names)


def as_csv(rows: Sequence[Row]) -> str:
    """One line a row; a column for each field that any of them has."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(field for row in rows for field in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def tabled(
    name: str,
    title: str,
    rows: Sequence[Row],
    columns: Mapping[str, Cell],
    *,
    names: int = 1,
    note: str = "",
    drawings: Sequence[str] = (),
) -> Figure:
    """A figure whose table has a line for each row."""
    shown = {head: [cell(row) for row in rows[:MOST_LINES]] for head, cell in columns.items()}
    filled = {head: cells for head, cells in shown.items() if set(cells) - {NOTHING, ""}}
    more = "" if len(rows) <= MOST_LINES else f"The first {MOST_LINES} of {len(rows):,}; the CSV has all."
    note = " ".join(part for part in (note, more) if part)
    lines = list(zip(*filled.values(), strict=True))
    words = sum(head in filled for head in list(columns)[:names])
    return Figure(name, title, rows, list(filled), lines, words, note, drawings)


def pivoted(
    name: str,
    title: str,
    rows: Sequence[Row],
    down: Mapping[str, str],
    across: Callable[[Row], str],
    cell: Cell,
    *,
    shade: str = "",
    note: str = "",
    drawings: Sequence[str] = (),
) -> Figure:
    """A figure whose table has the rows down and across.

    Args:
        name: of the CSV.
        title: of the figure.
        rows: one for each cell of the table.
        down: fields that tell lines apart, by the heads of their columns.
        across: the head of the column that a row stands in.
        cell: what it shows there.
        shade: field that its shade follows; none where empty.
        note: how it is to be read.
        drawings: HTML of pictures of the same rows.
    """
    heads = list(dict.fromkeys(map(across, rows)))
    found = {(_place(row, down), across(row)): row for row in rows}
    places = list(dict.fromkeys(_place(row, down) for row in rows))[:MOST_LINES]
    cells = [[found.get((place, head)) for head in heads] for place in places]
    lines = [
        [*map(str, place), *(cell(row) if row else NOTHING for row in line)]
        for place, line in zip(places, cells, strict=True)
    ]
    blank: list[float | None] = [None] * len(down)
    shades = [[*blank, *(row.get(shade) if row else None for row in line)] for line in cells] if shade else ()
    return Figure(name, title, rows, [*down, *heads], lines, len(down), note, drawings, shades)


def _place(row: Row, down: Mapping[str, str]) -> tuple[Any, ...]:
    return tuple(row.get(field) for field in down.values())


def text(field: str) -> Cell:
    """A text as it is."""
    return lambda row: NOTHING if row.get(field) in (None, "") else str(row[field])


def share(field: str, sign: str = "") -> Cell:
    """A share or a difference of shares, in percent."""
    return lambda row: percent(row.get(field), sign)


def interval(low: str = "low", high: str = "high", sign: str = "") -> Cell:
    """An interval of shares, in percent."""
    return lambda row: NOTHING if _none(row.get(low)) else span(row[low], row[high], sign)


def measured(field: str, sign: str = "") -> Cell:
    """A share with its interval; the ends stand in the fields `low` and `high` behind its name."""
    ends = interval(f"{field}_low", f"{field}_high", sign)
    return lambda row: " ".join(part for part in (share(field, sign)(row), ends(row)) if part != NOTHING) or NOTHING


def errors(field: str) -> Cell:
    """Two standard errors, in percent."""
    return lambda row: NOTHING if _none(row.get(field)) else f"±{percent(2 * row[field])}"


def number(field: str, *, zero: bool = True) -> Cell:
    """A figure with three digits or more; a zero may stand for nothing."""
    return lambda row: NOTHING if _none(row.get(field)) or not (zero or row[field]) else digits(row[field])


def p_value(field: str) -> Cell:
    """A probability; what is below 0.001 is not told."""
    return lambda row: NOTHING if _none(row.get(field)) else "<0.001" if row[field] < 0.001 else f"{row[field]:.3f}"


def _none(value: Any) -> bool:
    return value is None or (isinstance(value, float) and isnan(value))
