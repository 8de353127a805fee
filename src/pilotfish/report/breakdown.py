"""Which tasks a method is right on: flips against the reference, by level and by subject, and what failed.

Figures of the report, counted from the episodes' scores. The reference is the actor alone on the same models, or the
first method where that one was not played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from statistics import fmean
from typing import Literal

from pilotfish.evaluate.stats import two_se
from pilotfish.evaluate.table import percent
from pilotfish.report.evaluation import About, Benchmark, Place, Scored
from pilotfish.report.figure import Cell, Figure, Row, number, pivoted, tabled, text

Kind = Literal["wrong to right", "right to wrong"]
KINDS: tuple[Kind, ...] = ("wrong to right", "right to wrong")
_GROUPS = 100
"""Levels or subjects in a table: those with the most tasks."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Where a method's answers and its reference's part ways."""

    arm: str
    reference: str
    places: Mapping[Kind, list[Place]]
    n: int
    """Episodes that have a verdict in both."""


def flips(one: Benchmark) -> list[Flips]:
    """Of each method but the references."""
    return [_flips(one, arm, other) for arm in one.arms if (other := one.reference(arm)) and arm in one.episodes]


def _flips(one: Benchmark, arm: str, reference: str) -> Flips:
    found: dict[Kind, list[Place]] = {kind: [] for kind in KINDS}
    before, n = one.episodes.get(reference, {}), 0
    for place, after in one.episodes[arm].items():
        first = before.get(place)
        if first is None or first.reward is None or after.reward is None:
            continue
        n += 1
        if first.right != after.right:
            found["wrong to right" if after.right else "right to wrong"].append(place)
    return Flips(arm, reference, found, n)


def broken_down(one: Benchmark) -> Iterator[Figure]:
    """The figures of one benchmark that look at groups of tasks."""
    if found := flips(one):
        yield _flip_table(one, found)
    yield from _by(one, "level", "Accuracy by level, %", lambda task: task.level)
    yield from _by(one, "subject", "Accuracy by subject, %", lambda task: task.subject)


def failures(one: Benchmark) -> Iterator[Figure]:
    """Episodes without a verdict, where there are any."""
    if failed := list(_failed(one)):
        columns = {"method": text("method"), "task": text("task"), "sample": number("sample", zero=False)}
        columns["why"] = lambda row: _short(row["why"])
        note = "Neither right nor wrong: left out of the accuracy."
        yield tabled("failed", f"Failed: {len(failed):,}", failed, columns, names=4, note=note)


def _flip_table(one: Benchmark, found: list[Flips]) -> Figure:
    rows = [
        {
            "method": flip.arm,
            "reference": flip.reference,
            **{kind: len(flip.places[kind]) for kind in KINDS},
            "gain": len(flip.places[KINDS[0]]) - len(flip.places[KINDS[1]]),
            "n": flip.n,
        }
        for flip in found
    ]
    columns: dict[str, Cell] = {
        "method": text("method"),
        "against": text("reference"),
        **{kind: number(kind) for kind in KINDS},
        "gain": lambda row: f"{row['gain']:+d}" if row["gain"] else "0",
        "of": number("n"),
    }
    several = any(place[1] for episodes in one.episodes.values() for place in episodes)
    note = "Counted in episodes, sample by sample." if several else "Counted in tasks."
    return tabled("flips", "Flips against the reference", rows, columns, names=2, note=note)


def _by(one: Benchmark, field: str, title: str, of: Callable[[About], str | None]) -> Iterator[Figure]:
    groups: dict[str, list[str]] = {}
    for id, task in one.tasks.items():
        if (group := of(task)) is not None:
            groups.setdefault(group, []).append(id)
    if len(groups) < 2:
        return
    most = sorted(groups, key=lambda group: -len(groups[group]))[:_GROUPS]
    shown = sorted(most, key=_natural)
    rows = [
        row
        for group in shown
        for arm in one.arms
        if (row := _group(one.episodes.get(arm, {}), {"method": arm, field: group}, set(groups[group])))
    ]
    note = "± two standard errors over tasks."
    note += f" The {_GROUPS} with the most tasks of {len(groups):,}." if len(groups) > _GROUPS else ""
    down = {field: field, "tasks": "tasks"}
    yield pivoted(f"by-{field}", title, rows, down, lambda row: row["method"], _mean, shade="accuracy", note=note)


def _group(episodes: Mapping[Place, Scored], row: dict[str, object], tasks: set[str]) -> Row | None:
    samples: dict[str, list[float]] = {}
    for (task, _), played in episodes.items():
        if task in tasks and played.reward is not None:
            samples.setdefault(task, []).append(played.reward)
    if not samples:
        return None
    found = two_se([fmean(rewards) for rewards in samples.values()])
    reach = None if isnan(found.low) else found.estimate - found.low
    return {**row, "tasks": len(tasks), "accuracy": found.estimate, "two_standard_errors": reach, "n": found.n}


def _mean(row: Row) -> str:
    reach = row["two_standard_errors"]
    return percent(row["accuracy"]) + ("" if reach is None else f" ±{percent(reach)}")


def _natural(group: str) -> tuple[float, str]:
    """`Level 10` after `Level 9`, words in their order."""
    digits = "".join(char for char in group if char.isdigit())
    return (float(digits) if digits else 0.0, group)


def _failed(one: Benchmark) -> Iterator[Row]:
    for arm in one.arms:
        for (task, sample), played in one.episodes.get(arm, {}).items():
            if played.reward is None:
                yield {"method": arm, "task": task, "sample": sample, "why": played.why, "episode": played.id}


def _short(text: str, most: int = 240) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
