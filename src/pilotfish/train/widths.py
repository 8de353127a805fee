"""Passes of answers that are like in length: each is as wide as its own longest one.

TRL pads all rows of a step to the longest prompt and the longest completion, and deals them to passes at random, so
every pass costs as much as if all its completions were the longest. What is learned does not depend on who shares a
pass: each loss of `TrainConfig` is a sum over an update's rows. Prompts keep their padding, which stands on the left:
without it the words would be at other positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig

_WIDTH = 16
"""Passes are padded to a multiple of it, so that there are few shapes: each new one costs a GPU memory of its own."""
_OLD = "old_per_token_logps"
_BY_WIDTH = ("dynamic", "longrope")
"""Rotary embeddings that depend on how wide a pass is."""
Pass = Mapping[str, Any]
"""What one forward and backward pass learns from. Tensors have one line a row; what there is of each token of the
completions is padded on the right, `completion_mask` says to where."""


def wide_alike(config: PreTrainedConfig) -> bool:
    """Whether a model computes the same however wide a pass is padded on the right."""
    found = (getattr(config, name, None) for name in ("rope_parameters", "rope_scaling"))
    return not any(f"'{kind}'" in repr(rope) for rope in found for kind in _BY_WIDTH)


def by_length(passes: Sequence[Pass], accumulated: int) -> list[dict[str, Any]]:
    """The same rows and as many passes of as many rows; in each update those with the longest completions first.

    The first update is made by the weights that the log-probabilities before it are of. TRL has computed these at the
    whole width, so they are left out there: it takes its own, of the same pass.

    Args:
        passes: of a step.
        accumulated: passes of one update; a row stays in its update.
    """
    updates = [passes[first : first + accumulated] for first in range(0, len(passes), accumulated)]
    dealt = [narrow for update in updates for narrow in _dealt(update)]
    if len(updates) > 1:
        dealt[:accumulated] = [{**held, _OLD: None} for held in dealt[:accumulated]]
    return dealt


def learned_tokens(passes: Sequence[Pass]) -> torch.Tensor:
    """How many tokens are learned from in each pass, [passes]."""
    return torch.stack([(held["completion_mask"] * held.get("tool_mask", 1)).sum() for held in passes])


def _dealt(passes: Sequence[Pass]) -> Iterator[dict[str, Any]]:
    names = [name for name, value in passes[0].items() if isinstance(value, torch.Tensor) and value.ndim]
    rows = {name: torch.cat([held[name] for held in passes]) for name in names}
    turns = rows["completion_mask"].sum(1).argsort(descending=True, stable=True).chunk(len(passes))
    for held, turn in zip(passes, turns, strict=True):
        yield _narrowed({**held, **{name: values[turn] for name, values in rows.items()}})


def _narrowed(held: Pass) -> dict[str, Any]:
    prompt, whole = held["prompt_mask"].shape[1], held["completion_mask"].shape[1]
    longest = int(held["completion_mask"].sum(1).max())
    width = min(longest - (prompt + longest) % -_WIDTH, whole)
    cut = {
        name: value[:, :width]
        for name, value in held.items()
        if isinstance(value, torch.Tensor) and value.ndim == 2 and value.shape[1] == whole
        if not name.startswith("prompt_")
    }
    return {**held, **cut}
