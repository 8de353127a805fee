"""Continuous batching on a CPU whose GPU is a clock: real scheduling, inputs and threads, and nothing is computed.

tokens = clocked(rows=512, end=2, mean=90)              # a TokenEngine; answers end at random, after 90 tokens or so
tokens = clocked(rows=512, end=2, mean=90, step_s=0.0)  # nor waited for
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.continuous_batching import cache as caches
from transformers.generation.continuous_batching import continuous_api, input_outputs
from transformers.generation.continuous_batching.cache import PagedAttentionCache

from pilotfish.engine.continuous import ContinuousTokens

PAGE, BLOCKS, READ = 256, 32, 8192
"""Tokens of a block, blocks of a call, tokens of a step that reads prompts: as on a GPU."""


class _Cache(PagedAttentionCache):
    """With tables of blocks, which only FlashAttention reads."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self.max_blocks_per_request, self.max_batch_tokens = BLOCKS, READ
        self.max_decode_fast_path_length = BLOCKS * PAGE


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """What is made in it decodes by tables of blocks, and is not compared with `generate()`."""

    async def unchecked(engine: Any, *reference: Any) -> None: ...

    with (
        patch.object(continuous_api, "PagedAttentionCache", _Cache),
        patch.object(input_outputs, "attn_mask_is_needed", lambda config: False),
        patch.object(caches.PagedAttentionMemoryHandler, "_check_footprint", lambda handler, *found: found),
        patch.object(ContinuousTokens, "_check", unchecked),
    ):
        yield


def clocked(
    rows: int, end: int, mean: float, *, step_s: float = 0.0034, prompts_s: float = 0.0154, vocabulary: int = 49_152
) -> ContinuousTokens:
    """An engine whose steps take so long.

    Args:
        rows: most calls in one step.
        end: the token that ends an answer.
        mean: tokens of an answer that is not cut off.
        step_s: seconds of a step that decodes; while it lasts the host prepares the next one, as on a GPU.
        prompts_s: seconds of a step that reads prompts.
        vocabulary: ids that prompts may have.
    """
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1}
    config = LlamaConfig(vocab_size=vocabulary, num_hidden_layers=1, max_position_embeddings=4096, **shape)
    with as_on_a_gpu():
        engine = ContinuousTokens(LlamaForCausalLM(config), rows=rows, cache_tokens=4 * rows * PAGE, page=PAGE)
    processor = engine._manager.batch_processor
    inputs, draw = processor.inputs_and_outputs, np.random.default_rng(0)
    ready = 0.0

    def compute(model: Any, batch: Any) -> None:
        nonlocal ready
        count, said = inputs.num_request_in_batch, inputs.output_ids.numpy()
        said[0, :count] = np.where(draw.random(count) < 1 / mean, end, end + 1)
        said[1, :count] = np.full(count, -0.5, np.float32).view(np.int32)
        time.sleep(max(0.0, ready - time.perf_counter()))  # for the step before
        ready = time.perf_counter() + (step_s if inputs.use_block_table else prompts_s)

    processor.model_runner.compute_batch = compute
    return engine
