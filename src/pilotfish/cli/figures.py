"""Figures as a reader would say them: counts, money, durations."""

from __future__ import annotations


def count(value: float) -> str:
    """A count in three figures: 812, 12.4 k, 3.09 B."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scaled = value / (1e3 if unit == "k" else size)
            return f"{scaled:.3g} {unit}" if scaled < 1000 else f"{scaled:,.0f} {unit}"
    return f"{value:,.0f}"


def money(value: float) -> str:
    """Money with two decimals; of small sums two figures that count: 1,204.50, 0.37, 0.0021."""
    if value >= 0.1 or not value:
        return f"{value:,.2f}"
    return f"{value:#.2g}" if value >= 1e-4 else f"{value:.0e}"


def span(least: float, most: float) -> str:
    """From one duration to another, in one figure where they read alike."""
    low, high = duration(least), duration(most)
    return low if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """Seconds as a reader would say them: `48 s`, `12 min`, `3.5 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
