"""A killed run goes on to the run it would have been; a finished one is left alone; another recipe's is refused.

The killed runs are children of one process of its own:

    python tests/test_train_resume.py RECIPE.yaml FOLDER CALL [FOLDER CALL …]
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from counting import count_calls
from pilotfish.engine.transformers import TransformersEngine
from pilotfish.recipe import Recipe
from pilotfish.recipe_file import load_recipe
from pilotfish.run import Run, RunError
from pilotfish.train.main import train
from training import vowels_recipe

pytestmark = pytest.mark.timeout(1500)

CALLS = 4 * 4 + 6 * 16
KILLED_AT = [9, 58, 95]
"""In the first step, before there is a checkpoint; in the middle of a step after one; in the second epoch."""


def recorded(folder: Path) -> dict[str, int]:
    """How often each call is in a run's journal."""
    times: dict[str, int] = {}
    for file in (folder / "journal").glob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            for (key,) in connection.execute("SELECT key FROM turns"):
                times[key] = times.get(key, 0) + 1
    return times


def weights(run: Run) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(run.best / "model.safetensors")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An unbroken run, and the folders of three that were killed."""
    folder = tmp_path_factory.mktemp("resume")
    os.environ["PILOTFISH_CACHE"] = str(folder / "cache")
    recipe = vowels_recipe(folder, updates_per_step=2, steps=6, evaluate_every=2, save_every=2, learning_rate=1e-2)
    (folder / "recipe.yaml").write_text(recipe.dump())
    jobs = [(str(folder / f"killed{at}"), str(at)) for at in KILLED_AT]
    command = [sys.executable, __file__, str(folder / "recipe.yaml"), *itertools.chain(*jobs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, done.stderr
    complete = TransformersEngine.complete
    try:
        yield recipe, train(recipe, folder / "unbroken"), folder
    finally:
        TransformersEngine.complete = complete  # type: ignore[method-assign]


@pytest.mark.parametrize("at", KILLED_AT)
def test_a_killed_run_goes_on_to_the_run_it_would_have_been(at: int, scene: Any, monkeypatch: Any) -> None:
    recipe, unbroken, folder = scene
    killed = folder / f"killed{at}"
    before = recorded(killed)
    assert at - 16 <= len(before) < at

    monkeypatch.setattr(TransformersEngine, "complete", TransformersEngine.complete)
    calls = count_calls()
    resumed = train(recipe, killed)
    after = recorded(killed)
    assert len(calls) == CALLS - len(before), "a call that was recorded was asked again, or one is missing"
    assert set(after.values()) == {1}
    assert after.keys() == recorded(unbroken.folder).keys(), "other tasks, or the same in another order"

    assert [figures(row) for row in resumed.logged()] == [figures(row) for row in unbroken.logged()]
    assert resumed.state("early_stop") == unbroken.state("early_stop")
    assert resumed.best_step == unbroken.best_step
    ours, theirs = weights(resumed), weights(unbroken)
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=1e-5)


def figures(row: dict[str, Any]) -> Any:
    """What must not differ, to the sixth digit."""
    same = ("reward", "holdout/accuracy", "holdout/leak_rate", "team/accuracy", "completions/mean_length")
    return row["kind"], row["step"], [round(row[name], 6) for name in same if name in row]


def test_the_record_is_consistent(scene: Any) -> None:
    _, run, _ = scene
    rows = list(run.logged())
    assert [row["step"] for row in rows if row["kind"] == "step"] == [1, 2, 3, 4, 5, 6]
    holdout = {row["step"]: row["holdout/accuracy"] for row in rows if row["kind"] == "holdout"}
    assert list(holdout) == [0, 2, 4, 6]
    assert dict(json.loads(run.state("early_stop")["history"])) == holdout
    best = run.best_step
    assert holdout[best] == max(holdout.values())
    assert all(holdout[step] < holdout[best] for step in holdout if step < best)


def test_a_finished_run_is_left_as_it_is(scene: Any) -> None:
    recipe, run, _ = scene
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*") if path.name != "lock"}
    news: list[str] = []
    train(recipe, run.folder, told=lambda kind, step, figures: news.append(kind))
    assert news == ["note: this run is finished; nothing is done again"]
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*") if path.name != "lock"} == before


def test_a_run_killed_before_its_end_was_noted_takes_no_further_step(scene: Any, monkeypatch: Any) -> None:
    recipe, run, _ = scene
    (run.folder / "finished.json").unlink()
    logged = run.metrics.read_text()
    monkeypatch.setattr(TransformersEngine, "complete", TransformersEngine.complete)
    calls = count_calls()
    train(recipe, run.folder)
    assert not calls
    assert run.metrics.read_text() == logged
    assert run.state("finished")["best"] == run.best_step


def test_a_run_of_another_recipe_is_refused_by_the_fields_name(scene: Any) -> None:
    recipe, run, _ = scene
    changed = recipe.train.model_copy(update={"learning_rate": 0.5})
    with pytest.raises(RunError, match=r"another recipe \(train.learning_rate differ\)"):
        train(recipe.model_copy(update={"train": changed}), run.folder)


def _train_until_killed(recipe: Recipe, folder: Path, call: int) -> None:
    """In a child: train, and die as a call begins."""
    if not (child := os.fork()):
        torch.set_num_threads(1)
        count_calls(kill_at=call)
        train(recipe, folder)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, f"{folder}: ended with {status} before call {call}"


if __name__ == "__main__":
    jobs = sys.argv[2:]
    for folder, call in zip(jobs[::2], jobs[1::2], strict=True):
        _train_until_killed(load_recipe(sys.argv[1]), Path(folder), int(call))
