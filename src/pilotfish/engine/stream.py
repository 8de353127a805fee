"""A streamed answer: server-sent events in, pieces of text out, and at the end the body that a plain answer has.

pieces = Pieces(on_text)
pieces.feed(data)          # as bytes arrive, cut anywhere
pieces.body()              # {"choices": [...], "usage": ...}, or None when the stream broke off
"""

from __future__ import annotations

import json
from typing import Any

from pilotfish.engine.base import OnText as OnText


class Pieces:
    """Puts the pieces of one answer together.

    Args:
        on_text: is given each piece of the answer's text as it comes; reasoning is kept apart and not given.
    """

    def __init__(self, on_text: OnText) -> None:
        self.told = False
        """Whether any text was given on."""
        self._on_text = on_text
        self._rest = b""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish: str | None = None
        self._done = False
        self._fields: dict[str, Any] = {}

    def feed(self, data: bytes) -> None:
        """Take bytes of the response."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.strip())

    def body(self) -> dict[str, Any] | None:
        """The answer as a plain response has it; None when the stream ended before the answer did."""
        if not (self._done or self._finish or "error" in self._fields):
            return None
        message = {"content": "".join(self._text), "reasoning_content": "".join(self._reasoning)}
        return {"choices": [{"message": message, "finish_reason": self._finish}], **self._fields}

    def _take(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return  # comments that keep the line open, and event names
        value = line.removeprefix(b"data:").strip()
        if value == b"[DONE]":
            self._done = True
            return
        try:
            event = json.loads(value)
        except ValueError:
            return
        if isinstance(event, dict):
            self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        self._fields |= {name: event[name] for name in ("usage", "error") if event.get(name)}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        delta = choice.get("delta")
        said = delta if isinstance(delta, dict) else {"content": choice.get("text")}
        self._keep(said.get("reasoning_content") or said.get("reasoning"), self._reasoning)
        if self._keep(said.get("content"), self._text):
            self.told = True
            self._on_text(self._text[-1])
        if isinstance(choice.get("finish_reason"), str):
            self._finish = choice["finish_reason"]

    @staticmethod
    def _keep(piece: object, pieces: list[str]) -> bool:
        if isinstance(piece, str) and piece:
            pieces.append(piece)
            return True
        return False
