"""A training in two processes over gloo is the training in one; where one of them fails both end, and the run goes on.

Weights agree to 1e-5, rewards and losses to 1e-6: both sum the same float32 gradients, in another order.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from launching import assert_loss_is_told, assert_one_says_why, ended, launch
from pilotfish.run import Run
from training import vowels_recipe

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(3000)]

STEPS = 4
KILLED_AT = 2 + 3 * 8 + 2 + 4
"""In process 1, in step 4: a checkpoint is there of step 2, and half of a step is played that was not learned from."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of `one` and `two` processes; `refused` and `killed`; the killed one, gone on with `by1` and `by2`."""
    folder = tmp_path_factory.mktemp("distributed")
    made = vowels_recipe(
        folder, micro_batch=4, updates_per_step=1, steps=STEPS, evaluate_every=2, save_every=2, learning_rate=1e-2
    )
    (folder / "recipe.yaml").write_text(made.dump())

    def job(name: str, processes: int, what: Path = folder / "recipe.yaml", **more: Any) -> dict[str, Any]:
        do = ["train", str(what), "--run", str(folder / name)]
        return {"do": do, "out": str(folder / "out" / name), "processes": processes, **more}

    def moved(name: str, processes: int) -> dict[str, Any]:
        return job(name, processes, folder / name, moved=[str(folder / "killed"), str(folder / name)])

    fault = "no key in $ACTOR_KEY; export it"
    launch(
        folder,
        [
            job("one", 1),
            job("two", 2),
            job("refused", 2, rank=1, at=9, fault=fault),
            job("killed", 2, rank=1, at=KILLED_AT),
            moved("by1", 1),
            moved("by2", 2),
        ],
    )
    return folder


def weights(run: Path, step: int = STEPS) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"checkpoint-{step}" / "model.safetensors")


def logged(run: Path) -> list[dict[str, Any]]:
    """What is logged of each step, without what a clock says."""
    left_out = ("seconds/", "step_time", "kind")
    return [{name: row[name] for name in row if not name.startswith(left_out)} for row in Run(run).logged()]


def asked(run: Path) -> list[Counter[str]]:
    """How often each call stands in the journal, by file: one for each process that wrote."""
    found = []
    for file in sorted((run / "journal").glob("*.db")):
        with closing(sqlite3.connect(file)) as connection:
            found.append(Counter(key for (key,) in connection.execute("SELECT key FROM turns")))
    return found


def assert_same(run: Path, other: Path, step: int = STEPS) -> None:
    """The same rewards, losses, holdout accuracies and weights."""
    for ours, theirs in zip(logged(run), logged(other), strict=True):
        assert ours.keys() == theirs.keys()
        assert ours == pytest.approx(theirs, abs=1e-6, rel=1e-6)
    for name, weight in weights(other, step).items():
        torch.testing.assert_close(weights(run, step)[name], weight, rtol=0, atol=1e-5)


def test_two_processes_learn_what_one_learns(scene: Path) -> None:
    assert ended(scene / "out" / "two")[0] == [0, 0]
    assert_same(scene / "two", scene / "one")
    assert any(row["grad_norm"] > 0 for row in logged(scene / "one") if "grad_norm" in row), "nothing was learned"
    assert (scene / "two" / "rows.jsonl").read_text() == (scene / "one" / "rows.jsonl").read_text()


def test_each_process_asks_for_its_own_groups_and_writes_its_own_journal(scene: Path) -> None:
    (alone,), (first, second) = asked(scene / "one"), asked(scene / "two")
    assert first + second == alone
    assert len(first) == len(second)


def test_only_the_main_process_speaks(scene: Path) -> None:
    _, (main, other) = ended(scene / "out" / "two")
    assert "step 4/4" in main
    assert other == ""


def test_a_process_that_fails_ends_both_and_says_why_alone(scene: Path) -> None:
    assert_one_says_why(scene / "out" / "refused", "collaborator: no key in $ACTOR_KEY; export it")


def test_a_process_that_is_killed_ends_both(scene: Path) -> None:
    assert_loss_is_told(scene / "out" / "killed")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_goes_on_on_another_machine_with_as_many_processes(processes: int, scene: Path) -> None:
    """Another folder and an empty cache; the step that was begun is answered from the journals of both processes."""
    run = scene / f"by{processes}"
    assert ended(scene / "out" / run.name)[0] == [0] * processes
    assert_same(run, scene / "one")
    calls, recorded = asked(scene / "one")[0], asked(scene / "killed")
    assert len(recorded) == 2
    assert STEPS / 2 * 16 + 8 < sum(map(len, recorded)) < len(calls)
    assert sum(asked(run), Counter()) == calls, "a call was asked twice, or one is missing"
