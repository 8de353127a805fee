"""Whether the engine speaks for the weights in training: what it says its tokens' log-probabilities are, beside those
of a forward pass.

They differ by rounding, by 0.02 to 0.3 in bfloat16. An engine that missed an update, or whose cache is wrong, is
further off, and what is learned from its rows is noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from pilotfish.engine.base import Refused
from pilotfish.train.row import Row

if TYPE_CHECKING:
    from pilotfish.train.grpo import Trainer

ROWS = 4
"""So many rows of a step are looked at."""
LIMIT = 1.0
"""Largest mean difference, in nats."""


class Astray(Refused):
    """The engine's words are not drawn from the weights in training."""


def logprob_gap(trainer: Trainer, rows: Sequence[Row], temperature: float, step: int) -> float | None:
    """Mean difference of log-probabilities over the tokens of a step's first rows, in nats; None where nobody spoke.

    Args:
        trainer: with the weights that the rows were drawn from.
        rows: of this process.
        temperature: at which they were drawn.
        step: for the error.

    Raises:
        Astray: it is above `LIMIT`.
    """
    looked = [row for row in rows if row.learnable and row.completion_ids][:ROWS]
    if not looked:
        return None
    with torch.no_grad(), trainer.accelerator.autocast():
        found = torch.cat([_differences(trainer, row, temperature) for row in looked])
    gap = float(found.mean())
    if not gap <= LIMIT:
        raise Astray(
            f"step {step + 1}: the trainee's engine reports log-probabilities that are {gap:.1f} nats from those of "
            "the weights in training, so it does not speak for them; nothing was learned from this step. Resume, and "
            "if it comes again choose another engine for the trainee (engine: vllm) or another dtype"
        )
    return gap


def _differences(trainer: Trainer, row: Row, temperature: float) -> torch.Tensor:
    device = trainer.accelerator.device
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]], device=device)
    drawn = torch.tensor(row.completion_ids, device=device)
    model: Any = trainer.model
    logits = model(input_ids=ids, logits_to_keep=len(drawn) + 1).logits[0, -len(drawn) - 1 : -1].float()
    scores = (logits / temperature).log_softmax(-1).gather(1, drawn[:, None])[:, 0]
    said = torch.tensor(row.logprobs, device=device)
    difference: torch.Tensor = scores - said
    return difference.abs()
