"""Figures of the report: how accurate each method is, how it differs from others on the same tasks, who used what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilotfish.evaluate.record import ASKED, AT_K, SEEDS
from pilotfish.evaluate.table import NOTHING, digits
from pilotfish.report.drawing import Curve, Mark, curves
from pilotfish.report.evaluation import Benchmark
from pilotfish.report.figure import (
    Figure,
    Row,
    errors,
    interval,
    number,
    p_value,
    pivoted,
    share,
    tabled,
    text,
)

INTERVAL = "95 % interval"


def overview(benchmarks: Sequence[Benchmark]) -> Figure:
    """Every method on every benchmark, and the mean over benchmarks where it was played on all."""
    rows = [
        {
            "benchmark": one.name,
            "method": row["name"],
            "accuracy": row["accuracy"],
            "low": row["low"],
            "high": row["high"],
        }
        for one in benchmarks
        for row in one.rows
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        found = [row["accuracy"] for row in rows if row["method"] == method and row["accuracy"] is not None]
        if len(found) == len(benchmarks):
            rows.append({"benchmark": "mean", "method": method, "accuracy": sum(found) / len(found)})
    return pivoted(
        "overview",
        "Accuracy on all benchmarks, %",
        rows,
        {"method": "method"},
        lambda row: str(row["benchmark"]),
        share("accuracy"),
        shade="accuracy",
        note="The mean gives each benchmark the same weight.",
    )


def compared(one: Benchmark) -> Iterator[Figure]:
    """The figures of one benchmark that are not drawn."""
    yield methods(one)
    if rows := [dict(row) for row in _differences(one)]:
        yield _difference_table("differences", "Differences on the same tasks", rows)
    yield from _seeds(one)
    yield from _at_k(one)
    if rows := [dict(row) for row in _usage(one)]:
        yield _usage_table(rows, one.averaged)
    if rows := [{"member": member, **account} for member, account in one.parts.get(ASKED, {}).items()]:
        yield _asked_table(rows)


def methods(one: Benchmark) -> Figure:
    """The main table: each method's accuracy and price."""
    rows = [_method(one, row) for row in one.rows]
    members = list(dict.fromkeys(member for row in one.rows for member in row["tokens_per_member"]))
    estimated = {member for row in one.rows for member, used in row.get("usage", {}).items() if used["estimated"]}
    tokens = {f"{'~' if member in estimated else ''}tokens {member}": f"tokens.{member}" for member in members}
    columns = {
        "method": text("method"),
        "accuracy, %": share("accuracy"),
        INTERVAL: interval(),
        "± 2 SE": errors("standard_error"),
        "tasks": number("n"),
        "samples": number("samples", zero=False),
        "failed": number("failed", zero=False),
        "leak, %": share("leak_rate"),
        "calls": number("calls"),
        **{head: number(field) for head, field in tokens.items()},
        "seconds": number("seconds"),
        "cost": lambda row: NOTHING if row["cost_per_task"] is None else digits(row["cost_per_task"]),
    }
    if all(row["samples"] == 1 for row in rows):
        del columns["samples"]
    note = f"Calls, tokens, seconds and cost are means over {one.averaged}; a shared call is charged to each."
    rough = " ~: not the server's own count." if estimated else ""
    told = "".join(f" {line}." for line in one.notes)
    return tabled("methods", "Accuracy and price", rows, columns, note=note + rough + told)


def _method(one: Benchmark, row: Mapping[str, Any]) -> Row:
    name = row["name"]
    kept = (
        "accuracy",
        "low",
        "high",
        "standard_error",
        "n",
        "samples",
        "failed",
        "leak_rate",
        "calls",
        "seconds",
        "cost",
    )
    tokens = {f"tokens.{member}": mean for member, mean in row["tokens_per_member"].items()}
    return {
        "method": name,
        "role": one.roles.get(name, ""),
        "model": one.models.get(name, ""),
        **{field: row.get(field) for field in kept},
        "cost_per_task": one.cost(row),
        **tokens,
    }


def _differences(one: Benchmark) -> Iterator[Row]:
    for row in one.rows:
        for other, gap in row["difference_to"].items():
            p = row["adjusted_p"].get(other)
            yield {"method": row["name"], "minus": other, **gap, "adjusted_p": p, **_needed(row, other)}


def _needed(row: Mapping[str, Any], other: str) -> dict[str, Any]:
    return {"p": row.get("p", {}).get(other), "tasks_needed": row.get("tasks_needed", {}).get(other)}


