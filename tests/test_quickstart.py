"""The quickstart on the real small model: a few steps, the comparison, and a second run that only prints it again.

.venv/bin/python -m pytest -m slow tests/test_quickstart.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.cli import main
from pilotfish.run import Run

SHORT = {
    "train.steps": "2",
    "train.evaluate_every": "1",
    "train.tasks_per_step": "4",
    "tasks.holdout": "8",
    "evaluate.benchmarks": "[{source: recipes/data/sums-test.jsonl, limit: 24, "
    "instruction: Answer with only the final number.}]",
}
ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_quickstart_trains_measures_and_is_not_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    folder = tmp_path / "run"
    settings = [argument for name, value in SHORT.items() for argument in ("--set", f"{name}={value}")]
    assert main(["train", "recipes/quickstart.yaml", "--run", str(folder), *settings]) == 0
    assert main(["eval", str(folder)]) == 0
    rows = json.loads((folder / "results.json").read_text())["sums-test"]
    assert [row["name"] for row in rows] == [
        "solo",
        "hint, untrained",
        "hint, trained",
        "empty words",
        "another task's words",
    ]
    assert all(row["n"] == 24 for row in rows)
    assert rows[2]["tokens_per_member"]["collaborator"] > 0
    first, asked = (folder / "results.json").read_text(), turns(folder)

    assert main(["train", str(folder)]) == 0
    assert main(["eval", str(folder)]) == 0
    again = json.loads((folder / "results.json").read_text())
    assert again["sums-test"] == json.loads(first)["sums-test"]
    assert turns(folder) == asked


def turns(folder: Path) -> int:
    """How many calls a run has recorded."""
    journal = Run(folder).journal(writable=False)
    try:
        return sum(1 for _ in journal.turns())
    finally:
        journal.close()
