"""Token engine over `generate()` on dynamic batches: for a CPU, and for models that `continuous.py` cannot serve.

One daemon thread takes what is waiting (the oldest call first, then those nearest to it in length), pads it on the
left and decodes it as one batch. Each answer is given the moment its row ends; a call made meanwhile waits for the next
batch. Two things make a batch cheaper than plain `generate()`: the beginning that prompts of several rows share is read
once, and when half of the rows have ended the rest goes on without them. Engines on a CPU take turns, since two at once
would only slow each other down: with a collaborator and an actor on one CPU that plays the hints first and then the
answers.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.cache_utils import DynamicLayer

from pilotfish.engine.base import CallFailed
from pilotfish.engine.beginnings import shared
from pilotfish.engine.draw import COLD, draw, fractions
from pilotfish.engine.tokens import Gate, TokenAnswer, check_request, limits, resolve

_CPU_TURN = threading.Lock()
_SHRINK_FROM = 8
"""Rows below which a smaller batch is no faster."""


@dataclass(eq=False)
class _Row:
    """One call on its way through a batch."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    seed: int
    top_p: float
    stop_ids: frozenset[int]
    stop: Callable[[list[int]], bool] | None
    answer: asyncio.Future[TokenAnswer]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    over: bool = False

    def take(self, token: int, logprob: float) -> None:
        """Add a token; give the answer if it was the last."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.stop_ids or (self.stop is not None and self.stop(self.tokens)):
            self._end("stop")
        elif len(self.tokens) >= self.max_new_tokens:
            self._end("length")

    def _end(self, reason: str) -> None:
        self.over = True
        resolve(self.answer, TokenAnswer(tuple(self.tokens), tuple(self.logprobs), reason))

    def fail(self, error: Exception) -> None:
        self.over = True
        resolve(self.answer, error)


class BatchTokens:
    """A `TokenEngine` that decodes dynamic batches with `generate()`."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        rows: int = 64,
        padded_tokens: int = 16_384,
        gather_seconds: float = 0.02,
    ) -> None:
        """Start the thread.

        Args:
            model: not to be used elsewhere while a batch runs.
            rows: most calls in one batch.
            padded_tokens: most tokens in one batch, padding and answers included.
            gather_seconds: a batch begins when it is full or when no call has come for so long.
        """
        self._model: Any = model.train(False)
        # transformers renamed this argument between the versions that are supported.
        self._cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        _read_rows_in_one(model)
        self._vocabulary, self._window = limits(model)
        self._rows, self._padded, self._gather_seconds = rows, padded_tokens, gather_seconds
        self._queue: queue.SimpleQueue[_Row | None] = queue.SimpleQueue()
        self._gate = Gate()
        self._running: list[_Row] = []
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="pilotfish-batches", daemon=True)
        self._thread.start()
        atexit.register(self._shut)

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
        """See `TokenEngine`."""
        check_request(token_ids, max_new_tokens, self._vocabulary, self._window)
        async with self._gate.inside():
            if self._closed:
                raise CallFailed("the engine is closed")
            answer: asyncio.Future[TokenAnswer] = asyncio.get_running_loop().create_future()
            row = _Row(tuple(token_ids), max_new_tokens, temperature, seed, top_p, frozenset(stop_ids), stop, answer)
            self._queue.put(row)
            if self._closed:
                row.fail(CallFailed("the engine was closed before this call was answered"))
            try:
                return await answer
            finally:
                row.over = True

    async def update(self, copy: Callable[[], None]) -> None:
        """See `TokenEngine`."""

        def change() -> None:
            with torch.no_grad():
                copy()

        async with self._gate.drained():
            await asyncio.to_thread(change)

    async def close(self) -> None:
        """See `TokenEngine`."""
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        if not self._closed:
            self._closed = True
            atexit.unregister(self._shut)
            self._queue.put(None)
            for row in self._running:
                row.fail(CallFailed("the engine was closed before this call was answered"))
        self._thread.join()

    def _serve(self) -> None:
        waiting: list[_Row] = []
        while not self._closed:
            if not waiting and (first := self._queue.get()) is not None:
                waiting.append(first)
            # Who has the turn takes what came while it waited for it.
            with _CPU_TURN if self._model.device.type == "cpu" else nullcontext(), torch.no_grad():
                self._gather(waiting)
                if waiting and not self._closed:
                    self._running = _pick(waiting, self._rows, self._padded)
                    waiting = [row for row in waiting if row not in self._running]
                    self._try(self._running)
        for row in waiting:
            row.fail(CallFailed("the engine was closed before this call was answered"))

    def _gather(self, waiting: list[_Row]) -> None:
        """Take the calls that have come and those that are just coming: a row more costs next to nothing."""
        latest = time.monotonic() + 25 * self._gather_seconds
        while not self._queue.empty() or (len(waiting) < self._rows and time.monotonic() < latest):
            try:
                arrived = self._queue.get(timeout=self._gather_seconds)
            except queue.Empty:
                break
            if arrived is None:
                break
            waiting.append(arrived)
        waiting[:] = [row for row in waiting if not row.over]

    def _try(self, rows: list[_Row]) -> None:
        try:
            self._decode(rows)
        except Exception as error:
            for row in rows:
                row.fail(CallFailed(f"the batch of {len(rows)} rows failed: {error!r}"))

    def _decode(self, rows: list[_Row]) -> None:
        device, cache = self._model.device, self._cache()
        prompts = [row.prompt for row in rows]
        cuts = shared(prompts) if cache is not None else [0] * len(rows)
        heads = [prompt[:cut] for prompt, cut in zip(prompts, cuts, strict=True)]
        tails = [prompt[cut:] for prompt, cut in zip(prompts, cuts, strict=True)]
        if cache is not None and any(heads):
            self._read(heads, cache)
        ids, mask = map(torch.hstack, zip(_pad_left(heads, device), _pad_left(tails, device), strict=True))
        while rows:
            step = _Step(rows, device, may_shrink=cache is not None)
            ids = self._generate(ids, mask, cache, step, max(row.max_new_tokens - len(row.tokens) for row in rows))
            keep = [i for i, row in enumerate(rows) if not row.over]
            rows = [rows[i] for i in keep]
            if rows and cache is not None:
                index = torch.tensor(keep, device=device)
                cache.batch_select_indices(index)
                ids, mask = ids[index], mask[index]
                mask = torch.cat([mask, mask.new_ones(len(keep), ids.shape[1] - mask.shape[1])], dim=1)

    def _generate(self, ids: Tensor, mask: Tensor, cache: DynamicCache | None, step: _Step, new_tokens: int) -> Tensor:
        """Run `generate()` until `step` ends it; the ids with what was drawn."""
        settings = {"max_new_tokens": new_tokens, "return_dict_in_generate": True}
        known: dict[str, Any] = {} if cache is None else {self._cache_name: cache}
        known["logits_processor"] = LogitsProcessorList([step.logits])
        known["stopping_criteria"] = StoppingCriteriaList([step.ended])
        drawn: Tensor = bare_generate(self._model, ids, mask, settings, **known).sequences
        return drawn

    def _cache(self) -> DynamicCache | None:
        """An empty cache, or None for a model whose cache cannot be cut by rows."""
        cache = DynamicCache(config=self._model.config.get_text_config())
        return cache if cache.layers and all(isinstance(layer, DynamicLayer) for layer in cache.layers) else None

    def _read(self, heads: list[tuple[int, ...]], cache: DynamicCache) -> None:
        """Fill the cache with how the rows' prompts begin; equal beginnings are read once."""
        unique = {head: i for i, head in enumerate(dict.fromkeys(heads))}
        ids, mask = _pad_left(list(unique), self._model.device)
        places = (mask.cumsum(-1) - 1).clamp_(min=0)
        known: dict[str, Any] = {self._cache_name: cache}
        self._model.base_model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True, **known)
        cache.batch_select_indices(torch.tensor([unique[head] for head in heads], device=ids.device))


