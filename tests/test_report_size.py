"""A report of many methods and tasks stays a page that opens."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pilotfish.report.main import report
from reporting import evaluated

MOST = 5_000_000
"""Bytes of the page."""
ARMS, TASKS = 12, 10_000


def test_twelve_methods_on_ten_thousand_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    words = "step by step & on < and > on " * 3_000

    def said(model: str, text: str) -> str:
        return words if model == "collaborator" else f"{words} \\boxed{{{2 if 'Hint' in text else 3}}}"

    folder = evaluated(tmp_path, said, count=4)
    grow(folder)
    begun = time.process_time()
    page = report(folder)[0]
    assert time.process_time() - begun < 60
    assert 200_000 < page.stat().st_size < MOST
    assert "more characters in the journal]" in page.read_text()
    assert (folder / "report.md").stat().st_size < MOST
    assert len((folder / "figures/sums-by-subject.csv").read_text().splitlines()) == 1 + 100 * ARMS


def grow(folder: Path) -> None:
    """Make of an evaluation one of many methods, tasks and subjects, that all stand on the same few episodes."""
    results = json.loads((folder / "results.json").read_text())
    scores = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    solo, hint = results["sums"]
    results["sums"] = [solo] + [{**hint, "name": f"hint {number}", "difference_to": {}} for number in range(1, ARMS)]
    of = {arm: [score for score in scores if score["arm"] == arm] for arm in ("solo", "hint")}
    with (folder / "scores.jsonl").open("w") as file:
        for number, row in enumerate(results["sums"]):
            for task in range(TASKS):
                score = of["hint" if number else "solo"][task % 4]
                grown = {"arm": row["name"], "task": str(task), "subject": f"subject {task % 400}", "answer": ""}
                file.write(json.dumps({**score, **grown}) + "\n")
    (folder / "results.json").write_text(json.dumps(results))
