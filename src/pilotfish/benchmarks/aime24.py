"""AIME 2024: the 30 problems of the American Invitational Mathematics Examination I and II of 2024.

Every answer is an integer from 0 to 999. With 30 problems one of them is 3.3 points: report intervals, or several
samples a problem. `pilotfish eval` reads it from the hub (HuggingFaceH4/aime_2024, split train).
"""

from __future__ import annotations

from typing import Any

from pilotfish.benchmarks.benchmark import Benchmark


def shape(row: dict[str, Any]) -> dict[str, Any]:
    """Answers as plain integers: the examination writes 025 for 25."""
    answer = str(row["answer"])
    return {**row, "answer": str(int(answer)) if answer.isdigit() else answer}


BENCHMARK = Benchmark(
    name="aime24",
    about="AIME I and II of 2024, integer answers from 0 to 999",
    hub="HuggingFaceH4/aime_2024",
    split="test",
    hub_split="train",
    sizes={"test": 30},
    licence="problems by the Mathematical Association of America; no data licence stated",
    fields={"question": "problem"},
    shape=shape,
)
