"""Minerva: 272 undergraduate problems in physics, astronomy, chemistry and mathematics from MIT OpenCourseWare.

Also called OCWCourses or minerva_math. The gold answer is the last box of the worked solution, often a number without
its unit; a local copy may list other accepted forms in `alt_answers`. On the hub: math-ai/minervamath, split test.
"""

from __future__ import annotations

from pilotfish.benchmarks.benchmark import Benchmark, answer_from_solution

BENCHMARK = Benchmark(
    name="minerva",
    about="undergraduate science problems from MIT OpenCourseWare",
    hub="math-ai/minervamath",
    split="test",
    sizes={"test": 272},
    licence="not stated in the release; drawn from MIT OpenCourseWare: treat as non-commercial",
    fields={"question": "problem"},
    shape=answer_from_solution,
    files=("minerva_math",),
)
