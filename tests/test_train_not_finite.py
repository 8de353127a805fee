"""A gradient that is not finite costs its update, never the weights."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from pilotfish.engine.loading import load
from pilotfish.train.updates import LOST_UPDATES, NotFinite
from tiny import save_tiny
from training import PROMPTS, Learned, learn, recipe


def spoilt(folder: Path, updates: set[int]) -> Any:
    """A model whose gradient holds a NaN in some of its backward passes."""
    model = load(str(folder), dtype="float32", device="cpu")[0]
    passes = itertools.count()
    weight = next(weight for weight in model.parameters() if weight.ndim == 2)

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.nan if next(passes) in updates else gradient

    weight.register_hook(hook)
    return model


def test_an_update_without_a_finite_gradient_is_left_out_and_counted(tmp_path: Path) -> None:
    folder, snapshots = save_tiny(tmp_path / "model"), []

    def at_step(step: int, learned: Learned) -> bool:
        snapshots.append([weight.detach().clone() for weight in learned.trainer.model.parameters()])
        return False

    learned = learn(
        recipe(folder, "hint", steps=3), PROMPTS["hint"], tmp_path, model=spoilt(folder, {1}), at_step=at_step
    )
    assert [figures["updates/lost"] for figures in learned.logged] == [0, 1, 0]
    moved = [
        any(not torch.equal(*pair) for pair in zip(before, after, strict=True))
        for before, after in itertools.pairwise(snapshots)
    ]
    assert moved == [True, False, True]
    assert all(weight.isfinite().all() for weight in snapshots[-1])


def test_a_run_whose_gradients_stay_so_ends_with_the_reason(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    forever = set(range(10_000))
    made = recipe(folder, "hint", steps=LOST_UPDATES + 2)
    with pytest.raises(NotFinite, match=r"8 updates in a row.*Lower train.learning_rate"):
        learn(made, PROMPTS["hint"], tmp_path, model=spoilt(folder, forever))
