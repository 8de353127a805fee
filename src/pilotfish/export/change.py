"""What training did to the weights: how many of them it changed, by how much, and whether that is heard.

change = compare(base, exported)
change.parameters_changed / change.parameters

A training can be a no-op without anyone noticing: an adapter that is not read, updates below the rounding of bfloat16,
a server that answers with the base. So every export counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pilotfish.engine.chat import render

PROBE = (
    "A train leaves at 9:40 and arrives at 13:05. How long does it take? Think about what to watch out for, "
    "then give the time in hours and minutes."
)
"""What trained weights, exported ones and the base are made to read."""


@dataclass(frozen=True, slots=True)
class Change:
    """How exported weights differ from the base."""

    tensors: int
    tensors_changed: int
    parameters: int
    parameters_changed: int
    largest: float
    """Absolute difference of the parameter that changed most."""
    mean: float
    """Absolute difference, over all parameters, those that stayed included."""
    relative_norm: float
    """Euclidean norm of all differences over that of the base."""

    @property
    def share(self) -> float:
        """Of the parameters, in [0, 1]."""
        return self.parameters_changed / self.parameters

    def __str__(self) -> str:
        if not self.parameters_changed:
            return f"none of {self.parameters:,} parameters"
        return (
            f"{self.tensors_changed:,} of {self.tensors:,} tensors, {100 * self.share:.3g} % of {self.parameters:,} "
            f"parameters; largest {self.largest:.3g}, mean {self.mean:.3g}, relative norm {self.relative_norm:.3g}"
        )


def compare(base: PreTrainedModel, exported: PreTrainedModel) -> Change:
    """Count what differs, parameter by parameter.

    Args:
        base: in the type that the exported weights have: what only rounding would change counts as unchanged.
        exported: of the same architecture.
    """
    pairs = list(zip(base.parameters(), exported.parameters(), strict=True))
    found = [_difference(before, after) for before, after in pairs]
    count = sum(before.numel() for before, _ in pairs)
    return Change(
        tensors=len(pairs),
        tensors_changed=sum(one.changed > 0 for one in found),
        parameters=count,
        parameters_changed=sum(one.changed for one in found),
        largest=max(one.largest for one in found),
        mean=sum(one.sum for one in found) / count,
        relative_norm=(sum(one.squares for one in found) / sum(one.base_squares for one in found)) ** 0.5,
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    changed: int
    largest: float
    sum: float
    squares: float
    base_squares: float


@torch.no_grad()
def _difference(before: Tensor, after: Tensor) -> _Difference:
    gap = (after.float() - before.float()).abs_()
    return _Difference(
        int(gap.count_nonzero()),
        float(gap.max()),
        float(gap.sum(dtype=torch.float64)),
        float(gap.square().sum(dtype=torch.float64)),
        float(before.float().square().sum(dtype=torch.float64)),
    )


@torch.no_grad()
def log_probabilities(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """Log-probabilities of the probe's tokens, each given those before it, in nats.

    Args:
        model: in float32, so that two of them differ by their weights alone.
        tokenizer: its tokenizer.

    Returns:
        (tokens - 1,)
    """
    ids = torch.tensor([render(tokenizer, [{"role": "user", "content": PROBE}])])
    logits: Tensor = model(ids).logits[0, :-1]
    return logits.log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0]
