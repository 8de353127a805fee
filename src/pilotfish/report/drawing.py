"""Drawings of the report as inline SVG, in colours that the page's style gives for light and dark.

    scatter([Spot("1", 0.002, 0.61, 0.55, 0.67, title="solo")], "money a task", front=["1"])
    curves([Curve("leader", [Mark("0", 0.5, 0.4, 0.6), Mark("1", 0.6, 0.5, 0.7)])], "round")

Shares go up, in percent. Every text is escaped; nothing is fetched and no script is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, isfinite, log10

from pilotfish.evaluate.table import digits, percent

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 26, 48
SERIES = 8
"""Colours that the page's style has; further curves take them again, dashed."""
_LABEL = (19.0, 15.0)
"""Width and height that a spot's number needs."""
_BESIDE = ((7, 5), (-24, 5), (-8, -9), (-8, 20), (8, -8), (8, 18), (-24, -8), (-24, 18), (25, 5), (-42, 5))


@dataclass(frozen=True, slots=True)
class Spot:
    """A method at its price."""

    number: str
    """What is written beside it."""
    x: float
    y: float
    """A share in [0, 1]."""
    low: float | None
    high: float | None
    title: str
    """Shown when a reader points at it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One place of a curve."""

    x: str | float
    """A word, one of a row of equal steps; or a number."""
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """One line through marks, by its name."""

    name: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class _Scale:
    """From a value to a place along an axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        held = min(max(value, self.low), self.high)  # an end may lie beyond what a share can be
        low, high, value = (log10(v) if self.log else v for v in (self.low, self.high, held))
        return self.start + (self.end - self.start) * (value - low) / ((high - low) or 1.0)


def scatter(spots: Sequence[Spot], title: str, front: Sequence[str]) -> str:
    """Spots by price and accuracy.

    Args:
        spots: at least one.
        title: of the axis across.
        front: numbers of those on the Pareto front, from cheap to dear; a line joins them.
    """
    across, up = _across([spot.x for spot in spots]), _up([(spot.y, spot.low, spot.high) for spot in spots])
    places = {spot.number: (across(spot.x), up(spot.y)) for spot in spots}
    parts = [_frame(up), _ticks(across), _axis_title(title)]
    parts += [
        _reach(across(spot.x), up(spot.low), up(spot.high)) for spot in spots if spot.low is not None and spot.high
    ]
    if len(front) > 1:
        parts.append(f'<path class="front" d="{_steps([places[number] for number in front])}"/>')
    written = _labels(list(places.values()))
    for spot, label in zip(spots, written, strict=True):
        x, y = places[spot.number]
        kind = "spot on" if spot.number in front else "spot"
        shown = f"<title>{escape(spot.title)}</title>"
        parts.append(f'<g>{shown}<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
        parts.append(f'<text class="number" x="{label[0]:.1f}" y="{label[1]:.1f}">{escape(spot.number)}</text></g>')
    return _svg(f"accuracy against {title}", parts)


def curves(drawn: Sequence[Curve], title: str) -> str:
    """Lines through their marks, with a legend; words stand at equal steps, numbers where they belong."""
    words = list(dict.fromkeys(mark.x for curve in drawn for mark in curve.marks if isinstance(mark.x, str)))
    numbers = [float(mark.x) for curve in drawn for mark in curve.marks if not isinstance(mark.x, str)]
    marks = [mark for curve in drawn for mark in curve.marks]
    up = _up([(mark.y, mark.low, mark.high) for mark in marks])
    across = _Scale(-0.4, len(words) - 0.6, LEFT, WIDTH - RIGHT) if words else _across(numbers)
    parts = [_frame(up), _words(words, across) if words else _ticks(across), _axis_title(title)]
    for at, curve in enumerate(drawn):
        shift = (at - (len(drawn) - 1) / 2) * min(5.0, 30 / len(drawn)) if words else 0.0
        parts.append(_curve(curve, at, [across(_value(mark.x, words)) + shift for mark in curve.marks], up))
    return _svg(f"accuracy by {title}", parts) + _legend([curve.name for curve in drawn])


def _value(x: str | float, words: Sequence[str | float]) -> float:
    return float(words.index(x)) if isinstance(x, str) else float(x)


def _curve(curve: Curve, at: int, xs: Sequence[float], up: _Scale) -> str:
    style = _style(at)
    line = " ".join(f"{x:.1f},{up(mark.y):.1f}" for x, mark in zip(xs, curve.marks, strict=True))
    parts = [f'<polyline points="{line}"/>']
    for x, mark in zip(xs, curve.marks, strict=True):
        if mark.low is not None and mark.high is not None:
            parts.append(_reach(x, up(mark.low), up(mark.high)))
        told = f"{curve.name}, {mark.x if isinstance(mark.x, str) else digits(mark.x)}: {percent(mark.y)} %"
        parts.append(f'<circle cx="{x:.1f}" cy="{up(mark.y):.1f}" r="3"><title>{escape(told)}</title></circle>')
    return f'<g class="curve {style}">{"".join(parts)}</g>'


def _legend(names: Sequence[str]) -> str:
    keys = "".join(f'<li class="{_style(at)}">{escape(name)}</li>' for at, name in enumerate(names))
    return f'<ul class="legend">{keys}</ul>' if len(names) > 1 else ""


def _style(at: int) -> str:
    return f"s{at % SERIES}" + (" dashed" if at >= SERIES else "")


def _across(values: Sequence[float]) -> _Scale:
    """From 0, or by powers of ten where the dearest is far from the cheapest."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 15:
        return _Scale(low / 1.4, high * 1.4, LEFT, WIDTH - RIGHT, log=True)
    return _Scale(0.0, high * 1.08 or 1.0, LEFT, WIDTH - RIGHT)


