"""Several processes, the long form: a LoRA, a recipe of all kinds of stages, and torchrun itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from launching import ended, launch
from pilotfish.recipe import parse_recipe
from pilotfish.run import Run
from test_train_stages import data
from training import vowels_recipe

pytestmark = [pytest.mark.distributed, pytest.mark.slow, pytest.mark.timeout(3000)]


def jobs(folder: Path, recipe: Any) -> Iterator[dict[str, Any]]:
    """The recipe in one process and in two."""
    (folder / "recipe.yaml").write_text(recipe.dump())
    for processes, name in enumerate(("one", "two"), start=1):
        do = ["train", str(folder / "recipe.yaml"), "--run", str(folder / name)]
        yield {"do": do, "out": str(folder / f"out-{name}"), "processes": processes}


def assert_same_weights(one: Path, other: Path) -> None:
    """Fine-tuning sums float32 gradients in another order, and Adam divides by small ones: 2e-5 of weights near 1."""
    ours, theirs = load_file(one), load_file(other)
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=2e-5)


def test_a_lora_learns_in_two_processes_what_it_learns_in_one(tmp_path: Path) -> None:
    lora, every = {"rank": 4, "alpha": 8}, {"evaluate_every": 3, "save_every": 3}
    made = vowels_recipe(tmp_path, lora=lora, micro_batch=4, steps=3, updates_per_step=1, **every)
    launch(tmp_path, list(jobs(tmp_path, made)))
    assert ended(tmp_path / "out-two")[0] == [0, 0]
    place = "checkpoints/checkpoint-3/adapter_model.safetensors"
    learned = load_file(tmp_path / "one" / place)
    assert all(weight.abs().max() > 1e-3 for name, weight in learned.items() if "lora_B" in name), "they begin at 0"
    assert_same_weights(tmp_path / "two" / place, tmp_path / "one" / place)


def test_every_kind_of_stage_comes_to_the_same_in_two_processes(tmp_path: Path) -> None:
    """SFT, collecting, backtracking without a chain, MLPO, MLPO+: two stages collect, two learn on what is stored."""
    launch(tmp_path, list(jobs(tmp_path, parse_recipe(data(tmp_path)))))
    assert ended(tmp_path / "out-two")[0] == [0, 0]
    one, two = Run(tmp_path / "one"), Run(tmp_path / "two")
    for ours, theirs in zip(two.stages(), one.stages(), strict=True):
        assert ours.best_step == theirs.best_step
        if theirs.best.exists():
            assert_same_weights(ours.best / "model.safetensors", theirs.best / "model.safetensors")
    assert asked(two) == asked(one)


def asked(run: Run) -> Counter[tuple[str, str]]:
    """How often each member was asked in each scope; the name of a shaped one holds a hash of the leader's weights."""
    turns = run.journal(writable=False).turns()
    return Counter((turn.member, re.sub("shaped/[^/]+", "shaped", turn.scope)) for turn in turns)


def test_torchrun_ends_a_run_whose_recipe_two_processes_cannot_do(tmp_path: Path) -> None:
    made = vowels_recipe(tmp_path, tasks_per_step=3, steps=1)
    (tmp_path / "recipe.yaml").write_text(made.dump())
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "--"]
    command = [*launcher, "pilotfish", "train", str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 1
    assert done.stderr.count("train.tasks_per_step is 3 and there are 2 processes") == 1
    assert not (tmp_path / "run").exists()


def test_torchrun_trains(tmp_path: Path) -> None:
    made = vowels_recipe(tmp_path, updates_per_step=2, micro_batch=4, steps=2, evaluate_every=1)
    (tmp_path / "recipe.yaml").write_text(made.dump())
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "--"]
    command = [*launcher, "pilotfish", "train", str(tmp_path / "recipe.yaml"), "--run", str(tmp_path / "run")]
    subprocess.run(command, capture_output=True, text=True, timeout=1500, check=True)
    logged = [row["step"] for row in Run(tmp_path / "run").logged() if "holdout/accuracy" in row]
    assert logged == [0, 1, 2]
    assert Run(tmp_path / "run").state("finished")
