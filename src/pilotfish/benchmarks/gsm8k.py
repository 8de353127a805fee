"""GSM8K: grade-school word problems of two to eight steps; the answer is one number.

The release writes the worked solution and, after ####, the number. On the hub: openai/gsm8k, configuration main, splits
train (7,473) and test (1,319).
"""

from __future__ import annotations

from typing import Any

from pilotfish.benchmarks.benchmark import Benchmark


def shape(row: dict[str, Any]) -> dict[str, Any]:
    """Split the release's answer into the solution and the number, without thousands separators."""
    text = str(row["answer"])
    solution, mark, number = text.rpartition("####")
    if not mark:
        return row
    return {"solution": text if solution.strip() else None, **row, "answer": number.strip().replace(",", "")}


BENCHMARK = Benchmark(
    name="gsm8k",
    about="grade-school word problems, one number each",
    hub="openai/gsm8k",
    config="main",
    split="test",
    sizes={"train": 7473, "test": 1319},
    licence="MIT",
    shape=shape,
)
