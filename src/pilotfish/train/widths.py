"""Passes of rows that are like in length: each is as wide as its own longest row.

TRL pads all rows of a step to the longest prompt and the longest completion, and deals them to passes at random, so
every pass costs as much as if all its rows were the longest. What is learned does not depend on who shares a pass: each
loss of `TrainConfig` is a sum over an update's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

_WIDTH = 16
"""Passes are padded to a multiple of it, so that there are few shapes: each new one costs a GPU memory of its own."""
Pass = Mapping[str, Any]
"""What one forward and backward pass learns from. Tensors have one line a row; prompts are padded on the left,
completions and what there is of each of their tokens on the right."""


def by_length(passes: Sequence[Pass], accumulated: int) -> list[dict[str, Any]]:
    """The same rows and as many passes of as many rows, the longest rows first, each as wide as its own longest row and
    up to `_WIDTH` - 1 more.

    Args:
        passes: of a step.
        accumulated: passes of one update; a row stays in its update.
    """
    updates = [passes[first : first + accumulated] for first in range(0, len(passes), accumulated)]
    return [narrow for update in updates for narrow in _dealt(update)]


def _dealt(passes: Sequence[Pass]) -> Iterator[dict[str, Any]]:
    names = [name for name, value in passes[0].items() if isinstance(value, torch.Tensor) and value.ndim]
    rows = {name: torch.cat([held[name] for held in passes]) for name in names}
    lengths = rows["prompt_mask"].sum(1) + rows["completion_mask"].sum(1)
    turns = lengths.argsort(descending=True, stable=True).chunk(len(passes))
    for held, turn in zip(passes, turns, strict=True):
        yield _narrowed({**held, **{name: values[turn] for name, values in rows.items()}})


def _narrowed(held: Pass) -> dict[str, Any]:
    prompt, completion = held["prompt_mask"].shape[1], held["completion_mask"].shape[1]
    asked, said = (int(held[mask].sum(1).max()) for mask in ("prompt_mask", "completion_mask"))
    said = min(said - (asked + said) % -_WIDTH, completion)
    asked = min(asked - (asked + said) % -_WIDTH, prompt)
    cut = {name: held[name][:, prompt - asked :] for name in ("prompt_ids", "prompt_mask")}
    for name, value in held.items():
        if name not in cut and isinstance(value, torch.Tensor) and value.ndim == 2 and value.shape[1] == completion:
            cut[name] = value[:, :said]
    return {**held, **cut}
