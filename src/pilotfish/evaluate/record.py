"""An evaluation's results as files in a run's folder: `results.json` and `results.md`, and for each benchmark
`results-NAME.csv`, with `results-NAME-rounds.csv` beside it where a team has a leader.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish.evaluate.rounds_table import rounds_csv, rounds_markdown, rounds_record
from pilotfish.evaluate.table import render_markdown, to_csv, to_json

if TYPE_CHECKING:
    from pilotfish.evaluate.bench import Result

ROUNDS = "by round"
"""Where `results.json` has the figures by round; its other keys are benchmarks and `written`."""


def write(results: Sequence[Result], folder: Path) -> None:
    """Write all files of an evaluation."""
    for name, text in _files(results).items():
        (folder / name).write_text(text)


def names(results: Sequence[Result]) -> list[str]:
    """The files that `write` writes."""
    return list(_files(results))


def csv_name(benchmark: str) -> str:
    """Name of a benchmark's CSV."""
    return f"results-{benchmark.replace('/', '-')}.csv"


def _files(results: Sequence[Result]) -> dict[str, str]:
    files = {"results.md": "\n".join(map(_page, results)), "results.json": json.dumps(_record(results), indent=1)}
    for result in results:
        files[csv_name(result.benchmark)] = to_csv(result.rows)
        if result.rounds:
            files[csv_name(f"{result.benchmark}-rounds")] = rounds_csv(result.rounds)
    return files


def _page(result: Result) -> str:
    teams = "".join(f"\n### {arm}\n\n{rounds_markdown(cells)}" for arm, cells in result.rounds.items())
    return f"## {result.benchmark}\n\n{render_markdown(result.rows)}{teams}"


def _record(results: Sequence[Result]) -> dict[str, Any]:
    record: dict[str, Any] = {result.benchmark: json.loads(to_json(result.rows)) for result in results}
    rounds = {result.benchmark: rounds_record(result.rounds) for result in results if result.rounds}
    return record | ({ROUNDS: rounds} if rounds else {}) | {"written": time.strftime("%Y-%m-%dT%H:%M:%S")}
