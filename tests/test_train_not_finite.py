"""A gradient that is not finite costs its update, never the weights."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from pilotfish.engine.loading import load
from pilotfish.train.attention import without_cudnn
from pilotfish.train.updates import LOST_UPDATES, NotFinite
from tiny import save_tiny, spoil
from training import PROMPTS, Learned, learn, recipe


def spoilt(folder: Path, updates: set[int]) -> Any:
    """A model whose gradient holds a NaN in some of its backward passes."""
    model = load(str(folder), dtype="float32", device="cpu")[0]
    spoil(model, updates)
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


def test_updates_that_are_lost_now_and_then_end_nothing(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    lost = {*range(LOST_UPDATES - 1), LOST_UPDATES, LOST_UPDATES + 1}
    made = recipe(folder, "hint", steps=LOST_UPDATES + 2)
    learned = learn(made, PROMPTS["hint"], tmp_path, model=spoilt(folder, lost))
    assert sum(figures["updates/lost"] for figures in learned.logged) == len(lost)


def test_a_run_whose_gradients_stay_so_ends_with_the_reason(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    forever = set(range(10_000))
    made = recipe(folder, "hint", steps=LOST_UPDATES)
    with pytest.raises(NotFinite, match=r"8 updates in a row.*lower train.learning_rate"):
        learn(made, PROMPTS["hint"], tmp_path, model=spoilt(folder, forever))


def test_attention_that_gives_a_nan_is_not_learned_through(tmp_path: Path) -> None:
    folder, seen = save_tiny(tmp_path / "model"), list[bool]()

    def at_step(step: int, learned: Learned) -> bool:
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return False

    before = torch.backends.cuda.cudnn_sdp_enabled()
    learn(recipe(folder, "hint", steps=1), PROMPTS["hint"], tmp_path, at_step=at_step)
    assert seen == [False, False]
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("width", [192, 208, 320])
def test_the_gradient_of_padding_on_the_left_is_finite_on_a_gpu(width: int) -> None:
    query, key, value = torch.randn(3, 2, 3, width, 64, device="cuda", dtype=torch.bfloat16).unbind()
    query.requires_grad_()
    padded = torch.arange(width, device="cuda") < torch.tensor([[0], [40]], device="cuda")
    mask = torch.ones(width, width, dtype=torch.bool, device="cuda").tril() & ~padded[:, None, None, :]
    with without_cudnn():
        scaled_dot_product_attention(query, key, value, attn_mask=mask).sum().backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()