def bare_generate(model: Any, ids: Tensor, mask: Tensor, settings: dict[str, Any], **options: Any) -> Any:
    """Greedy `generate()` without the model's own generation settings (a repetition penalty, end tokens, …)."""
    own = model.generation_config
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        bare: Any = GenerationConfig(do_sample=False, pad_token_id=0, **settings)  # type: ignore[no-untyped-call]
        return model.generate(ids, attention_mask=mask, generation_config=bare, **options)
    finally:
        model.generation_config = own


class _Step:
    """Draws each row's next token and sees which rows have ended; `generate()` itself only takes the arg max."""

    def __init__(self, rows: list[_Row], device: torch.device, *, may_shrink: bool) -> None:
        self._rows, self._device = rows, device
        self._enough = len(rows) // 2 if may_shrink and len(rows) >= _SHRINK_FROM else 0
        self._temperature = torch.tensor([row.temperature for row in rows], device=device)
        cut = any(row.top_p < 1.0 for row in rows)
        self._top_p = torch.tensor([row.top_p for row in rows], device=device) if cut else None
        self._greedy = any(row.temperature < COLD for row in rows)
        self._sampled = any(row.temperature >= COLD for row in rows)
        self._choice: Tensor | None = None
        self._last: Tensor | None = None

    def logits(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores whose arg max is the token drawn."""
        at = [len(row.prompt) + len(row.tokens) for row in self._rows]
        tokens, logprobs = draw(
            scores,
            self._temperature,
            fractions([row.seed for row in self._rows], at).to(self._device),
            self._top_p,
            greedy=self._greedy,
            sampled=self._sampled,
        )
        for row, token, logprob in zip(self._rows, tokens.tolist(), logprobs.tolist(), strict=True):
            if not row.over:
                row.take(token, logprob)
        return self._one_hot(scores, tokens[:, None])

    def _one_hot(self, scores: Tensor, tokens: Tensor) -> Tensor:
        if self._choice is None or self._last is None:
            self._choice = torch.full_like(scores, -torch.inf)
        else:
            self._choice.scatter_(1, self._last, -torch.inf)
        self._last = tokens
        return self._choice.scatter_(1, tokens, 0.0)

    def ended(self, ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        """All True when no row is left, or few enough to go on without the others; else all False."""
        live = sum(not row.over for row in self._rows)
        return torch.full((len(self._rows),), live <= self._enough, device=self._device)


def _read_rows_in_one(model: Any) -> None:
    """Keep the output head from copying its weights for every row.

    After a prompt the head gets the last position's slice of a wider tensor. On a CPU torch multiplies such a view by
    frozen weights row by row: 5 s for 64 rows and 49,152 tokens where 0.03 s do.
    """
    head = model.get_output_embeddings()
    if head is not None:
        head.register_forward_pre_hook(lambda module, inputs: (inputs[0].contiguous(), *inputs[1:]))


def _pick(waiting: list[_Row], most_rows: int, most_tokens: int) -> list[_Row]:
    """The oldest call and those nearest to it in prompt length, within the limits."""
    oldest = waiting[0]
    batch: list[_Row] = []
    prompt = answer = 0
    for row in sorted(waiting, key=lambda row: (row is not oldest, abs(len(row.prompt) - len(oldest.prompt)))):
        prompt, answer = max(prompt, len(row.prompt)), max(answer, row.max_new_tokens)
        if batch and (len(batch) >= most_rows or (prompt + answer) * (len(batch) + 1) > most_tokens):
            break
        batch.append(row)
    return batch


def _pad_left(prompts: Sequence[tuple[int, ...]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, [rows, length of the longest]."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, dtype=torch.long, device=device), torch.tensor(mask, dtype=torch.long, device=device)
