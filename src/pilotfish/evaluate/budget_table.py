"""Methods by samples and at equal cost: pass@k, majority@k, accuracy within so many calls; as tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from pilotfish.evaluate.budget import Point
from pilotfish.evaluate.samples import AtK
from pilotfish.evaluate.stats import Interval
from pilotfish.evaluate.table import NOTHING, Column, Section, percent, without_nan

_ABREAST = 4
_BUDGETS = (1, 2, 4, 8, 16, 40, 100)


def at_k_section(found: Sequence[AtK]) -> Section:
    """Pass@k and majority@k at a few k."""
    shown = _few([point.k for point in found])
    by_place = {(point.arm, point.k): point for point in found}
    arms = list(dict.fromkeys(point.arm for point in found))
    columns: list[Column] = [("method", arms)]
    for k in shown:
        columns.append((f"pass@{k}", [_share(by_place[arm, k].pass_at) for arm in arms]))
    for k in shown[1:]:
        columns.append((f"majority@{k}", [_share(by_place[arm, k].majority) for arm in arms]))
    return Section("Several samples a task, %", columns)


def budget_section(curves: Mapping[str, Sequence[Point]]) -> Section:
    """Accuracy at equal calls: of each method, the dearest play that stays within so many calls a task."""
    most = max(point.calls for points in curves.values() for point in points)
    budgets = [calls for at, calls in enumerate(_BUDGETS) if not at or _BUDGETS[at - 1] < most]
    columns: list[Column] = [("method", list(curves))]
    for calls in budgets:
        columns.append((f"{calls}", [_at(points, calls) for points in curves.values()]))
    return Section("Accuracy, %, within so many calls a task", columns)


def is_curve(curves: Mapping[str, Sequence[Point]]) -> bool:
    """Whether any method has more than one budget to tell of."""
    return any(len(points) > 1 for points in curves.values())


def budget_csv(curves: Mapping[str, Sequence[Point]]) -> str:
    """One line a point; `arm` and the fields of `Point` are columns."""
    out = io.StringIO()
    writer = csv.DictWriter(out, ["arm", *(field.name for field in fields(Point))], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"arm": arm, **asdict(point)} for arm, points in curves.items() for point in points)
    return out.getvalue()


def budget_record(curves: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Plain data for JSON, by arm; nan becomes None."""
    return {arm: [without_nan(asdict(point)) for point in points] for arm, points in curves.items()}


def at_k_record(found: Sequence[AtK]) -> list[dict[str, Any]]:
    """Plain data for JSON: pass@k and majority@k with their intervals; nan becomes None."""
    return [without_nan(asdict(point)) for point in found]


def _few(ks: Sequence[int]) -> list[int]:
    """1, the largest, and powers of two between them."""
    most = max(ks)
    powers = [k for k in sorted(set(ks)) if k < most and k & (k - 1) == 0]
    return [*powers[:1], *powers[1:][-(_ABREAST - 2) :], most]


def _at(points: Sequence[Point], calls: int) -> str:
    within = [point for point in points if point.calls <= calls]
    return percent(within[-1].accuracy) if within else NOTHING


def _share(found: Interval) -> str:
    return percent(found.estimate)
