"""The loss by hand: each profile's formula in plain torch, at ratios far from 1, against what TRL computes.

Source: AgentPO's GRPO objective (per-sequence mean, symmetric clip, KL to the reference with the k3 estimator), and the
settings of its released code (token mean, asymmetric clip, dual clip 10, no KL).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tiny import save_tiny
from training import PROMPTS, learn, recipe

ROWS, PROMPT, WORDS, LIMIT, TEMPERATURE = 8, 5, 6, 10, 0.7


def trainer(folder: Path, **train: Any) -> Any:
    """A trainer that has not begun: 2 groups of 8, two passes of 8 rows, one update each."""
    settings = {"group_size": 8, "tasks_per_step": 2, "micro_batch": 8, "updates_per_step": 2, "steps": 1}
    made = recipe(
        save_tiny(folder / "model"), "solo", max_tokens=LIMIT, temperature=TEMPERATURE, **{**settings, **train}
    )
    trainer = learn(made, PROMPTS["solo"], folder, at_step=lambda step, learned: True).trainer
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def batch(trainer: Any) -> dict[str, Tensor]:
    """Rows of different lengths, whose old and reference log-probabilities lie far from the model's."""
    drawn = torch.Generator().manual_seed(3)
    lengths = torch.tensor([6, 5, 4, 3, 2, 1, 6, 3])
    made = {
        "prompt_ids": torch.randint(3, 300, (ROWS, PROMPT), generator=drawn),
        "prompt_mask": torch.ones(ROWS, PROMPT, dtype=torch.long),
        "completion_ids": torch.randint(3, 300, (ROWS, WORDS), generator=drawn),
        "completion_mask": (torch.arange(WORDS)[None] < lengths[:, None]).long(),
        "advantages": torch.tensor([1.5, -1.5, 0.7, -0.7, 2.0, -2.0, 0.0, 0.3]),
        "num_items_in_batch": torch.tensor(47),
    }
    with torch.no_grad():
        now = log_probabilities(trainer.model, made)
    made["old_per_token_logps"] = now + 1.2 * torch.randn(now.shape, generator=drawn)
    made["old_per_token_logps"][1, 0] = now[1, 0] - 4.0  # a ratio of e^4 where the advantage is negative
    made["ref_per_token_logps"] = now + 0.5 * torch.randn(now.shape, generator=drawn)
    return made


def log_probabilities(model: Any, rows: dict[str, Tensor]) -> Tensor:
    """Of each completion token at the sampling temperature, [rows, words]."""
    ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], 1)
    mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], 1)
    hidden = model.model(input_ids=ids, attention_mask=mask).last_hidden_state
    logits = model.lm_head(hidden)[:, PROMPT - 1 : -1].float() / TEMPERATURE
    return logits.log_softmax(-1).gather(-1, rows["completion_ids"][..., None])[..., 0]


def objective(
    now: Tensor, rows: dict[str, Tensor], low: float, high: float, dual: float | None, beta: float
) -> list[list[Tensor]]:
    """The objective of each token of each row, token by token."""
    table = []
    for row in range(ROWS):
        advantage = rows["advantages"][row]
        tokens = []
        for at in range(int(rows["completion_mask"][row].sum())):
            ratio = (now[row, at] - rows["old_per_token_logps"][row, at]).exp()
            plain = ratio * advantage
            clipped = ratio.clamp(1 - low, 1 + high) * advantage
            value = torch.minimum(plain, clipped)
            if dual is not None and advantage < 0:
                value = torch.maximum(value, dual * advantage)
            away = rows["ref_per_token_logps"][row, at] - now[row, at]
            tokens.append(value - beta * (away.exp() - away - 1))
        table.append(tokens)
    return table


def compare(trainer: Any, rows: dict[str, Tensor], by_hand: Tensor) -> None:
    """Value and gradient agree."""
    weight = trainer.model.model.layers[0].self_attn.q_proj.weight
    (expected,) = torch.autograd.grad(by_hand, weight)
    loss = trainer._compute_loss(trainer.model, rows)
    (found,) = torch.autograd.grad(loss, weight)
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-4)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert expected.abs().max() > 1e-3


def test_paper_is_the_mean_over_rows_of_each_rows_mean_with_symmetric_clip_and_kl(tmp_path: Path) -> None:
    made = trainer(tmp_path, profile="paper", updates_per_step=2)
    rows = batch(made)
    table = objective(log_probabilities(made.model, rows), rows, 0.2, 0.2, None, beta=0.04)
    compare(made, rows, -torch.stack([torch.stack(tokens).mean() for tokens in table]).mean())


def test_release_is_the_mean_over_tokens_with_asymmetric_clip_and_dual_clip(tmp_path: Path) -> None:
    made = trainer(tmp_path, profile="release", updates_per_step=2)
    rows = batch(made)
    table = objective(log_probabilities(made.model, rows), rows, 0.2, 0.28, 10.0, beta=0.0)
    # A step's 47 tokens are learned from in two updates: the mean is over 23.5 tokens, whatever an update holds.
    compare(made, rows, -torch.stack([token for tokens in table for token in tokens]).sum() / (47 / 2))


def test_dr_grpo_divides_by_rows_and_the_token_limit(tmp_path: Path) -> None:
    made = trainer(tmp_path, profile="release", updates_per_step=2, loss="dr_grpo")
    rows = batch(made)
    table = objective(log_probabilities(made.model, rows), rows, 0.2, 0.28, 10.0, beta=0.0)
    compare(made, rows, -torch.stack([token for tokens in table for token in tokens]).sum() / (ROWS * LIMIT))


def test_the_dual_clip_bounds_what_a_bad_row_can_cost(tmp_path: Path) -> None:
    made = trainer(tmp_path, profile="release", updates_per_step=2)
    rows = batch(made)
    only = {**rows, "completion_mask": torch.zeros_like(rows["completion_mask"])}
    only["completion_mask"][1, 0] = 1
    assert made._compute_loss(made.model, only).item() == pytest.approx(10 * 1.5 / 23.5, rel=1e-4)
    made.args.delta = None
    assert made._compute_loss(made.model, only).item() == pytest.approx(54.6 * 1.5 / 23.5, rel=1e-2)
