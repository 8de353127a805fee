"""The built-in benchmarks by name; `pilotfish tasks` lists them, `load_tasks("math500")` reads one.

A new one is a file here with a `BENCHMARK`, and its name in the list below.
"""

from __future__ import annotations

from pilotfish.benchmarks import aime24, amc23, bbh, gsm8k, math, math8k, math500, minerva, mmlu, olympiadbench
from pilotfish.benchmarks.benchmark import BOXED, LETTER, AnswerForm, Benchmark

__all__ = ["BENCHMARKS", "BOXED", "LETTER", "AnswerForm", "Benchmark"]

BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (aime24, amc23, math500, minerva, olympiadbench, gsm8k, math, math8k, bbh, mmlu)
}
