"""Prompts encoded beside the event loop, those that wait at the same time together.

    chats = Chats(tokenizer)
    ids = await chats.ids([{"role": "user", "content": "What is 7 + 5?"}])    # what `chat.render` gives

One thread makes all calls, takes all answers and records them. Encoding is Rust's work, for which Python's lock is not
needed: while another thread does it, the loop goes on. The thread is one of the loop's own (its default executor),
which ends with it.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from pilotfish.engine.chat import encode, render, unquoted
from pilotfish.team import Messages

_Key: TypeAlias = tuple[object, ...]
_Encoded: TypeAlias = tuple[int, ...] | BaseException
_Waiting: TypeAlias = "asyncio.Future[_Encoded]"

AT_ONCE = 16
"""Most chats that are encoded before those who wait for them go on: the first of many does not wait for the last."""
KEPT = 256
"""Chats whose ids are kept, since the rows of a group ask for the same one."""


@dataclass(eq=False, slots=True)
class _Chat:
    text: str
    encoded: _Encoded | None = None
    waiting: list[_Waiting] = field(default_factory=list)


class Chats:
    """Encodes chats in a thread. Calls may come from any event loop."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Copy the tokenizer.

        Args:
            tokenizer: its chat template may be changed later; tokens that are added later are not seen.
        """
        self._tokenizer = tokenizer
        self._rust = _own(tokenizer)
        self._lock = threading.Lock()
        self._known: dict[_Key, _Chat] = {}
        self._line: list[_Chat] = []
        self._serving = False

    async def ids(self, messages: Messages) -> list[int]:
        """Token ids as `render` gives them, and its errors. A cancelled call leaves others that wait alone."""
        turns = ((message["role"], message["content"]) for message in messages)
        key = (str(self._tokenizer.chat_template), *turns)
        chat = self._known.get(key)
        if chat is None:
            text = unquoted(self._tokenizer, messages) if self._rust is not None else None
            if text is None:
                return render(self._tokenizer, messages)
            chat = self._stand_in_line(key, text)
        encoded = await self._encoded(chat)
        if isinstance(encoded, BaseException):
            with self._lock:
                self._known.pop(key, None)
            raise encoded
        return list(encoded)

    def _stand_in_line(self, key: _Key, text: str) -> _Chat:
        chat = _Chat(text)
        with self._lock:
            if not self._serving:
                asyncio.get_running_loop().run_in_executor(None, self._serve)
                self._serving = True
            self._line.append(chat)
            self._known[key] = chat
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        return chat

    async def _encoded(self, chat: _Chat) -> _Encoded:
        with self._lock:
            if chat.encoded is not None:
                return chat.encoded
            told: _Waiting = asyncio.get_running_loop().create_future()
            chat.waiting.append(told)
        return await told

    def _serve(self) -> None:
        while batch := self._take():
            told = defaultdict[asyncio.AbstractEventLoop, list[tuple[_Waiting, _Encoded]]](list)
            found = self._encode([chat.text for chat in batch])
            with self._lock:
                for chat, encoded in zip(batch, found, strict=True):
                    chat.encoded = encoded
                    for waiting in chat.waiting:
                        told[waiting.get_loop()].append((waiting, encoded))
                    chat.waiting.clear()
            for loop, settled in told.items():
                with suppress(RuntimeError):  # a loop that has ended
                    loop.call_soon_threadsafe(_tell, settled)

    def _take(self) -> list[_Chat]:
        with self._lock:
            batch, self._line = self._line[:AT_ONCE], self._line[AT_ONCE:]
            self._serving = bool(batch)
            return batch

    def _encode(self, texts: Sequence[str]) -> list[_Encoded]:
        try:
            coded = self._rust.encode_batch_fast(texts, add_special_tokens=not self._tokenizer.chat_template)
        except BaseException:  # one of the texts; a panic of Rust is no Exception
            return [self._alone(text) for text in texts]
        return [tuple(each.ids) for each in coded]

    def _alone(self, text: str) -> _Encoded:
        try:
            return tuple(encode(self._tokenizer, text))
        except BaseException as error:
            return error


def _tell(settled: Sequence[tuple[_Waiting, _Encoded]]) -> None:
    for waiting, encoded in settled:
        if not waiting.done():
            waiting.set_result(encoded)


def _own(tokenizer: PreTrainedTokenizerBase) -> Any:
    """A copy of a tokenizer's Rust part, whose settings transformers changes while others use it; None for a tokenizer
    that has none, or that does more than hand it texts."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    for step in ("__call__", "_encode_plus"):
        if getattr(type(tokenizer), step, None) is not getattr(PreTrainedTokenizerFast, step, None):
            return None
    rust: Any = copy.deepcopy(tokenizer.backend_tokenizer)
    rust.no_truncation()
    rust.no_padding()
    rust.encode_special_tokens = tokenizer.split_special_tokens
    return rust
