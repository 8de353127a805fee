"""Answers as OpenAI's formats have them: whole, and in pieces."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pilotfish.episode import Episode
from pilotfish.serve.usage import turn_of

Kind = Literal["chat", "text"]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Answer:
    """The answer to one request, of which all pieces have one id.

    Args:
        kind: `chat` for messages, `text` for a completed prompt.
        model: as the client names it.
    """

    kind: Kind
    model: str
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, episodes: Sequence[Episode], usage: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """The body of a plain answer."""
        choices = []
        for index, episode in enumerate(episodes):
            text = episode.answer or ""
            said = {"message": {"role": "assistant", "content": text}} if self.kind == "chat" else {"text": text}
            choices.append(self._choice(index, said, finish_reason(episode)))
        return {**self._frame(piece=False), "choices": choices, "usage": usage, **own}

    def piece(self, index: int, text: str, first: bool) -> bytes:
        """Some of the text of one choice; the first piece says whose it is."""
        role = {"role": "assistant"} if first else {}
        said = {"delta": {**role, "content": text}} if self.kind == "chat" else {"text": text}
        return event({**self._frame(piece=True), "choices": [self._choice(index, said, None)]})

    def last(self, index: int, episode: Episode) -> bytes:
        """The end of one choice."""
        said: dict[str, Any] = {"delta": {}} if self.kind == "chat" else {"text": ""}
        return event({**self._frame(piece=True), "choices": [self._choice(index, said, finish_reason(episode))]})

    def after(self, fields: dict[str, Any]) -> bytes:
        """What comes behind the choices: the usage, and what Pilotfish adds."""
        return event({**self._frame(piece=True), "choices": [], **fields})

    def _frame(self, piece: bool) -> dict[str, Any]:
        if self.kind == "text":
            prefix, kind = "cmpl", "text_completion"
        else:
            prefix, kind = "chatcmpl", "chat.completion.chunk" if piece else "chat.completion"
        return {"id": f"{prefix}-{self.id}", "object": kind, "created": self.created, "model": self.model}

    @staticmethod
    def _choice(index: int, said: dict[str, Any], reason: str | None) -> dict[str, Any]:
        return {"index": index, **said, "logprobs": None, "finish_reason": reason}


def event(fields: dict[str, Any], name: str = "") -> bytes:
    """A server-sent event, in ASCII: some clients take other line ends of Unicode for the end of a line."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(fields, separators=(',', ':'))}\n\n".encode()


def finish_reason(episode: Episode) -> str:
    """`length` where the turn that is the answer was cut off, `content_filter` where a filter took from it."""
    final = [placed.turn.completion for placed in episode.turns if placed.final and placed.turn.completion]
    reasons = {turn.finish_reason for turn in final if turn.text == episode.answer}
    return next((reason for reason in ("length", "content_filter") if reason in reasons), "stop")


def own_fields(episodes: Sequence[Episode], turns: bool, verdict: bool) -> dict[str, Any]:
    """What Pilotfish adds to an answer on request, a list with an entry for each choice."""
    fields: dict[str, Any] = {}
    if turns:
        fields["turns"] = [[turn_of(turn) for turn in episode.asked] for episode in episodes]
    if verdict:
        fields["verdicts"] = [verdict_of(episode) for episode in episodes]
    return {"pilotfish": fields} if fields else {}


def verdict_of(episode: Episode) -> dict[str, Any]:
    """The verdict as clients see it."""
    verdict = episode.verdict
    return {"reward": verdict.reward, "extracted": verdict.extracted, "why": verdict.why}
