"""math8k: 8,523 problems of MATH, levels 3 to 5; the training set of SimpleRL-Zoo and, cut to 500, of AgentPO.

Two rows of the release have no answer and are left out. Of the other 8,521, 5,586 come from MATH's train split and
2,935 from its test split, none of them in MATH500: do not test on MATH's test split after training on this. Four
problems also stand in OlympiadBench. On the hub: hkust-nlp/SimpleRL-Zoo-Data, simplelr_qwen_level3to5/train.parquet.
"""

from __future__ import annotations

from pilotfish.benchmarks.benchmark import Benchmark

BENCHMARK = Benchmark(
    name="math8k",
    about="MATH problems of levels 3 to 5, for training",
    hub="hkust-nlp/SimpleRL-Zoo-Data",
    data_files="simplelr_qwen_level3to5/train.parquet",
    split="train",
    sizes={"train": 8523},
    licence="MIT (MATH; the selection too)",
    fields={"question": "extra_info.question", "answer": "extra_info.answer", "level": "extra_info.level"},
    files=("simplerl_math_lv3to5_8k",),
    without_answer=2,
)
