"""Checkpoints: which one is gone on with, and that no step's seconds hold one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from trl.trainer.grpo_trainer import GRPOTrainer

from pilotfish.train.checkpoints import newest_checkpoint
from tiny import save_tiny
from training import PROMPTS, learn, recipe


def test_a_checkpoint_that_was_being_written_is_not_gone_on_with(tmp_path: Path) -> None:
    for step, state in ((2, "{}"), (4, '{"global_'), (6, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


def test_the_seconds_of_a_step_hold_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = GRPOTrainer._save_checkpoint

    def slowly(self: Any, *args: Any, **named: Any) -> None:
        time.sleep(3)
        save(self, *args, **named)

    monkeypatch.setattr(GRPOTrainer, "_save_checkpoint", slowly)
    made = recipe(save_tiny(tmp_path / "model"), "hint", steps=3, save_every=1)
    learned = learn(made, PROMPTS["hint"], tmp_path)
    assert max(figures["seconds/learn"] for figures in learned.logged) < 3
