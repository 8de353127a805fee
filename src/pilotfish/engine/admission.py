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
IN_A_ROW = 8
"""Steps of prompts after which those that are being answered have one."""


def let_in_together(scheduler: Any, page: int) -> None:
    """Hold requests that wait, while others are active, until `TOGETHER_S` after the last ones were let in; then read
    their prompts by themselves. Those for whose prompts a step had no room are let in by the next.

    Args:
        scheduler: of a manager that has not started.
        page: tokens in a block of the cache.
    """
    admission = _Admission(scheduler, page)
    scheduler.schedule_batch = admission.schedule


class _Admission:
    """What a scheduler is to do next."""

    def __init__(self, scheduler: Any, page: int) -> None:
        self._scheduler, self._page, self._own = scheduler, page, scheduler.schedule_batch
        self._shut_until = 0.0
        self._let_in = False
        """Whether the door shuts once this step is over."""
        self._in_a_row = 0

    def schedule(self, *budgets: int) -> Any:
        """Stands in for `Scheduler.schedule_batch`."""
        scheduler, now = self._scheduler, time.monotonic()
        active, waited = len(scheduler.active_requests), bool(scheduler.waiting_requests)
        if self._let_in:
            self._shut_until, self._let_in = now + TOGETHER_S, False
        # Where the cache was short it is told to let nobody in until one has ended, but not that one was cancelled.
        blocked = scheduler.block_new_requests = scheduler.block_new_requests and active > 0
        held = active > 0 and (now < self._shut_until or self._in_a_row >= IN_A_ROW)
        scheduler.block_new_requests = blocked or held
        try:
            return self._alone(budgets) or self._own(*budgets)
        finally:
            scheduler.block_new_requests = blocked
            if waited and not held:
                full = len(scheduler.active_requests) >= scheduler.max_requests_per_batch
                nobody = len(scheduler.active_requests) == active
                self._let_in, self._shut_until = full or nobody or not scheduler.waiting_requests, now

    def _alone(self, budgets: tuple[int, ...]) -> Any:
        """A step of the prompts that are to be read, or one that only decodes; None where it has to be both."""
        scheduler = self._scheduler
        active = scheduler.active_requests
        answered = {name: state for name, state in active.items() if state.status == RequestStatus.DECODING}
        begun = len(active) > len(answered) and self._in_a_row < IN_A_ROW
        if begun or (scheduler.waiting_requests and not scheduler.block_new_requests):
            found = _prompts(scheduler, answered, self._own, budgets)
            self._in_a_row = self._in_a_row + 1 if found else 0
            return found
        self._in_a_row = 0
        return _decoded(scheduler, self._page, list(answered.values())[: scheduler.max_requests_per_batch])


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
    if not states:
        return None
    cache = scheduler.cache
    knows = scheduler if hasattr(scheduler, "max_decode_fast_path_length") else cache  # transformers 5.17, 5.24
    longest = knows.max_decode_fast_path_length
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
