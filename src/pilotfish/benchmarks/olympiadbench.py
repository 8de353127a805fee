"""OlympiadBench: open-ended competition problems in mathematics, English, text only (OE_TO_maths_en_COMP).

Answers are numbers, expressions, tuples and intervals; `is_multiple_answer` marks those that list several, `error` a
tolerance. On the hub: Hothan/OlympiadBench, 674 rows; evaluation harnesses carry 675.
"""

from __future__ import annotations

from typing import Any

from pilotfish.benchmarks.benchmark import Benchmark


def shape(row: dict[str, Any]) -> dict[str, Any]:
    """One answer string instead of a list, and the shared context of a multi-part problem before its question."""
    row = dict(row)
    if isinstance(row.get("answer"), list):
        row["answer"] = ", ".join(str(part) for part in row["answer"])
    if context := row.pop("context", None):
        row["question"] = f"{context}\n{row['question']}"
    return row


BENCHMARK = Benchmark(
    name="olympiadbench",
    about="olympiad problems, open-ended, English, text only",
    hub="Hothan/OlympiadBench",
    config="OE_TO_maths_en_COMP",
    split="test",
    hub_split="train",
    sizes={"test": 675},
    licence="MIT (repository OpenBMB/OlympiadBench)",
    fields={"answer": "final_answer", "subject": "subfield"},
    shape=shape,
)
