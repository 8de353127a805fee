"""All that one benchmark's comparison has to tell, as tables and lines: for the terminal and for `results.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from pilotfish.evaluate.attribution_table import attribution_sections
from pilotfish.evaluate.budget_table import at_k_section, budget_section, is_curve
from pilotfish.evaluate.comparison import GAP
from pilotfish.evaluate.rounds_table import rounds_markdown, rounds_rich
from pilotfish.evaluate.seeds import OverSeeds
from pilotfish.evaluate.table import (
    Column,
    Row,
    Section,
    markdown_table,
    percent,
    render_markdown,
    render_rich,
    rich_table,
    span,
)

if TYPE_CHECKING:
    from pilotfish.evaluate.bench import Result


def page_rich(result: Result) -> Group:
    """For a terminal of 80 columns."""
    parts: list[RenderableType] = [Text(f"\n{result.benchmark}", style="bold"), render_rich(result.rows)]
    parts += [rich_table(section) for section in _further(result)]
    parts += [Text(line) for line in notes(result)]
    for arm, cells in result.rounds.items():
        parts += [Text(f"\n{result.benchmark}: {arm}", style="bold"), rounds_rich(cells)]
    return Group(*parts)


def page_markdown(result: Result) -> str:
    """A section of `results.md`."""
    further = "".join(f"\n{markdown_table(section)}\n" for section in _further(result))
    lines = "".join(f"\n{line}\n" for line in notes(result))
    teams = "".join(f"\n### {arm}\n\n{rounds_markdown(cells)}" for arm, cells in result.rounds.items())
    return f"## {result.benchmark}\n\n{render_markdown(result.rows)}{further}{lines}{teams}"


def notes(result: Result) -> list[str]:
    """How many tasks the main comparison needs, and what the whole evaluation has asked."""
    return [*_needed(result.rows), *_asked(result)]


def _further(result: Result) -> Iterator[Section]:
    if result.at_k:
        yield at_k_section(result.at_k)
    if is_curve(result.budgets):
        yield budget_section(result.budgets)
    if result.seeds:
        yield from _seeds(result.seeds)
    yield from attribution_sections(result.attribution)


def _seeds(found: OverSeeds) -> Iterator[Section]:
    arms = list(found.accuracy)
    columns: list[Column] = [("method", arms)]
    for at, seed in enumerate(found.seeds):
        columns.append((f"seed {seed}", [percent(found.accuracy[arm][at]) for arm in arms]))
    yield Section("Accuracy by training seed, %", columns)
    pairs = [(arm, other, gap) for arm, others in found.difference_to.items() for other, gap in others.items()]
    yield Section(
        "Differences over training seeds and tasks together",
        [
            ("method", [arm for arm, _, _ in pairs]),
            ("minus", [other for _, other, _ in pairs]),
            ("points", [percent(gap.estimate, "+") for _, _, gap in pairs]),
            ("95 % interval", [span(gap.low, gap.high, "+") for _, _, gap in pairs]),
            ("tasks", [f"{gap.n:,}" for _, _, gap in pairs]),
        ],
        names=2,
    )


def _needed(rows: list[Row]) -> list[str]:
    """Of the first method, and the one beside it that is compared with most others."""
    first = rows[0].name if rows else ""
    beside = [row for row in reversed(rows) if first in row.tasks_needed]
    if not beside:
        return []
    row = max(beside, key=lambda row: len(row.tasks_needed))
    gap = row.difference_to[first]
    discordant = (gap.better + gap.worse) / gap.n
    about = "about" if discordant >= GAP else "at least"
    return [
        f"{row.name} and {first} differ on {percent(discordant)} % of {gap.n:,} tasks: to see a difference of "
        f"{100 * GAP:g} points at 80 % power this needs {about} {row.tasks_needed[first]:,} tasks."
    ]


def _asked(result: Result) -> list[str]:
    if not result.asked:
        return []
    told = []
    for member, asked in result.asked.items():
        rough = "~" if asked.account.estimated else ""
        again = f", and {asked.recalled:,} recalled" if asked.recalled else ""
        told.append(f"{member} {asked.account.calls:,} calls, {rough}{asked.account.tokens:,} tokens{again}")
    costs = [asked.account.cost for asked in result.asked.values() if asked.account.cost is not None]
    money = f" Cost {sum(costs):,.4g}." if costs else ""
    return [f"Asked for all methods together, each call once: {'; '.join(told)}.{money}"]
