"""MATH500: 500 problems drawn from the test set of MATH, with subject and level 1 to 5.

The split is the one of "Let's Verify Step by Step" (openai/prm800k). On the hub: HuggingFaceH4/MATH-500, split test.
Models trained on the rest of MATH's test set (12,000-problem splits, math8k) have not seen these 500.
"""

from __future__ import annotations

from pilotfish.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(
    name="math500",
    about="500 problems of the MATH test set, levels 1 to 5",
    hub="HuggingFaceH4/MATH-500",
    split="test",
    sizes={"test": 500},
    licence="MIT (MATH; the split too)",
    fields={"question": "problem", "id": "unique_id"},
)
