"""When the calls that wait for continuous batching begin: together, and in a step of prompts alone.

A step that only decodes replays one of a few CUDA graphs. One that also reads a prompt goes the way of mixed lengths:
all that the calls in it have in the cache is listed token by token, in Python, and its shape may need a graph of its
own. So prompts are gathered, and read in steps without the calls that are being answered, which wait for so long.

let_in_together(manager.batch_processor.scheduler, page=256)
"""

from __future__ import annotations

import time
from typing import Any

from transformers.generation.continuous_batching.requests import FutureRequestState, RequestStatus

TOGETHER_S = 0.04
"""Seconds for which calls that come while others are answered wait, so that they begin in one step."""


def let_in_together(scheduler: Any, page: int) -> None:
    """Hold requests that wait, while others are active, until `TOGETHER_S` after the last ones were let in; then read
    their prompts by themselves. Those for whose prompts a step had no room are let in by the next.

    Args:
        scheduler: of a manager that has not started.
        page: tokens in a block of the cache.
    """
    schedule, shut_until = scheduler.schedule_batch, 0.0

    def scheduled(*budgets: int) -> Any:
        nonlocal shut_until
        now, blocked, waited = time.monotonic(), scheduler.block_new_requests, bool(scheduler.waiting_requests)
        held = bool(scheduler.active_requests) and now < shut_until
        scheduler.block_new_requests = blocked or held
        try:
            return _alone(scheduler, page, schedule, budgets) or schedule(*budgets)
        finally:
            scheduler.block_new_requests = blocked
            if waited and not held:
                full = len(scheduler.active_requests) >= scheduler.max_requests_per_batch
                shut_until = now + (TOGETHER_S if full or not scheduler.waiting_requests else 0.0)

    scheduler.schedule_batch = scheduled


def _alone(scheduler: Any, page: int, schedule: Any, budgets: tuple[int, ...]) -> Any:
    """A step of the prompts that are to be read, or one that only decodes; None where it has to be both."""
    active = scheduler.active_requests
    answered = {name: state for name, state in active.items() if state.status == RequestStatus.DECODING}
    if len(active) > len(answered) or (scheduler.waiting_requests and not scheduler.block_new_requests):
        return _prompts(scheduler, answered, schedule, budgets)
    return _decoded(scheduler, page, list(answered.values())[: scheduler.max_requests_per_batch])


def _prompts(scheduler: Any, answered: dict[str, Any], schedule: Any, budgets: tuple[int, ...]) -> Any:
    """The scheduler's own step without the calls that are being answered; None where there is no room beside them."""
    active, most = scheduler.active_requests, scheduler.max_requests_per_batch
    room = most - len(answered)
    if not answered or room <= 0 or not _has_margin(scheduler):
        return None
    scheduler.active_requests = {name: state for name, state in active.items() if name not in answered}
    scheduler.max_requests_per_batch = room
    try:
        found = schedule(*budgets)
    finally:
        active.update(scheduler.active_requests)
        scheduler.active_requests = active
        scheduler.max_requests_per_batch = most
    return found if found[0] else None


def _decoded(scheduler: Any, page: int, states: list[Any]) -> Any:
    """What the scheduler finds for a step that replays a graph, in less Python; None where it would not be one."""
    cache = scheduler.cache
    longest = getattr(scheduler, "max_decode_fast_path_length", None)  # transformers 5.17
    if longest is None:
        longest = cache.max_decode_fast_path_length
    for state in states:
        length = state.position_offset
        if length >= longest or (length % page == 0 and not _fits(scheduler, state)):
            return None
    scheduler.starved_requests = []
    complete: Any = {} if hasattr(cache, "count_new_complete_blocks") else 0  # transformers 5.24, 5.17
    return [FutureRequestState(state, True, complete, 1) for state in states], True, len(states), 0


def _fits(scheduler: Any, state: Any) -> bool:
    """Whether the cache has a block for the next token, which is taken."""
    if hasattr(scheduler.cache, "can_store_request_tokens"):  # transformers 5.24
        return bool(scheduler.cache.can_store_request_tokens(state, 1))
    return bool(scheduler._allocate_blocks_if_needed(state, 1))


def _has_margin(scheduler: Any) -> bool:
    """Whether as much of the cache is free as new requests have to leave to the active ones."""
    cache = scheduler.cache
    if hasattr(cache, "compute_free_capacity"):  # transformers 5.24
        return bool(cache.compute_free_capacity() >= scheduler.safety_margin)
    return bool(cache.get_num_free_blocks() >= scheduler.safety_margin * cache.num_blocks)
