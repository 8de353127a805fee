"""What a step of continuous batching gets from the host, in less Python than transformers takes for it.

A decoding step of 512 rows takes 7.7 ms of Python (`python bench/decode_step.py`), which holds up the GPU, and whoever
plays the rows and needs the same lock. Most of it makes again what has not changed, a row at a time.

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
from transformers.generation.continuous_batching.requests import TMP_TOKEN_ID

from pilotfish.engine.draw import fractions

_ROWS_APART = 64
"""Above this many rows a step that decodes is padded to a multiple of it; below, to a power of two."""


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


def pad_less(runner: Any) -> None:
    """Let steps that decode be padded to multiples of `_ROWS_APART` rows, where transformers pads to a power of two.

    So 300 rows cost what 320 do, and not what 512 do. Their graphs are captured with the others, when the runner warms
    up.
    """
    pad, warm, most = runner.maybe_pad_inputs, runner.run_one_warmup, runner.cb_config.max_requests_per_batch

    def padded(num_q_tokens: int, max_kv_read: int, use_decode_fast_path: bool) -> tuple[int, int]:
        if use_decode_fast_path and runner.pad_inputs and num_q_tokens > _ROWS_APART:
            return min(-(-num_q_tokens // _ROWS_APART) * _ROWS_APART, most), 0
        found: tuple[int, int] = pad(num_q_tokens, max_kv_read, use_decode_fast_path)
        return found

    def warmed(model: Any, num_q_tokens: int, max_kv_read: int | None) -> float:
        between = range((num_q_tokens // 2 // _ROWS_APART + 1) * _ROWS_APART, num_q_tokens, _ROWS_APART)
        sizes = [*(between if max_kv_read is None else ()), num_q_tokens]
        return sum(float(warm(model=model, num_q_tokens=size, max_kv_read=max_kv_read)) for size in sizes)

    runner.maybe_pad_inputs, runner.run_one_warmup = padded, warmed


def in_less_python(processor: Any) -> None:
    """Lay out the steps of a batch processor that only decode with few operations for all rows."""
    inputs = processor.inputs_and_outputs
    if processor.use_async_batching:
        _carry_over_at_once(inputs)
    hosts = [pair.host_io for pair in inputs.io_pairs] if processor.use_async_batching else [inputs]
    if all(host.device.type == "cpu" and len(host.block_table) == 1 for host in hosts):  # one kind of attention
        blocks = _Blocks(processor.cache, page_of(processor.cb_config), hosts[0].block_table.size(-1))
        for host in hosts:
            _decode_at_once(host, blocks)


class _Blocks:
    """The blocks of each call, which change when it comes to its next one, or loses all."""

    def __init__(self, cache: Any, page: int, most: int) -> None:
        self._fill, self._page = cache.fill_block_table, page
        self._calls = dict[str, tuple[int, int]]()
        self._rows, self._free = np.empty((0, most), np.int32), list[int]()
        free = cache.free_blocks

        def freed(call: str, *how: Any, **named: Any) -> None:
            if known := self._calls.pop(call, None):
                self._free.append(known[1])
            free(call, *how, **named)

        cache.free_blocks = freed

    def of(self, states: Sequence[Any]) -> NDArray[np.int32]:
        """[n, blocks], -1 where there is none."""
        slots, page = [], self._page
        for state in states:
            known = self._calls.get(state.request_id)
            if known is None or known[0] != state.position_offset // page:
                known = self._new(state, known)
            slots.append(known[1])
        return self._rows[slots]

    def _new(self, state: Any, known: tuple[int, int] | None) -> tuple[int, int]:
        if known is None and not self._free:
            count = len(self._rows)
            self._rows = np.concatenate([self._rows, np.empty((count + 64, self._rows.shape[1]), np.int32)])
            self._free = list(range(count, len(self._rows)))
        slot = known[1] if known else self._free.pop()
        self._rows[slot] = -1
        self._fill(state.request_id, state.position_offset, 1, torch.from_numpy(self._rows[slot])[None])
        found = self._calls[state.request_id] = state.position_offset // self._page, slot
        return found


def _decode_at_once(host: Any, blocks: _Blocks) -> None:
    """Stands in for the part of `prepare_batch_tensors` that steps of decoding alone need."""
    prepare = host.prepare_batch_tensors
    bulk, table, said = host._bulk_input_tensor.numpy(), host.block_table.numpy(), host.output_ids.numpy()
    ids, positions, read, places = (
        tensor.numpy() for tensor in (host.input_ids, host.position_ids, host.cumulative_seqlens_q, host.logits_indices)
    )
    [(kind, seen)] = [(name, lengths.numpy()) for name, lengths in host.cumulative_seqlens_k.items()]
    nothing = [0] * len(host.true_read_sizes)

    def prepared(
        requests_in_batch: list[Any],
        logits_processors: Any,
        use_decode_fast_path: bool,
        num_q_tokens: int,
        max_kv_read: int,
        use_padding: bool,
    ) -> None:
        if not use_decode_fast_path:
            prepare(requests_in_batch, logits_processors, use_decode_fast_path, num_q_tokens, max_kv_read, use_padding)
            return
        states, count = [request.state for request in requests_in_batch], len(requests_in_batch)
        host.use_block_table, host.num_q_tokens, host.max_kv_read = True, num_q_tokens, 0
        host.num_request_in_batch = host.total_seqlen_q = count
        host.true_read_sizes, host.true_write_sizes = nothing[:], nothing[:]
        host.requests_in_batch = list(requests_in_batch)
        host.req_id_to_new_token_position = {state.request_id: row for row, state in enumerate(states)}
        bulk[: host.static_inputs, : num_q_tokens + 1] = 0
        said[:, :num_q_tokens] = 0
        table[0, :num_q_tokens], table[0, :count] = -1, blocks.of(states)
        ids[:count] = [state.tokens_to_process[0] for state in states]
        positions[:count] = [state.position_offset for state in states]
        read[: num_q_tokens + 1] = np.minimum(np.arange(num_q_tokens + 1), count)
        places[:count] = np.arange(count)
        seen[1 : count + 1] = np.cumsum(positions[:count] + 1)
        seen[count + 1 : num_q_tokens + 1] = host.total_seqlen_k[kind] = int(seen[count])
        for state in states:
            state.position_offset += 1
            state.tokens_to_process = [TMP_TOKEN_ID]
        logits_processors.prepare_tensor_args(requests_in_batch, host._bulk_input_tensor[host.static_inputs :])

    host.prepare_batch_tensors = prepared


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
