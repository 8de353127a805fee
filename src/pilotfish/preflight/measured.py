"""What members' calls have come to: tokens and seconds a call, from the turns of a run or of a sample.

found = measured(journal.turns())
found["actor"].completion.mean, found["actor"].completion.low
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from pilotfish.episode import Turn
from pilotfish.preflight.filler import quarter_of_characters


@dataclass
class Spread:
    """Values as they come; only their sums are kept, so that a long record takes no memory."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    most: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.squares += value * value
        self.most = max(self.most, value)

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def error(self) -> float:
        """Two standard errors of the mean; of a single value none is known, and all of it is taken."""
        if self.count < 2:
            return self.mean
        variance = max(0.0, self.squares - self.total * self.mean) / (self.count - 1)
        return 2 * math.sqrt(variance / self.count)

    @property
    def low(self) -> float:
        return max(0.0, self.mean - self.error)

    @property
    def high(self) -> float:
        return self.mean + self.error


@dataclass
class Measured:
    """What the answered calls of one member came to."""

    prompt: Spread = field(default_factory=Spread)
    """Tokens."""
    completion: Spread = field(default_factory=Spread)
    """Tokens."""
    seconds: Spread = field(default_factory=Spread)
    characters: float = 0.0
    """Of all prompts, in quarters: what their tokens are estimated by."""
    cut: int = 0
    """Answers that ended at their token limit."""
    together: int | None = None
    """How many calls were in flight, where that is known: what runs in process is slower the more there are."""

    @property
    def calls(self) -> int:
        return self.completion.count

    @property
    def density(self) -> float:
        """Tokens in a quarter of the characters of a prompt."""
        return self.prompt.total / self.characters if self.characters else 1.0

    def add(self, turn: Turn) -> None:
        done = turn.completion
        assert done is not None
        self.prompt.add(turn.usage.prompt)
        self.completion.add(turn.usage.completion)
        self.seconds.add(done.seconds)
        self.characters += quarter_of_characters(turn.messages)
        self.cut += done.finish_reason == "length"


def measured(turns: Iterable[Turn], together: int | None = None) -> dict[str, Measured]:
    """By member, what was answered; words that were put into its mouth had no prompt, and do not count.

    Args:
        turns: of a run's journal or of a sample's episodes, each once.
        together: how many of them were in flight.
    """
    found: dict[str, Measured] = {}
    for turn in turns:
        if turn.answered and turn.usage.prompt:
            found.setdefault(turn.member, Measured(together=together)).add(turn)
    return found
