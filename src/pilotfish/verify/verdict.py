"""A verdict: how right an answer is, what was read from it, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pilotfish.episode.turn import Turn

RIGHT = 0.5
"""The reward from which an answer counts as right where right and wrong ones are counted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reward` is in [0, 1], or None when the answer could not be judged (an outage, a bad gold answer, a worker that
    died). A time limit that the answer itself caused is a 0 with its reason."""

    reward: float | None
    extracted: str | None = None
    """What was taken from the answer and compared."""
    why: str = ""
    """One short sentence; empty for a plain right answer."""
    turns: tuple[Turn, ...] = ()
    """What a member was asked for it, where one judges."""

    @property
    def correct(self) -> bool | None:
        return None if self.reward is None else self.reward >= 1.0
