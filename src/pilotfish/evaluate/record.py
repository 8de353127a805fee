"""An evaluation's results as files in a run's folder: `results.json`, `results.md` and `scores.jsonl` (see `scores`);
for each benchmark `results-NAME.csv` and `results-NAME-budget.csv`, with `results-NAME-attribution.csv` and
`results-NAME-rounds.csv` beside them where there is something to tell.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilotfish import state
from pilotfish.evaluate.accounts import SEARCH, Asked
from pilotfish.evaluate.attribution_table import attribution_csv, attribution_record
from pilotfish.evaluate.budget_table import at_k_record, budget_csv, budget_record
from pilotfish.evaluate.page import page_markdown
from pilotfish.evaluate.rounds_table import rounds_csv, rounds_record
from pilotfish.evaluate.scores import FILE as SCORES
from pilotfish.evaluate.scores import lines
from pilotfish.evaluate.table import to_csv, to_json, without_nan

if TYPE_CHECKING:
    from pilotfish.evaluate.bench import Result

ROUNDS, BUDGET, AT_K, SEEDS = "by round", "by budget", "at k", "over seeds"
ASKED, ATTRIBUTION = "asked", "attribution"
"""Where `results.json` has figures beside the rows, each by benchmark; its other keys are benchmarks and `written`."""
WEIGHTS = "weights of step 0"
"""Where it has these by their name, if any were measured: see `Outcome`."""


def write(results: Sequence[Result], folder: Path) -> None:
    """Write all files of an evaluation, each whole or not at all."""
    for name, text in _files(results).items():
        state.write(folder / name, text)


def names(results: Sequence[Result]) -> list[str]:
    """The files that `write` writes."""
    return list(_files(results))


def file_name(what: str, suffix: str) -> str:
    """Name of a benchmark's file."""
    return f"results-{what.replace('/', '-')}.{suffix}"


def _files(results: Sequence[Result]) -> dict[str, str]:
    notes = (f"{one.told}\n" for result in results for one in result.weights)
    files = {
        "results.md": "\n".join([*map(page_markdown, results), *notes]),
        "results.json": json.dumps(_record(results), indent=1),
    }
    for result in results:
        files[file_name(result.benchmark, "csv")] = to_csv(result.rows)
        if result.rounds:
            files[file_name(f"{result.benchmark}-rounds", "csv")] = rounds_csv(result.rounds)
        if result.budgets:
            files[file_name(f"{result.benchmark}-budget", "csv")] = budget_csv(result.budgets)
        if result.attribution:
            files[file_name(f"{result.benchmark}-attribution", "csv")] = attribution_csv(result.attribution)
    files[SCORES] = "".join(f"{line}\n" for result in results for line in lines(result.scores))
    return files


def _record(results: Sequence[Result]) -> dict[str, Any]:
    record: dict[str, Any] = {result.benchmark: json.loads(to_json(result.rows)) for result in results}
    parts = {
        ROUNDS: {result.benchmark: rounds_record(result.rounds) for result in results if result.rounds},
        BUDGET: {result.benchmark: budget_record(result.budgets) for result in results if result.budgets},
        AT_K: {result.benchmark: at_k_record(result.at_k) for result in results if result.at_k},
        SEEDS: {result.benchmark: without_nan(asdict(result.seeds)) for result in results if result.seeds},
        ATTRIBUTION: {
            result.benchmark: attribution_record(result.attribution) for result in results if result.attribution
        },
        ASKED: {
            name: _asked(members)
            for result in results
            for name, members in ((SEARCH, result.search), (result.benchmark, result.asked))
            if members
        },
        WEIGHTS: {
            one.name: {"step": one.step, "trained": one.trained, "note": one.told}
            for result in results
            for one in result.weights
        },
    }
    filled = {name: part for name, part in parts.items() if part}
    return record | filled | {"written": time.strftime("%Y-%m-%dT%H:%M:%S")}


def _asked(members: Mapping[str, Asked]) -> dict[str, Any]:
    return {member: {**asdict(asked.account), "recalled": asked.recalled} for member, asked in members.items()}
