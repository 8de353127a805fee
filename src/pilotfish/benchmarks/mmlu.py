"""MMLU: multiple choice with four options over 57 subjects, from abstract algebra to world religions.

The model sees the question and, below it, `A. …` to `D. …`; the answer is a letter. Read for testing by default (split
test, 14,042, of which 105 repeat an earlier question); `subjects: [anatomy, virology]` keeps some. On the hub:
cais/mmlu, configuration all; its auxiliary_train comes from other sets and has no subjects.
"""

from __future__ import annotations

from pilotfish.benchmarks.benchmark import LETTER, Benchmark

BENCHMARK = Benchmark(
    name="mmlu",
    about="multiple choice over 57 subjects",
    hub="cais/mmlu",
    config="all",
    split="test",
    sizes={"test": 14042, "validation": 1531, "dev": 285, "auxiliary_train": 99842},
    licence="MIT (hendrycks/test)",
    verifier="choice",
    instruction=LETTER,
)
