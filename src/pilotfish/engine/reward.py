"""The `reward` engine: a sequence classifier with one output that scores a conversation; the score is what it "says".

    engine = RewardEngine.load("Skywork/Skywork-Reward-V2-Qwen3-0.6B")
    said = await engine.complete([{"role": "user", …}, {"role": "assistant", …}], Sampling(), seed=0)    # text "-1.25"

As an engine its scores go through the journal, are kept by the hash of the weights, and take their turn on the device.
Conversations that are waiting are scored as one batch.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pilotfish.engine.base import CallFailed, Completion
from pilotfish.engine.chat import render
from pilotfish.engine.loading import load_classifier
from pilotfish.engine.weights import weights_hash
from pilotfish.team import Messages, Sampling, Usage

ROWS = 32
"""Most conversations in a batch."""
Waiting = tuple[list[int], "asyncio.Future[float]"]


class RewardEngine:
    """An `Engine` that scores.

    Args:
        model: with one output, on its device.
        tokenizer: the model's own; where it has a chat template, conversations are written with it, else as a pair of
            texts.
    """

    version = 0

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model: Any = model.train(False)
        self._tokenizer = tokenizer
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self._model.config.pad_token_id = self._pad  # by which decoder models find the last token
        self._longest: int = getattr(model.config, "max_position_embeddings", 1 << 20)
        self._identity: str | None = None
        self._waiting: list[Waiting] = []
        self._serving: asyncio.Task[None] | None = None

    @classmethod
    def load(cls, model: str, **options: Any) -> RewardEngine:
        """Load the weights; the arguments are those of `loading.load_classifier`."""
        return cls(*load_classifier(model, **options))

    @property
    def identity(self) -> str | None:
        """A hash of the weights and the chat template."""
        if self._identity is None:
            self._identity = weights_hash(self._model, self._tokenizer)
        return self._identity

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """Score a conversation that ends with the assistant's words; sampling and seed change nothing."""
        began, ids = time.perf_counter(), self._encoded(messages)
        if len(ids) > self._longest:
            raise CallFailed(f"the conversation has {len(ids)} tokens, and the model reads {self._longest}")
        score = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, score))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return Completion(f"{await score:.6g}", "stop", Usage(prompt=len(ids)), time.perf_counter() - began)

    async def close(self) -> None:
        """Whoever still waits is told so. Idempotent."""
        if self._serving is not None:
            self._serving.cancel()
        for _, score in self._waiting:
            if not score.done():
                score.set_exception(CallFailed("the engine was closed before this call was answered"))
        self._waiting.clear()

    def _encoded(self, messages: Messages) -> list[int]:
        if self._tokenizer.chat_template:
            return render(self._tokenizer, messages)
        asked, answered = (message["content"] for message in messages)
        ids: list[int] = self._tokenizer(asked, answered, split_special_tokens=True)["input_ids"]
        return ids

    async def _serve(self) -> None:
        await asyncio.sleep(0)  # those that come in this round of the loop make one batch
        while self._waiting:
            batch, self._waiting = self._waiting[:ROWS], self._waiting[ROWS:]
            try:
                scores = await asyncio.to_thread(self._scores, [ids for ids, _ in batch])
            except RuntimeError as error:
                for _, score in batch:
                    if not score.done():
                        score.set_exception(CallFailed(f"the batch of {len(batch)} rows failed: {error!r}"))
                continue
            for (_, score), value in zip(batch, scores, strict=True):
                if not score.done():
                    score.set_result(value)

    def _scores(self, rows: list[list[int]]) -> list[float]:
        width, device = max(map(len, rows)), self._model.device
        ids = torch.tensor([row + [self._pad] * (width - len(row)) for row in rows], device=device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
        with torch.no_grad():
            scores: list[float] = self._model(input_ids=ids, attention_mask=mask).logits[:, 0].float().tolist()
        return scores
