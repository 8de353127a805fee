"""What a step of continuous batching gets from the host, in less Python than transformers takes for it.

A decoding step of a small model is Python: of 512 rows 7.7 ms are spent before and after a GPU that is ready sooner
(`python bench/decode_step.py`). Most of it makes again what has not changed, a row at a time.

in_less_python(manager.batch_processor)      # before graphs are captured
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor

from pilotfish.engine.draw import fractions


class Column(ContinuousBatchingLogitsProcessor):
    """Carries one number a row to the device; leaves the scores alone. Captured graphs read it at a fixed address."""

    supported_kwargs: dict[str, type]
    ignored_kwargs: tuple[str, ...] = ()

    def __init__(self, name: str, kind: type = float, dtype: torch.dtype = torch.float32) -> None:
        self.supported_kwargs = {name: kind}
        self._name, self._dtype = name, dtype
        self.rows = torch.empty(0, dtype=dtype)

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        int32_tensor.zero_()

    def values(self, states: Sequence[Any]) -> Tensor:
        """[n], of the rows with a new token."""
        return torch.tensor([state.logit_processor_kwargs.get(self._name, 0.0) for state in states], dtype=self._dtype)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        return self.values([request.state for request in requests_with_new_token]).view(torch.int32)

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        self.rows = tensor_arg[: scores.size(0)].view(self._dtype)
        return scores


class Places(Column):
    """Where each row's next draw lies, from its seed and position."""

    def __init__(self) -> None:
        super().__init__("seed", int, torch.int32)

    def values(self, states: Sequence[Any]) -> Tensor:
        """[n], of the rows with a new token."""
        seeds = [state.logit_processor_kwargs.get(self._name, 0) for state in states]
        return fractions(seeds, [state.position_offset for state in states])


def page_of(settings: Any) -> int:
    """Tokens in a block of the cache."""
    return int(getattr(settings, "page_size", None) or settings.block_size)


def in_less_python(processor: Any) -> None:
    """Let a batch processor keep what stays the same from step to step."""
    _keep_rows_of_blocks(processor.cache, page_of(processor.cb_config))
    if processor.use_async_batching:
        _carry_over_at_once(processor.inputs_and_outputs)


def _keep_rows_of_blocks(cache: Any, page: int) -> None:
    """A call's row in the table of blocks changes when it comes to its next block, or loses all."""
    rows = dict[str, tuple[int, NDArray[np.int32]]]()
    fill, free = cache.fill_block_table, cache.free_blocks

    def filled(call: str, past: int, new: int, row: Tensor) -> None:
        blocks = -(-(past + new) // page)
        known = rows.get(call)
        if known is not None and known[0] == blocks:
            row.numpy()[:] = known[1]
        else:
            fill(call, past, new, row)
            rows[call] = blocks, row.numpy().copy()

    def freed(call: str, *how: Any, **named: Any) -> None:
        rows.pop(call, None)
        free(call, *how, **named)

    cache.fill_block_table, cache.free_blocks = filled, freed


def _carry_over_at_once(pairs: Any) -> None:
    """Where steps overlap: which of the last step's tokens go where in this one."""

    def carried() -> Tensor:
        now, before = (
            pairs.io_pairs[pair].host_io.req_id_to_new_token_position
            for pair in (pairs.current_pair, 1 - pairs.current_pair)
        )
        found = [(now[call], place) for place, call in enumerate(before) if call in now]
        to = torch.full((pairs.max_batch_tokens,), -1, dtype=torch.int32)
        if found:
            places = torch.tensor(found, dtype=torch.int32)
            to[places[:, 0].long()] = places[:, 1]
        return to

    pairs.infer_carry_over_ids = carried
