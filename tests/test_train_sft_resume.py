"""Fine-tuning that was killed goes on to the weights of an unbroken run; what it writes is whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM, Trainer

from pilotfish.lab.row import ask, row
from pilotfish.recipe import LoraConfig
from pilotfish.train.sft import sft
from tiny import save_tiny

torch.set_num_threads(1)
ROWS = [row("sums", "solve", ask(f"What is {n} and 7?"), f"It is {n + 7}." + " Yes." * (n % 3)) for n in range(6)]
STEPS = 10
"""Of 4 rows: an epoch ends between two rows of a step; a checkpoint every 2 steps."""


class Killed(BaseException):
    """Stands for the end of the process."""


@contextmanager
def killed(owner: type, method: str, at: int) -> Iterator[list[int]]:
    """Count the calls of a method, and end as the one with this number begins (0: never)."""
    whole, calls = getattr(owner, method), []

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(len(calls) + 1)
        if calls[-1] == at:
            raise Killed
        return whole(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, counted)
        yield calls


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


def learn(model: str, out: Path, **changes: Any) -> dict[str, Any]:
    return dict(sft(model, ROWS, out, **{"steps": STEPS, "batch": 4, "lr": 3e-3, **changes}))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def unbroken(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("unbroken") / "best"
    return out, learn(model, out)


@pytest.mark.parametrize(("at", "left"), [(6, 6), (10, 2)])
def test_a_killed_run_goes_on_to_the_weights_of_an_unbroken_one(model, unbroken, tmp_path, at, left):
    with killed(Trainer, "training_step", at), pytest.raises(Killed):
        learn(model, tmp_path / "best")
    assert not (tmp_path / "best").exists()
    with killed(Trainer, "training_step", 0) as steps:
        metrics = learn(model, tmp_path / "best")
    assert len(steps) == left
    assert same(tmp_path / "best", unbroken[0])
    assert metrics["loss"] == pytest.approx(unbroken[1]["loss"], abs=1e-12)


def test_adapters_go_on_too(model, tmp_path):
    lora = LoraConfig(rank=4, targets=("q_proj", "v_proj"))
    learn(model, tmp_path / "unbroken", lora=lora)
    with killed(Trainer, "training_step", 6), pytest.raises(Killed):
        learn(model, tmp_path / "best", lora=lora)
    with killed(Trainer, "training_step", 0) as steps:
        learn(model, tmp_path / "best", lora=lora)
    assert len(steps) == 6
    assert same(tmp_path / "best", tmp_path / "unbroken")


def test_a_run_killed_while_it_saves_leaves_the_old_weights_and_trains_no_step_again(model, unbroken, tmp_path):
    learn(model, tmp_path / "best", steps=1)
    old = weights(tmp_path / "best")
    with killed(LlamaForCausalLM, "save_pretrained", at=6), pytest.raises(Killed):  # after the five checkpoints
        learn(model, tmp_path / "best")
    assert all(torch.equal(old[name], now) for name, now in weights(tmp_path / "best").items())
    with killed(Trainer, "training_step", 0) as steps:
        learn(model, tmp_path / "best")
    assert not steps
    assert same(tmp_path / "best", unbroken[0])


def test_other_settings_start_anew(model, tmp_path):
    with killed(Trainer, "training_step", 6), pytest.raises(Killed):
        learn(model, tmp_path / "best", lr=1e-2)
    with killed(Trainer, "training_step", 0) as steps:
        learn(model, tmp_path / "best")
    assert len(steps) == STEPS


def test_nothing_but_the_result_is_left(model, unbroken):
    assert [path.name for path in unbroken[0].parent.iterdir()] == ["best"]
    assert not list(unbroken[0].glob("checkpoint*"))


def test_two_checkpoints_are_kept_at_most(model, tmp_path):
    with killed(Trainer, "training_step", 10), pytest.raises(Killed):
        learn(model, tmp_path / "best")
    kept = sorted(path.name for path in (tmp_path / "best.checkpoints").glob("checkpoint-*"))
    assert kept == ["checkpoint-6", "checkpoint-8"]


def test_a_folder_of_something_else_is_not_replaced(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"holds files of something else \(thesis.tex, …\); name a new folder"):
        learn(model, tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
