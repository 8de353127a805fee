"""A training run as one picture: reward, holdout accuracy, leak rate and tokens over steps. Methods over budget as one.

    from pilotfish.evaluate.plot import plot_budget, plot_training
    plot_training(Path("runs/hint/metrics.jsonl"), Path("runs/hint/training.png"))
    plot_budget(result.budgets, Path("runs/hint/results-math500-budget.png"))

The first reads one JSON object a line, each with `step` and any of `reward`, `holdout/accuracy`, `trainee/leak_rate`
and `tokens/<member>`; a curve that no line has is left out. The background is transparent and the ink a mid grey, so
that the picture reads on a light page and on a dark one. Needs the extra `report`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.evaluate.budget import MAJORITY, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK = "#808080"
_COLOURS = ("#3d8fd1", "#d9730d", "#1a9e77", "#b06bb0")
"""Told apart with any colour vision, and at 3 : 1 or more against white and against near-black."""
_STROKES = ("-", "--", "-.", ":", (0, (1, 3)))
_TOKENS = "tokens/"


@dataclass(frozen=True, slots=True)
class _Curve:
    """One metric over the steps that have it."""

    label: str
    steps: list[int]
    values: list[float]


def plot_training(metrics: Path, out: Path) -> None:
    """Draw the run's curves.

    Args:
        metrics: the run's `metrics.jsonl`; it may still be growing.
        out: the picture to write; its suffix says the format.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        ValueError: no line has anything to draw, or a line before the last is broken.
    """
    rows = _read(metrics)
    members = sorted({key for row in rows for key in row if key.startswith(_TOKENS)})
    panels = {
        "reward and holdout accuracy": [_curve(rows, "reward"), _curve(rows, "holdout/accuracy")],
        "leak rate": [_curve(rows, "trainee/leak_rate")],
        "tokens per member": [_curve(rows, key) for key in members],
    }
    drawn = {title: kept for title, curves in panels.items() if (kept := [curve for curve in curves if curve.steps])}
    if not drawn:
        raise ValueError(
            f"{metrics}: nothing to draw; no line has reward, holdout/accuracy, trainee/leak_rate or tokens"
        )
    figure = _figure(len(drawn))
    for axes, (title, curves) in zip(figure.axes, drawn.items(), strict=True):
        _draw(axes, title, curves)
    figure.axes[-1].set_xlabel("step", color=_INK)
    figure.savefig(out, transparent=True, dpi=150)


def plot_budget(curves: Mapping[str, Sequence[Point]], out: Path) -> None:
    """Draw accuracy over calls and over tokens a task, a curve for each method; a cross is a majority of samples.

    Args:
        curves: points by method, the cheapest first, as `budget.curve` gives them.
        out: the picture to write; its suffix says the format.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    figure = _figure(2, sharex=False)
    for axes, unit in zip(figure.axes, ("calls", "tokens"), strict=True):
        for place, (arm, points) in enumerate(curves.items()):
            colour = _COLOURS[place % len(_COLOURS)]
            stroke = _STROKES[place // len(_COLOURS) % len(_STROKES)]
            for marker, sampled in (("o", False), ("x", True)):
                drawn = [point for point in points if (point.by == MAJORITY) == sampled and isfinite(point.accuracy)]
                spent, shares = [getattr(point, unit) for point in drawn], [point.accuracy for point in drawn]
                label = arm if not sampled else "_"  # matplotlib's name for a line that the legend leaves out
                axes.plot(spent, shares, marker=marker, linestyle=stroke, color=colour, label=label, markersize=4)
        axes.set_xscale("log")
        _dress(axes, f"accuracy over {unit} a task")
    figure.axes[0].legend(frameon=False, labelcolor=_INK, fontsize=9)
    figure.savefig(out, transparent=True, dpi=150)


def _read(metrics: Path) -> list[dict[str, Any]]:
    """Lines in the order of their steps. A resumed run writes some steps again: what was written last counts."""
    lines = metrics.read_text(encoding="utf-8").splitlines()
    merged: dict[int, dict[str, Any]] = {}
    for place, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if place == len(lines):
                break  # the run was killed here, or is writing at this moment
            raise ValueError(
                f"{metrics}, line {place}: not JSON ({error}); delete the line to draw the rest"
            ) from error
        if "step" in row:
            merged.setdefault(row["step"], {}).update(row)
    return [merged[step] for step in sorted(merged)]


def _curve(rows: Sequence[dict[str, Any]], key: str) -> _Curve:
    points = [row for row in rows if row.get(key) is not None and isfinite(row[key])]
    return _Curve(
        key.removeprefix(_TOKENS).replace("/", " "), [row["step"] for row in points], [row[key] for row in points]
    )


def _figure(panels: int, *, sharex: bool = True) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'pilotfish[report]'") from error
    figure = Figure(figsize=(7, 0.8 + 2 * panels), layout="constrained")
    figure.subplots(panels, 1, sharex=sharex)
    return figure


def _draw(axes: Axes, title: str, curves: Sequence[_Curve]) -> None:
    for place, curve in enumerate(curves):
        axes.plot(
            curve.steps,
            curve.values,
            label=curve.label,
            color=_COLOURS[place % len(_COLOURS)],
            linestyle=_STROKES[place % len(_STROKES)],
            marker="o" if len(curve.steps) <= 40 else "",
            markersize=4,
            linewidth=1.6,
        )
    _dress(axes, title)
    if len(curves) > 1:
        axes.legend(frameon=False, labelcolor=_INK, fontsize=9)


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", color=_INK, fontsize=10)
    axes.tick_params(which="both", colors=_INK)
    axes.grid(axis="y", color=_INK, alpha=0.25)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_INK)