def _up(values: Sequence[tuple[float, float | None, float | None]]) -> _Scale:
    """From a little below the lowest end to a little above the highest, within 0 and 1."""
    ends = [end for value in values for end in value if end is not None and isfinite(end)]
    low, high = max(0.0, min(ends) - 0.03), min(1.0, max(ends) + 0.03)
    return _Scale(low, max(high, low + 0.05), HEIGHT - BOTTOM, TOP)


def _frame(up: _Scale) -> str:
    step = _step((up.high - up.low) * 100, 5)
    first, last = ceil(up.low * 100 / step), floor(up.high * 100 / step)
    return (
        "".join(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
            f'<text x="{LEFT - 6}" y="{up(tick) + 5:.1f}" text-anchor="end">{digits(tick * 100)}</text>'
            for tick in (at * step / 100 for at in range(first, last + 1))
        )
        + f'<text x="4" y="{TOP - 13}">%</text>'
    )


def _ticks(across: _Scale) -> str:
    if across.log:
        powers = range(floor(log10(across.low)), ceil(log10(across.high)) + 1)
        many = log10(across.high / across.low) > 3
        every = [power * 10.0**exponent for exponent in powers for power in ((1,) if many else (1, 2, 5))]
    else:
        step = _step(across.high, 5)
        every = [at * step for at in range(int(across.high / step) + 1)]
    kept = [tick for tick in every if across.low <= tick <= across.high * (1 + 1e-9)]
    return "".join(_tick(across(tick), digits(tick)) for tick in kept)


def _words(words: Sequence[str | float], across: _Scale) -> str:
    every = ceil(len(words) / 12)
    return "".join(_tick(across(at), str(word)) for at, word in enumerate(words) if at % every == 0)


def _tick(x: float, label: str) -> str:
    y = HEIGHT - BOTTOM
    line = f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>'
    return f'{line}<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{escape(label)}</text>'


def _axis_title(title: str) -> str:
    return f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(title)}</text>'


def _reach(x: float, low: float, high: float) -> str:
    return f'<line class="reach" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'


def _steps(places: Sequence[tuple[float, float]]) -> str:
    """To the right first, then up: between two methods the cheaper one is the best to be had."""
    first, *_ = places
    moves = "".join(f"H{x:.1f}V{y:.1f}" for _, (x, y) in pairwise(places))
    return f"M{first[0]:.1f} {first[1]:.1f}{moves}"


def _labels(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A place for each spot's number where it covers neither a spot nor another number, if there is one."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    found = []
    for x, y in places:
        boxes = [(x + dx, y + dy - 12, x + dx + _LABEL[0], y + dy - 12 + _LABEL[1]) for dx, dy in _BESIDE]
        inside = [box for box in boxes if box[0] > LEFT and box[2] < WIDTH and box[1] > 0 and box[3] < HEIGHT - BOTTOM]
        box = min(inside or boxes, key=lambda box: sum(_cover(box, other) for other in taken))
        taken.append(box)
        found.append((box[0] + 1, box[1] + 12))
    return found


def _cover(box: tuple[float, ...], other: tuple[float, ...]) -> float:
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0


def _step(reach: float, parts: int) -> float:
    """A round step that divides a reach into about so many parts."""
    rough = reach / parts
    power = 10.0 ** floor(log10(rough))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= rough * 0.999)


def _svg(title: str, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"
