"""What a rollout's tokens cost without a rollout: the same calls by the engine alone, and the least that memory allows.

calls = calls_of(rows)                                  # by member: prompt ids, and how many tokens were drawn
seconds = await offline(engine, calls["collaborator"])  # all at once, the same lengths
least = least_seconds(model, calls["collaborator"], 4.8e12)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from pilotfish.train.row import Row

Call = tuple[tuple[int, ...], int]
"""Prompt ids, and the number of tokens that were drawn."""


def calls_of(rows: Sequence[Row]) -> dict[str, list[Call]]:
    """The calls of a step by member; one that rows share stands once."""
    turns = {turn.key: turn for row in rows for episode in row.played for turn in episode.asked if turn.completion}
    calls: dict[str, list[Call]] = {}
    for turn in turns.values():
        said = turn.completion
        if said and said.prompt_ids is not None and said.completion_ids is not None:
            calls.setdefault(turn.member, []).append((said.prompt_ids, len(said.completion_ids)))
    return calls


async def offline(tokens: Any, calls: Sequence[Call]) -> float:
    """Seconds of a token engine that is given all calls at once and draws as many tokens for each; the second time."""
    for _ in range(2):
        began = time.perf_counter()
        asked = (tokens.complete(prompt, drawn, 1.0, seed) for seed, (prompt, drawn) in enumerate(calls))
        await asyncio.gather(*asked)
        took = time.perf_counter() - began
    return took


def least_seconds(model: Any, calls: Sequence[Call], bandwidth: float) -> float:
    """Seconds that reading takes where all calls are decoded side by side: at each step all weights once, and the keys
    and values of every row that still goes on. Prompts are free.

    Args:
        model: whose copy in 16 bits decodes.
        calls: what is decoded.
        bandwidth: bytes a second.
    """
    config = model.config.get_text_config()
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    a_token = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * width
    weights = 2 * sum(weight.numel() for weight in model.parameters())
    read = sum(drawn * len(prompt) + drawn * (drawn - 1) // 2 for prompt, drawn in calls)
    return float(weights * max(drawn for _, drawn in calls) + a_token * read) / bandwidth
