"""MATH: competition problems of seven subjects and levels 1 to 5, with worked solutions.

Read for training by default (split train, 7,500); `levels: [3, 4, 5]` keeps the harder ones. The test split holds
MATH500. On the hub: DigitalLearningGmbH/MATH-lighteval; the answer is the last box of the solution.
"""

from __future__ import annotations

from pilotfish.benchmarks.benchmark import Benchmark, answer_from_solution

BENCHMARK = Benchmark(
    name="math",
    about="competition problems, seven subjects, levels 1 to 5",
    hub="DigitalLearningGmbH/MATH-lighteval",
    split="train",
    sizes={"train": 7500, "test": 5000},
    licence="MIT (hendrycks/math)",
    fields={"question": "problem", "subject": "type"},
    shape=answer_from_solution,
    without_answer=2,
)
