"""AMC 2023: 40 problems of the American Mathematics Competitions 12A and 12B of 2023, asked without their options.

The answers are numbers. One problem is 2.5 points. On the hub: math-ai/amc23, split test; the copy with 83 problems
that some tables use (2022 and 2023) is another set, and its figures do not compare with this one's.
"""

from __future__ import annotations

from typing import Any

from pilotfish.benchmarks.benchmark import Benchmark


def shape(row: dict[str, Any]) -> dict[str, Any]:
    """Whole numbers as integers: the release writes 27.0 for 27."""
    return {**row, "answer": str(row["answer"]).removesuffix(".0")}


BENCHMARK = Benchmark(
    name="amc23",
    about="AMC 12A and 12B of 2023, numeric answers",
    hub="math-ai/amc23",
    split="test",
    sizes={"test": 40},
    licence="problems by the Mathematical Association of America; no data licence stated",
    shape=shape,
)
