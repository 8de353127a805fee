"""Count what members in process are asked, and kill this process at one of the calls."""

from __future__ import annotations

import os
import signal
from typing import Any

from pilotfish.engine.transformers import TransformersEngine


def count_calls(kill_at: int = 0) -> list[int]:
    """Count the calls of all members in process; kill this process, unwarned, as one of them begins."""
    calls: list[int] = []
    complete = TransformersEngine.complete

    async def counting(self: Any, messages: Any, sampling: Any, seed: int) -> Any:
        calls.append(seed)
        if len(calls) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return await complete(self, messages, sampling, seed)

    TransformersEngine.complete = counting  # type: ignore[method-assign]
    return calls
