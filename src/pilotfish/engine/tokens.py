"""What a token engine is: token ids in, token ids and their log-probabilities out.

A token engine lies below every engine in process. There are two: `continuous.py` (one kept continuous-batching manager,
for a GPU) and `batches.py` (`generate()` on dynamic batches, for a CPU and wherever the first cannot serve a model).
Both draw with `draw.py`, so that a seed means the same in either.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pilotfish.engine.base import Refused, TooLong

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """What was drawn, the stop token included where one was.

    `logprobs` are natural logs under the untruncated distribution at the call's temperature (at temperature 0: at 1),
    one per token. `finish_reason` is `stop` or `length`.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str


class TokenEngine(Protocol):
    """Continues token ids. Calls may come from any event loop."""

    async def complete(
        self,
        token_ids: Sequence[int],
        max_new_tokens: int,
        temperature: float,
        seed: int,
        *,
        top_p: float = 1.0,
        stop_ids: Collection[int] = (),
        stop: Callable[[list[int]], bool] | None = None,
    ) -> TokenAnswer:
        """Continue one prompt; cancelling the call drops it.

        Args:
            token_ids: the prompt.
            max_new_tokens: most tokens drawn.
            temperature: 0 is greedy.
            seed: the same prompt, seed and weights give the same answer, alone or among others (up to the float noise
                that the size of a batch makes).
            top_p: nucleus mass.
            stop_ids: tokens that end the answer and stay in it.
            stop: asked after each token with all tokens so far; True ends the answer.

        Raises:
            Refused: the request can never be served.
            CallFailed: the engine broke or was closed.
        """

    async def update(self, copy: Callable[[], None]) -> None:
        """Wait for the calls that have begun, run `copy` (it changes the weights in place), go on. Calls made meanwhile
        wait and are answered by the new weights."""

    async def close(self) -> None:
        """End the thread. Idempotent; calls not answered fail."""


def limits(model: Any) -> tuple[int, int]:
    """Vocabulary and window of a transformers model."""
    own = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1 << 31
    return int(model.get_input_embeddings().weight.shape[0]), own


def check_request(token_ids: Sequence[int], max_new_tokens: int, vocabulary: int, window: int) -> None:
    """Raise Refused, with the numbers, for a request that no weights could answer."""
    if not token_ids:
        raise Refused("the prompt has no tokens")
    if max_new_tokens < 1:
        raise Refused(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    low, high = min(token_ids), max(token_ids)
    if low < 0 or high >= vocabulary:
        raise Refused(
            f"token id {low if low < 0 else high} is outside the vocabulary of {vocabulary}: wrong tokenizer?"
        )
    if len(token_ids) + max_new_tokens > window:
        raise TooLong(
            f"{len(token_ids)} prompt tokens and {max_new_tokens} new ones do not fit the window of {window}; "
            "lower max_tokens or shorten the prompt"
        )


class Gate:
    """Counts the calls inside and can be shut: what `update` drains with. Works across event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._shut = False
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        """Enter when the gate is open; the block counts as a call until it ends."""
        while (wait := self._try(shut=False)) is not None:
            await wait
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                self._wake()

    @asynccontextmanager
    async def drained(self) -> AsyncIterator[None]:
        """Shut the gate, wait until nobody is inside, open it again at the end of the block."""
        while (wait := self._try(shut=True)) is not None:
            await wait
        try:
            while (wait := self._until_empty()) is not None:
                await wait
            yield
        finally:
            with self._lock:
                self._shut = False
                self._wake()

    def _try(self, shut: bool) -> asyncio.Future[None] | None:
        with self._lock:
            if self._shut:
                return self._wait()
            if shut:
                self._shut = True
            else:
                self._inside += 1
            return None

    def _until_empty(self) -> asyncio.Future[None] | None:
        with self._lock:
            return self._wait() if self._inside else None

    def _wait(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            resolve(future, None)


def resolve(future: asyncio.Future[T], result: T | Exception) -> None:
    """Settle a future of any event loop from any thread; one that is settled, or whose loop has ended, stays."""

    def settle() -> None:
        if future.done():
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(settle)
