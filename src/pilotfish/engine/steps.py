"""How steps of engines in several threads get along on a GPU.

step = one_at_a_time(step)                   # of all engines in this process
copy = settled(copy, model.device)           # returns once the GPU has done it
in_daemon_thread(manager.start)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")

STEPS = threading.Lock()
"""Held for each step of any engine: while one captures a CUDA graph, no other thread may allocate or synchronise."""


def one_at_a_time(step: Callable[..., T]) -> Callable[..., T]:
    """The same, while no other step of this process is under way."""

    def alone(*arguments: Any) -> T:
        with STEPS:
            return step(*arguments)

    return alone


def settled(work: Callable[..., T], device: torch.device) -> Callable[..., T]:
    """The same, but it returns once the GPU has done what it was given."""

    def done(*arguments: Any) -> T:
        result = work(*arguments)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return result

    return done


def in_daemon_thread(work: Callable[[], None]) -> None:
    """Run `work` in a daemon thread and wait for it; its error is raised here."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
