"""The words of an answer as its tokens are drawn: for whoever listens to an engine in process.

    spoken = Spoken(tokenizer, on_text, held=4)
    await tokens.complete(…, stop=spoken.after(stop))     # pieces of text come as tokens do
    spoken.finish(text)                                   # what was held back

The pieces are the beginning of the text as it is in the end. So the last characters are held back: a stop string may
begin there, blanks may be trimmed, a character may lack some of its bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from pilotfish.engine.base import OnText

Stop = Callable[[list[int]], bool]


class Spoken:
    """Gives the text of one answer on; made in the event loop of whoever listens, told of tokens from any thread.

    Args:
        tokenizer: the model's own. One that cannot decode in steps gives nothing on before the end.
        on_text: takes the pieces, in the event loop.
        held: characters at the end that may yet be cut off.
        strip: whether the text will be without the blanks at its beginning.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, on_text: OnText, held: int = 0, strip: bool = False) -> None:
        self._tokenizer: Any = getattr(tokenizer, "backend_tokenizer", None)
        self._on_text = on_text
        self._held = held
        self._strip = strip
        self._loop = asyncio.get_running_loop()
        self._decoder: Any = DecodeStream(skip_special_tokens=True)
        self._tokens = 0
        self._text = ""
        self._sent = 0
        self._given = ""

    def after(self, stop: Stop | None) -> Stop:
        """A stop function that also listens."""

        def listen(tokens: list[int]) -> bool:
            if stop is not None and stop(tokens):
                return True
            self._hear(tokens)
            return False

        return listen

    def finish(self, text: str) -> None:
        """Give on what is left of the whole text."""
        if text.startswith(self._given) and len(text) > len(self._given):
            self._give(text[len(self._given) :])

    def _hear(self, tokens: list[int]) -> None:
        if self._tokenizer is None:
            return
        fresh, self._tokens = tokens[self._tokens :], len(tokens)
        try:
            pieces = [self._decoder.step(self._tokenizer, token) for token in fresh]
        except Exception:  # bytes that are no text: the rest comes at the end
            self._tokenizer = None
            return
        self._text += "".join(piece for piece in pieces if piece)
        self._send()

    def _send(self) -> None:
        text = self._text.lstrip() if self._strip else self._text
        safe = len(text[: len(text) - self._held].rstrip())
        if safe > self._sent:
            piece, self._sent = text[self._sent : safe], safe
            with suppress(RuntimeError):  # the loop has ended, and with it whoever listened
                self._loop.call_soon_threadsafe(self._give, piece)

    def _give(self, piece: str) -> None:
        self._given += piece
        self._on_text(piece)
