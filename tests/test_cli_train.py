"""`pilotfish train` and `pilotfish eval`, from a recipe to the tables, with a tiny model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pilotfish.cli import main
from tiny import save_tiny


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    for name, count in (("train", 12), ("test", 3)):
        rows = [{"question": f"What is {n} + {len(name)}?", "answer": str(n + len(name))} for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sampling = {"temperature": 0.0, "max_tokens": 4}
    model = str(save_tiny(tmp_path / "model"))
    data = {
        "tasks": {"train": "train.jsonl", "holdout": 4},
        "team": {
            "collaborator": {"model": model, "train": "lora", "sampling": sampling},
            "actor": {"model": model, "sampling": sampling},
        },
        "topology": "hint",
        "train": {
            "group_size": 2,
            "tasks_per_step": 2,
            "micro_batch": 4,
            "updates_per_step": 1,
            "steps": 2,
            "evaluate_every": 2,
        },
        "evaluate": {"benchmarks": ["test.jsonl"]},
    }
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps(data))
    return file


def test_a_recipe_is_trained_and_measured(recipe: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(recipe)]) == 0
    out, err = capfd.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["holdout", "weights", "note", "next"]
    untrained = "the best weights are those before training (step 0)"  # two steps teach a random model nothing
    assert f"note       {untrained}" in out
    assert "next       pilotfish eval runs/own" in out
    lines = err.splitlines()
    assert lines[0].startswith("step 0/2  holdout accuracy")
    assert any(
        line.startswith("step 1/2  ") and "reward" in line and re.search(r" left  \S.* tokens$", line) for line in lines
    )
    assert all(line.startswith("step ") for line in lines)

    assert main(["train", "runs/own"]) == 0
    assert "this run is finished" in capfd.readouterr().err

    assert main(["eval", "runs/own"]) == 0
    out, err = capfd.readouterr()
    assert [line.partition("  ")[0] for line in err.splitlines() if ": 3 tasks" in line] == [
        "test: solo: 3 tasks",
        "test: hint, untrained: 3 tasks",
        "test: hint, trained: 3 tasks",
    ]
    assert "Differences on the same tasks" in out
    assert f"note: trained: {untrained}" in out
    assert "in runs/own: results.md, results.json, results-test.csv" in out
    assert {"results.md", "results.json", "results-test.csv"} <= {file.name for file in Path("runs/own").iterdir()}


def test_another_recipe_in_the_same_folder_is_refused_in_one_line_once_something_was_answered(
    recipe: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("runs/own").mkdir(parents=True)
    assert main(["eval", str(recipe), "--set", "evaluate.benchmarks=[]"]) == 2
    assert "evaluate.benchmarks is empty" in capfd.readouterr().err
    assert main(["train", str(recipe), "--set", "seed=1"]) == 0
    assert main(["train", str(recipe)]) == 2
    assert "holds a run of another recipe (seed differ)" in capfd.readouterr().err.splitlines()[-1]
