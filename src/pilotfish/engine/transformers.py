"""Engine in process: messages to token ids, a token engine, token ids back to text.

engine = TransformersEngine.load("smollm2")
completion = await engine.complete([{"role": "user", "content": "What is 7 + 5?"}], Sampling(max_tokens=24), seed=0)
"""

from __future__ import annotations

import logging
import time

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pilotfish.engine.base import Completion, OnText
from pilotfish.engine.batches import BatchTokens
from pilotfish.engine.chat import PLAIN_STOP, render, stop_ids
from pilotfish.engine.chats import Chats
from pilotfish.engine.continuous import CannotServe, ContinuousTokens
from pilotfish.engine.loading import load
from pilotfish.engine.spoken import Spoken
from pilotfish.engine.tokens import TokenAnswer, TokenEngine
from pilotfish.engine.weights import weights_hash
from pilotfish.team import Messages, Sampling, Usage

_log = logging.getLogger(__name__)


class TransformersEngine:
    """An `Engine` on weights in this process."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        tokens: TokenEngine | None = None,
        nucleus: bool = False,
        memory: float = 0.3,
        version: int = 0,
    ) -> None:
        """Put an engine on loaded weights.

        Args:
            model: on its device; belongs to the engine from now on (`shared_copy` makes another seat on its weights).
            tokenizer: the model's own.
            tokens: the token engine; chosen by device when None: continuous batching on a GPU, else dynamic batches.
            nucleus: whether members on this engine sample with top_p below 1 (continuous batching pays for it).
            memory: share of the free GPU memory for the cache of continuous batching.
            version: of the weights, where a member has been trained: tells its answers from those it gave before.
        """
        self._version = version
        self._model, self._tokenizer = model, tokenizer
        self._identity: str | None = None
        self._ends = stop_ids(model, tokenizer)
        self._tokens = tokens or choose_tokens(model, nucleus=nucleus, memory=memory)
        # A dynamic batch begins when no call has come for a moment: prompts that come one by one would make it small.
        self._chats = None if isinstance(self._tokens, BatchTokens) else Chats(tokenizer)

    @classmethod
    def load(
        cls,
        model: str,
        *,
        revision: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        trust_remote_code: bool = False,
        nucleus: bool = False,
        memory: float = 0.3,
    ) -> TransformersEngine:
        """Load the weights, then as the constructor; the arguments are those of `loading.load`."""
        loaded = load(model, revision=revision, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        return TransformersEngine(*loaded, nucleus=nucleus, memory=memory)

    @property
    def identity(self) -> str | None:
        """A hash of the weights and the chat template."""
        if self._identity is None:
            self._identity = weights_hash(self._model, self._tokenizer)
        return self._identity

    @property
    def version(self) -> int:
        """Of the weights; they do not change under this engine."""
        return self._version

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        """See `Engine`."""
        return await self._complete(messages, sampling, seed, None)

    async def stream(self, messages: Messages, sampling: Sampling, seed: int, on_text: OnText) -> Completion:
        """See `Streaming`."""
        held = max((len(stop) for stop in self._stops(sampling)), default=0)
        spoken = Spoken(self._tokenizer, on_text, held, strip=not self._tokenizer.chat_template)
        done = await self._complete(messages, sampling, seed, spoken)
        spoken.finish(done.text)
        return done

    async def _complete(self, messages: Messages, sampling: Sampling, seed: int, spoken: Spoken | None) -> Completion:
        began = time.perf_counter()
        prompt = await self._chats.ids(messages) if self._chats else render(self._tokenizer, messages)
        stops = self._stops(sampling)
        stop = _Stopper(self._tokenizer, stops) if stops else None
        answer = await self._tokens.complete(
            prompt,
            sampling.max_tokens,
            sampling.temperature,
            seed,
            top_p=sampling.top_p,
            stop_ids=self._ends,
            stop=spoken.after(stop) if spoken else stop,
        )
        return Completion(
            text=self._text(answer, stops),
            finish_reason=answer.finish_reason,
            usage=Usage(prompt=len(prompt), completion=len(answer.token_ids)),
            seconds=time.perf_counter() - began,
            prompt_ids=tuple(prompt),
            completion_ids=answer.token_ids,
            logprobs=answer.logprobs,
        )

    async def close(self) -> None:
        """End the token engine. Idempotent."""
        await self._tokens.close()

    def _stops(self, sampling: Sampling) -> tuple[str, ...]:
        return sampling.stop if self._tokenizer.chat_template else (*sampling.stop, PLAIN_STOP)

    def _text(self, answer: TokenAnswer, stops: tuple[str, ...]) -> str:
        text = str(self._tokenizer.decode(list(answer.token_ids), skip_special_tokens=True))
        cut = min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))
        # Without a template the answer begins with the space after "Assistant:".
        return text[:cut] if self._tokenizer.chat_template else text[:cut].strip()


class _Stopper:
    """Whether an answer holds a stop string, seen at the token that completes it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: tuple[str, ...]) -> None:
        self._tokenizer, self._stops = tokenizer, stops
        # A token holds at least one byte; four more allow for a character begun before.
        self._tail = max(len(stop.encode()) for stop in stops) + 4

    def __call__(self, tokens: list[int]) -> bool:
        tail = self._tokenizer.decode(tokens[-self._tail :], skip_special_tokens=True)
        return any(stop in tail for stop in self._stops)


def choose_tokens(model: PreTrainedModel, *, nucleus: bool = False, memory: float = 0.3) -> TokenEngine:
    """Continuous batching on a GPU where it can serve the model, else dynamic batches; a fallback is logged."""
    if model.device.type == "cuda":
        try:
            return ContinuousTokens(model, nucleus=nucleus, memory=memory)
        except CannotServe as error:
            _log.warning("%s; falling back to generate() on dynamic batches", error)
            return BatchTokens(model, rows=256, padded_tokens=262_144)
    return BatchTokens(model)
