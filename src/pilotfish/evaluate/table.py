"""A comparison of methods as a table: in the terminal, in Markdown, as CSV and as JSON.

    solo = Row("actor alone", 0.44, 0.37, 0.51, n=200, calls=1, tokens_per_member={"actor": 118})
    Console().print(render_rich([solo, ...]))

A reader asks how accurate, how much better than what on the same tasks, at what price, and who used what. Each answer
is a table of its own, so that 80 columns hold them. CSV and JSON carry the unrounded figures.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import floor, isnan, log10
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pilotfish.evaluate.accounts import Account
from pilotfish.evaluate.stats import Difference

Column = tuple[str, list[str]]
NOTHING = "–"
_INTERVAL = "95 % interval"
_MEMBERS_ABREAST = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one set of tasks. Shares are in [0, 1]; nan where no task was judged."""

    name: str
    accuracy: float
    """Mean reward."""
    low: float
    high: float
    n: int
    """Tasks with a verdict."""
    unjudged: int = 0
    """Tasks without one."""
    difference_to: Mapping[str, Difference] = field(default_factory=dict)
    """This method minus another on the same tasks, by the other's name."""
    adjusted_p: Mapping[str, float] = field(default_factory=dict)
    """p-values of those differences, after Holm where several were tested."""
    leak_rate: float | None = None
    """Share of tasks whose hint already holds the gold answer; None where there is no hint."""
    tokens_per_member: Mapping[str, float] = field(default_factory=dict)
    """Mean prompt and completion tokens per task, summed, by member. Means per task are over episodes with a verdict,
    as the accuracy is; over all where none has one."""
    calls: float | None = None
    """Mean calls per task, those that methods share counted in each."""
    seconds: float | None = None
    """Mean seconds per task."""
    cost: float | None = None
    """Money for all episodes together, in the recipe's currency; None where no member has a price."""
    cost_per_task: float | None = None
    """Mean money per task."""
    standard_error: float | None = None
    """Of the accuracy, over tasks."""
    samples: int = 1
    """Episodes a task; accuracy is their mean, and so are calls, seconds and tokens a task."""
    failed: int = 0
    """Episodes without a verdict: neither right nor wrong."""
    p: Mapping[str, float] = field(default_factory=dict)
    """McNemar's, of the differences between methods with one right or wrong answer a task."""
    tasks_needed: Mapping[str, int] = field(default_factory=dict)
    """Tasks that it takes to see a difference of 4 points to another at 80 % power, by the other's name."""
    usage: Mapping[str, Account] = field(default_factory=dict)
    """What each member used in all episodes together; a call that methods share is charged to each."""
    judged: Mapping[str, Account] = field(default_factory=dict)
    """Of `usage`, what went into episodes with a verdict; empty where all have one, or none."""

    @property
    def episodes(self) -> int:
        """Of all tasks and samples."""
        return self.samples * (self.n + self.unjudged)

    @property
    def counted(self) -> tuple[Mapping[str, Account], int]:
        """What means per task are made of: what members used in so many episodes."""
        return (self.judged, self.episodes - self.failed) if self.judged else (self.usage, self.episodes)


@dataclass(frozen=True, slots=True)
class Section:
    """One of the stacked tables: text in the first `names` columns, figures in the others."""

    title: str
    columns: list[Column]
    names: int = 1
    styles: Sequence[str] = ()
    """Of each line, in the terminal."""

    def lines(self) -> list[tuple[str, ...]]:
        return list(zip(*(cells for _, cells in self.columns), strict=True))


def render_rich(rows: Sequence[Row]) -> Group:
    """The comparison for a terminal of 80 columns; differences whose interval leaves out 0 are coloured."""
    return Group(*(rich_table(section) for section in _sections(rows)))


