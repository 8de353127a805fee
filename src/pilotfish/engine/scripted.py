"""The `scripted` engine: says what it was told to. For tests, examples and dry runs; no model, no network.

engine = ScriptedEngine(lambda messages, sampling, seed: "4")
engine = ScriptedEngine({"2 + 2": "4", "3 + 3": "6"})
engine = ScriptedEngine(["first answer", "second answer"])
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from pilotfish.engine.base import CallFailed, Completion, OnText, Refused
from pilotfish.team import Messages, Sampling, Usage

Reply = Callable[[Messages, Sampling, int], str | Awaitable[str]]

_WORD = re.compile(r"\S+")
_PIECE = re.compile(r"\s*\S+|\s+$")


class ScriptedEngine:
    """Answers from a script; a token is a word. `stop` and `max_tokens` end an answer as they would a model's.

    Args:
        reply: what is said. A function of (messages, sampling, seed), which may be async; a mapping, where the last
            message picks its own entry, or else the longest key that occurs in it; or a sequence, said in order.
        identity: names the deployment; None for answers that must not outlive a run.
        version: version of the weights; may be set later, as a trained policy's is.
        latency: seconds before each answer, or a function of (messages, sampling, seed) that tells them.
        fail: function of (messages, sampling, seed) that is asked first; it returns None to let the call pass, True
            for an outage, or the exception to raise.

    Attributes:
        calls: calls so far, failed ones included.
        asked: the messages of each call, in order.
        most_at_once: the largest number of calls that were in flight together.
    """

    def __init__(
        self,
        reply: Reply | Mapping[str, str] | Sequence[str],
        identity: str | None = "scripted",
        version: int = 0,
        latency: Callable[[Messages, Sampling, int], float] | float = 0.0,
        fail: Callable[[Messages, Sampling, int], Exception | bool | None] | None = None,
    ) -> None:
        self.identity = identity
        self.version = version
        self.calls = 0
        self.asked: list[Messages] = []
        self.most_at_once = 0
        self._reply = _speaker(reply)
        self._latency = latency
        self._fail = fail
        self._at_once = 0

    def __repr__(self) -> str:
        return f"ScriptedEngine({self.identity!r}, calls={self.calls})"

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        self.calls += 1
        self.asked.append(messages)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        began = time.perf_counter()
        try:
            text = await self._answer(messages, sampling, seed)
        finally:
            self._at_once -= 1
        return _completion(text, messages, sampling, time.perf_counter() - began)

    async def stream(self, messages: Messages, sampling: Sampling, seed: int, on_text: OnText) -> Completion:
        """As `complete`, and then word by word."""
        done = await self.complete(messages, sampling, seed)
        for piece in _PIECE.findall(done.text):
            on_text(piece)
            await asyncio.sleep(0)
        return done

    async def close(self) -> None:
        """Nothing is held."""

    async def _answer(self, messages: Messages, sampling: Sampling, seed: int) -> str:
        # The reply is taken before the wait: a sequence is said in the order of the calls, whatever the latencies.
        failure = self._fail(messages, sampling, seed) if self._fail else None
        reply = "" if failure else self._reply(messages, sampling, seed)
        seconds = self._latency(messages, sampling, seed) if callable(self._latency) else self._latency
        await asyncio.sleep(seconds)
        if failure:
            raise CallFailed("scripted outage") if failure is True else failure
        return await reply if inspect.isawaitable(reply) else reply


def _speaker(reply: Reply | Mapping[str, str] | Sequence[str]) -> Reply:
    if isinstance(reply, str):
        raise TypeError(f"reply is the string {reply!r}; give a function, a mapping or a list of strings")
    if isinstance(reply, Mapping):
        return lambda messages, sampling, seed: _look_up(reply, messages[-1]["content"])
    if isinstance(reply, Sequence):
        return _in_order(reply)
    return reply


def _look_up(replies: Mapping[str, str], asked: str) -> str:
    if asked in replies:
        return replies[asked]
    held = [key for key in replies if key in asked]
    if not held:
        raise Refused(f"scripted: no reply for {asked[:200]!r}; add a key that is, or occurs in, the last message")
    return replies[max(held, key=len)]


def _in_order(replies: Sequence[str]) -> Reply:
    rest = iter(tuple(replies))

    def say(messages: Messages, sampling: Sampling, seed: int) -> str:
        text = next(rest, None)
        if text is None:
            raise Refused(f"scripted: all {len(replies)} replies are said; asked {messages[-1]['content'][:200]!r}")
        return text

    return say


def _completion(text: str, messages: Messages, sampling: Sampling, seconds: float) -> Completion:
    text = text[: min((at for at in map(text.find, sampling.stop) if at >= 0), default=len(text))]
    words = [word.end() for word in _WORD.finditer(text)]
    cut = len(words) > sampling.max_tokens
    if cut:
        words = words[: sampling.max_tokens]
        text = text[: words[-1]]
    prompt = sum(len(message["content"].split()) for message in messages)
    return Completion(text, "length" if cut else "stop", Usage(prompt, len(words)), seconds=seconds)