def _difference_table(name: str, title: str, rows: Sequence[Row]) -> Figure:
    columns = {
        "method": text("method"),
        "minus": text("minus"),
        "points": share("estimate", "+"),
        INTERVAL: interval(sign="+"),
        "better": number("better"),
        "worse": number("worse"),
        "p (Holm)": p_value("adjusted_p"),
        "tasks needed": number("tasks_needed"),
    }
    note = "Better, worse: tasks that changed."
    if any(row.get("tasks_needed") for row in rows):
        note += " Tasks needed: to see a difference of 4 points at 80 % power."
    return tabled(name, title, rows, columns, names=2, note=note)


def _seeds(one: Benchmark) -> Iterator[Figure]:
    """What holds over training seeds, where there are several."""
    found = one.parts.get(SEEDS)
    if not found:
        return
    rows = [
        {"method": arm, "seed": seed, "accuracy": accuracy}
        for arm, by_seed in found["accuracy"].items()
        for seed, accuracy in zip(found["seeds"], by_seed, strict=True)
    ]
    down = {"method": "method"}
    title = "Accuracy by training seed, %"
    yield pivoted("seeds", title, rows, down, lambda row: f"seed {row['seed']}", share("accuracy"))
    gaps = [
        {"method": arm, "minus": other, **gap}
        for arm, others in found["difference_to"].items()
        for other, gap in others.items()
    ]
    yield _difference_table("seed-differences", "Differences over training seeds and tasks together", gaps)


def _at_k(one: Benchmark) -> Iterator[Figure]:
    """Several samples a task."""
    rows = [
        {"method": point["arm"], "measure": name, "k": point["k"], **point[field]}
        for name, field in (("pass", "pass_at"), ("majority", "majority"))
        for point in one.parts.get(AT_K, ())
    ]
    if rows:
        yield pivoted(
            "at-k",
            "Several samples a task, %",
            rows,
            {"method": "method"},
            lambda row: f"{row['measure']}@{row['k']}",
            share("estimate"),
            note="Pass@k: one of k samples is right. Majority@k: the answer that most of k gave is right.",
            drawings=[_over_k(rows, measure) for measure in ("pass", "majority")],
        )


def _over_k(rows: Sequence[Row], measure: str) -> str:
    of = [row for row in rows if row["measure"] == measure and row["estimate"] is not None]
    drawn = [
        Curve(arm, [Mark(float(row["k"]), row["estimate"]) for row in of if row["method"] == arm])
        for arm in dict.fromkeys(row["method"] for row in of)
    ]
    return curves(drawn, f"k: {measure}@k") if drawn else ""


def _usage(one: Benchmark) -> Iterator[Row]:
    """Of a task, by method and member."""
    for row in one.rows:
        members, episodes = one.counted(row)
        for member, used in members.items():
            means = {field: used[field] / episodes for field in _COUNTS}
            cost = None if used["cost"] is None else used["cost"] / episodes
            yield {"method": row["name"], "member": member, **means, "cost": cost, "estimated": used["estimated"]}


_COUNTS = ("calls", "prompt", "cached", "completion", "reasoning", "seconds")
_TOKENS = {
    "prompt": number("prompt"),
    "cached": number("cached", zero=False),
    "completion": number("completion"),
    "reasoning": number("reasoning", zero=False),
}


def _usage_table(rows: Sequence[Row], averaged: str) -> Figure:
    columns = {"method": text("method"), "member": text("member"), "calls": number("calls"), **_TOKENS}
    columns |= {
        "seconds": number("seconds"),
        "cost": number("cost"),
        "count": lambda row: "~" if row["estimated"] else NOTHING,
    }
    note = f"Means over {averaged}. Prompt holds cached, completion holds reasoning."
    note += " ~: not the server's own count." if any(row["estimated"] for row in rows) else ""
    return tabled("usage", "Tokens by member", rows, columns, names=2, note=note)


def _asked_table(rows: Sequence[Row]) -> Figure:
    columns = {"member": text("member"), "calls": number("calls"), **_TOKENS, "seconds": number("seconds")}
    columns |= {"cost": number("cost"), "recalled": number("recalled", zero=False)}
    note = "Each call once, however many methods share it. Recalled: answers that an earlier run had."
    return tabled("asked", "What was asked in all", rows, columns, note=note)
