"""Whether the engine speaks for the weights in training: what it says its tokens' log-probabilities are, beside those
of a forward pass.

They differ by rounding, by 0.02 to 0.3 in bfloat16. An engine that missed an update, or whose cache is wrong, is
further off, and what is learned from its rows is noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn.utils.rnn import pad_sequence

from pilotfish.engine.base import Refused
from pilotfish.train.row import Row
from pilotfish.train.shards import sharded

if TYPE_CHECKING:
    from pilotfish.train.grpo import Trainer

ROWS = 4
"""So many rows of a step are looked at."""
AT_ONCE = 1 << 26
"""Logits of one pass over all these rows; where there are more, each row has its own."""
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
    passes = [looked] if looked else []
    if sharded(trainer.model):  # a pass is then one of all processes: each makes as many, and forgets what is spare
        passes = [[row] for row in (*looked, *rows[: min(ROWS, len(rows)) - len(looked)])]
    with torch.no_grad(), trainer.accelerator.autocast():
        found = [_differences(trainer, those, temperature) for those in passes]
    if not looked:
        return None
    gap = float(torch.cat(found[: len(looked)]).mean())
    if not gap <= LIMIT:
        raise Astray(
            f"step {step + 1}: the trainee's engine reports log-probabilities that are {gap:.1f} nats from those of "
            "the weights in training, so it does not speak for them; nothing was learned from this step. Resume, and "
            "if it comes again choose another engine for the trainee (engine: vllm) or another dtype"
        )
    return gap


def _differences(trainer: Trainer, rows: Sequence[Row], temperature: float) -> torch.Tensor:
    device, model = trainer.accelerator.device, trainer.accelerator.unwrap_model(trainer.model)
    texts = [torch.tensor([*row.prompt_ids, *row.completion_ids]) for row in rows]
    ids = pad_sequence(texts, batch_first=True).to(device)  # a row ends before its padding, which it never sees
    first = min(len(row.prompt_ids) for row in rows) - 1
    vocabulary = model.get_input_embeddings().weight.shape[0]
    if len(rows) > 1 and len(rows) * (ids.shape[1] - 1 - first) * vocabulary > AT_ONCE:
        return torch.cat([_differences(trainer, [row], temperature) for row in rows])
    kept = torch.arange(first, ids.shape[1] - 1, device=device)
    scores = (model(input_ids=ids, logits_to_keep=kept).logits.float() / temperature).log_softmax(-1)
    drawn = scores.gather(2, ids[:, first + 1 :, None])[:, :, 0]
    spoken = [
        line[len(row.prompt_ids) - first - 1 :][: len(row.completion_ids)]
        for line, row in zip(drawn, rows, strict=True)
    ]
    said = torch.tensor([logprob for row in rows for logprob in row.logprobs], device=device)
    return (torch.cat(spoken) - said).abs()
