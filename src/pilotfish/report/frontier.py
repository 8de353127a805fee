"""Accuracy against what it costs: figures of the report, with the Pareto front and with curves over budgets.

A method is on the front where no other is at least as accurate for no more, and better in one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilotfish.evaluate.record import BUDGET
from pilotfish.evaluate.table import NOTHING, digits, percent
from pilotfish.report.drawing import Curve, Mark, Spot, curves, scatter
from pilotfish.report.evaluation import Benchmark
from pilotfish.report.figure import Cell, Figure, Row, interval, number, share, tabled, text

PRICES = {"cost": "money a task", "tokens": "tokens a task", "calls": "calls a task"}
"""What a method is paid in: the fields of a row, and what they are called."""


def against_cost(one: Benchmark) -> Iterator[Figure]:
    """One figure with a drawing for each price: money where members have prices, tokens, calls. A single method has
    nothing to be drawn against."""
    rows = [_priced(one, number, row) for number, row in enumerate(one.rows, start=1)]
    judged = [row for row in rows if row["accuracy"] is not None]
    prices = [field for field in PRICES if any(row[field] for row in judged)]
    if len(judged) < 2 or not prices:
        return
    best = {field: _front(judged, field) for field in prices}
    for row in rows:
        row["front"] = " ".join(field for field in prices if row["number"] in best[field])
    columns: dict[str, Cell] = {"method": text("method"), "no.": number("number"), "accuracy, %": share("accuracy")}
    columns |= {PRICES[field]: number(field) for field in prices}
    columns["on the front of"] = lambda row: row["front"].replace("cost", "money").replace(" ", ", ") or NOTHING
    note = "Numbers are those of the table. Filled and joined, the front: no other method is as good for no more."
    drawings = [_drawn([row for row in judged if row[field] is not None], field, best[field]) for field in prices]
    yield tabled("cost", "Accuracy against cost", rows, columns, note=note, drawings=drawings)


def over_budget(one: Benchmark) -> Iterator[Figure]:
    """Accuracy over calls, for methods that were also judged at a part of their length."""
    found: Mapping[str, Sequence[Mapping[str, Any]]] = one.parts.get(BUDGET, {})
    if not any(len(points) > 1 for points in found.values()):
        return
    rows = [{"method": arm, **point} for arm, points in found.items() for point in points]
    judged = [row for row in rows if row["accuracy"] is not None]
    drawn = [
        Curve(
            arm,
            [Mark(row["calls"], row["accuracy"], row["low"], row["high"]) for row in judged if row["method"] == arm],
        )
        for arm in dict.fromkeys(row["method"] for row in judged)
    ]
    columns = {
        "method": text("method"),
        "played for": lambda row: f"{row['by']}: {row['length']}" if row["by"] != "whole" else NOTHING,
        "calls": number("calls"),
        "tokens": number("tokens"),
        "accuracy, %": share("accuracy"),
        "95 % interval": interval(),
    }
    note = "A method judged at a part of its length, from the record. Majority: of so many whole episodes."
    drawings = [curves(drawn, "calls a task")] if drawn else []
    yield tabled("budget", "Accuracy over budget", rows, columns, names=2, note=note, drawings=drawings)


def _priced(one: Benchmark, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "number": number,
        "method": row["name"],
        **{field: row[field] for field in ("accuracy", "low", "high")},
        "cost": one.cost(row),
        "tokens": sum(row["tokens_per_member"].values()),
        "calls": row["calls"],
    }


def _front(rows: Sequence[Row], field: str) -> list[int]:
    """Numbers of the methods on the front of one price, from cheap to dear."""
    priced = [row for row in rows if row[field] is not None]
    best = front([(row[field], row["accuracy"]) for row in priced])
    return [row["number"] for row in sorted((priced[at] for at in best), key=lambda row: row[field])]


def _drawn(rows: Sequence[Row], field: str, best: Sequence[int]) -> str:
    title = PRICES[field]
    spots = [
        Spot(
            str(row["number"]),
            row[field],
            row["accuracy"],
            row["low"],
            row["high"],
            f"{row['method']}: {percent(row['accuracy'])} % for {digits(row[field])} {title}",
        )
        for row in rows
    ]
    return scatter(spots, title, [str(number) for number in best])


def front(points: Sequence[tuple[float, float]]) -> set[int]:
    """Which of the points (price, accuracy) are on the Pareto front; of equal ones all."""
    return {
        at
        for at, (price, accuracy) in enumerate(points)
        if not any(other[0] <= price and other[1] >= accuracy and other != (price, accuracy) for other in points)
    }
