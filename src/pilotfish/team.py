"""The team: members, their sampling, what they use and what that costs.

A **member** is a seat: a model behind an engine, with its own sampling and price. Exactly one member of a team is the
trainee; all others are frozen. Two members may sit on the same weights and are still two callers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

from pydantic import Field

from pilotfish.model import Model


class Message(TypedDict):
    """One chat message; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


Messages = list[Message]


class Sampling(Model):
    """How a member's tokens are drawn."""

    temperature: float = Field(default=1.0, ge=0.0)
    """0 is greedy: the call is then deterministic and its answer is kept across runs."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Nucleus mass. Leave at 1 for a trainee: its log-probabilities are those of the whole distribution."""
    max_tokens: int = Field(default=512, ge=1)
    """Most tokens in one answer."""
    stop: tuple[str, ...] = ()
    """Strings that end an answer; they are not part of its text."""


class Price(Model):
    """Money per million tokens, in whatever currency the recipe uses throughout."""

    input: float = Field(default=0.0, ge=0.0)
    """Per million prompt tokens."""
    output: float = Field(default=0.0, ge=0.0)
    """Per million completion tokens (reasoning tokens are completion tokens)."""
    cached: float | None = Field(default=None, ge=0.0)
    """Per million prompt tokens that the server read from its cache; `input` when not given."""

    @property
    def paid(self) -> bool:
        """Whether calls cost anything."""
        return bool(self.input or self.output)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or a sum of calls.

    `prompt` counts all prompt tokens, those in `cached` included; `completion` counts all completion tokens, those in
    `reasoning` included. `estimated` is True when any of it is a tokenizer's count and not the server's.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )

    @property
    def total(self) -> int:
        return self.prompt + self.completion

    def cost(self, price: Price) -> float:
        """Money, in the price's currency."""
        cached_rate = price.input if price.cached is None else price.cached
        fresh = self.prompt - self.cached
        return (fresh * price.input + self.cached * cached_rate + self.completion * price.output) / 1e6


@dataclass(frozen=True, slots=True)
class Member:
    """A seat as a topology sees it."""

    name: str
    model: str
    """The model's declared name (for a local path, the path as written)."""
    trainee: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    price: Price = field(default_factory=Price)
    judges: bool = False
    """Gives verdicts on answers: it is in no room, so that no topology asks it."""