def render_markdown(rows: Sequence[Row]) -> str:
    """The comparison as Markdown tables, each below a line that says what it shows."""
    return "\n\n".join(markdown_table(section) for section in _sections(rows)) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """One line a method; `difference.<other>.<field>`, `adjusted_p.<other>` and `tokens.<member>` are columns."""
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(column for line in flat for column in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def to_json(rows: Sequence[Row]) -> str:
    """A list of rows with the fields of `Row`; nan becomes null, since JSON has none."""
    return json.dumps([without_nan(asdict(row)) for row in rows], indent=2, ensure_ascii=False, allow_nan=False)


def _sections(rows: Sequence[Row]) -> list[Section]:
    differences = [_differences(rows)] if any(row.difference_to for row in rows) else []
    usage = [_usage(rows)] if any(row.usage for row in rows) else []
    return [_accuracy(rows), *differences, *_prices(rows), *usage]


def _accuracy(rows: Sequence[Row]) -> Section:
    columns = [
        _names(rows),
        ("accuracy, %", [percent(row.accuracy) for row in rows]),
        (_INTERVAL, [span(row.low, row.high) for row in rows]),
        *_filled([("± 2 SE", [_two_errors(row) for row in rows])]),
        ("tasks", [f"{row.n:,}" for row in rows]),
    ]
    optional = [
        ("samples", [_number(row.samples if row.samples > 1 else None) for row in rows]),
        ("failed", [_number(row.failed or None) for row in rows]),
        ("leak, %", [percent(row.leak_rate) for row in rows]),
    ]
    return Section("Accuracy", columns + _filled(optional))


def _differences(rows: Sequence[Row]) -> Section:
    pairs = [(row, other, gap) for row in rows for other, gap in row.difference_to.items()]
    columns = [
        ("method", [row.name for row, _, _ in pairs]),
        ("minus", [other for _, other, _ in pairs]),
        ("points", [percent(gap.estimate, "+") for _, _, gap in pairs]),
        (_INTERVAL, [span(gap.low, gap.high, "+") for _, _, gap in pairs]),
        ("better", [f"{gap.better:,}" for _, _, gap in pairs]),
        ("worse", [f"{gap.worse:,}" for _, _, gap in pairs]),
    ]
    optional = [("p", [_p(row.adjusted_p.get(other)) for row, other, _ in pairs])]
    styles = ["green" if gap.low > 0 else "red" if gap.high < 0 else "" for _, _, gap in pairs]
    tested = "; p: McNemar's, after Holm" if any(row.adjusted_p for row in rows) else ""
    title = f"Differences on the same tasks (better, worse: tasks that changed{tested})"
    return Section(title, columns + _filled(optional), names=2, styles=styles)


def _prices(rows: Sequence[Row]) -> list[Section]:
    """Tokens by member, a few members abreast; calls, seconds and money beside the first of them."""
    members = list(dict.fromkeys(member for row in rows for member in row.tokens_per_member))
    tokens = [(member, [_number(row.tokens_per_member.get(member)) for row in rows]) for member in members]
    beside = [
        ("calls", [_number(row.calls) for row in rows]),
        ("seconds", [_number(row.seconds) for row in rows]),
        ("cost", [_money(row.cost_per_task) for row in rows]),
    ]
    first = tokens[:_MEMBERS_ABREAST] + _filled(beside)
    further = [tokens[at : at + _MEMBERS_ABREAST] for at in range(_MEMBERS_ABREAST, len(tokens), _MEMBERS_ABREAST)]
    title = "Price of a task (tokens by member: prompt + completion)"
    return [Section(title, [_names(rows), *columns]) for columns in (first, *further) if columns]


def _usage(rows: Sequence[Row]) -> Section:
    """Each method's members below one another, a task's share of all."""
    counted = [(row, *row.counted) for row in rows]
    told = [
        (row, member, account, of) for row, used, of in counted for member, account in used.items() if account.calls
    ]
    columns = [
        ("method", [row.name for row, *_ in told]),
        ("member", [member for _, member, *_ in told]),
        ("calls", [_number(account.calls / of) for *_, account, of in told]),
        ("prompt", [_tokens(account.prompt / of, account) for *_, account, of in told]),
    ]
    columns += _filled([("cached", [_number(account.cached / of or None) for *_, account, of in told])])
    columns += [("completion", [_tokens(account.completion / of, account) for *_, account, of in told])]
    beside = [
        ("reasoning", [_number(account.reasoning / of or None) for *_, account, of in told]),
        ("seconds", [_number(account.seconds / of) for *_, account, of in told]),
        ("cost", [_money(None if account.cost is None else account.cost / of) for *_, account, of in told]),
    ]
    rough = "; ~: not the server's count" if any(account.estimated for _, _, account, _ in told) else ""
    return Section(
        f"Usage of a task by member (prompt holds cached, completion holds reasoning{rough})",
        columns + _filled(beside),
        names=2,
    )


def _tokens(mean: float, account: Account) -> str:
    return f"{'~' if account.estimated else ''}{_number(mean)}"


def _two_errors(row: Row) -> str:
    return NOTHING if row.standard_error is None or isnan(row.standard_error) else f"±{percent(2 * row.standard_error)}"


def _names(rows: Sequence[Row]) -> Column:
    return "method", [row.name for row in rows]


def _filled(columns: Sequence[Column]) -> list[Column]:
    """The columns that have anything to say."""
    return [(head, cells) for head, cells in columns if set(cells) - {NOTHING}]


def rich_table(section: Section) -> Table:
    table = Table(
        title=Text(section.title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for place, (head, _) in enumerate(section.columns):
        figure = place >= section.names
        table.add_column(
            Text(head), justify="right" if figure else "left", overflow="fold", no_wrap=head.endswith("interval")
        )
    styles = section.styles or [""] * len(section.lines())
    for line, style in zip(section.lines(), styles, strict=True):
        table.add_row(*map(Text, line), style=style)
    return table


def markdown_table(section: Section) -> str:
    head = tuple(head for head, _ in section.columns)
    rule = [":---" if place < section.names else "---:" for place in range(len(head))]
    lines = [[_escaped(cell) for cell in line] for line in (head, *section.lines())]
    table = [lines[0], rule, *lines[1:]]
    return f"{section.title}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in table)


def _escaped(cell: str) -> str:
    """A cell that neither ends itself nor opens a tag."""
    plain = " ".join(cell.split()).replace("\\", "\\\\").replace("|", "\\|")
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", plain)


def percent(value: float | None, sign: str = "") -> str:
    """A share as a percentage; `+ 0.0` turns -0.0 into 0.0."""
    return NOTHING if value is None or isnan(value) else f"{round(100 * value, 1) + 0.0:{sign}.1f}"


def span(low: float, high: float, sign: str = "") -> str:
    """An interval of shares, in percent."""
    return NOTHING if isnan(low) else f"[{percent(low, sign)}, {percent(high, sign)}]"


def _number(value: float | None) -> str:
    """Three figures or more, so that neither 0.02 seconds nor 12,345 tokens lose theirs."""
    if value is None or isnan(value):
        return NOTHING
    return digits(value)


def digits(value: float) -> str:
    """Three digits or more, without an exponent."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 - floor(log10(abs(value)))}f}".rstrip("0").rstrip(".")


def _money(value: float | None) -> str:
    return _number(value) if value is None or value < 100 else f"{value:,.2f}"


def _p(value: float | None) -> str:
    if value is None or isnan(value):
        return NOTHING
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _flat(row: Row) -> dict[str, Any]:
    fields = asdict(row)
    by_name = {"difference_to": "difference", "adjusted_p": "adjusted_p", "p": "p", "tasks_needed": "tasks_needed"}
    by_name |= {"tokens_per_member": "tokens", "usage": "usage", "judged": "judged"}
    for name, column in by_name.items():
        for key, value in fields.pop(name).items():
            parts = value if isinstance(value, dict) else {"": value}
            fields |= {f"{column}.{key}.{part}".rstrip("."): figure for part, figure in parts.items()}
    return fields


def without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nan(entry) for key, entry in value.items()}
    return None if isinstance(value, float) and isnan(value) else value
