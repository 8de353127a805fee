"""Forks: the rows of a group share all that comes before the decision that is trained.

rows = [await play(..., salts=fork(decision=0, row=i)) for i in range(8)]
check_group(rows, decision=0)                  # equal prompts, which is what GRPO assumes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilotfish.episode.calls import ReplayMismatch, difference
from pilotfish.episode.turn import Episode, Position, Turn


def fork(decision: int, row: int, prefix: Mapping[int, str] | None = None) -> dict[int, str]:
    """Salts that give a row of the group that trains the trainee's `decision`-th decision.

    Args:
        decision: depth of the decision, from 0.
        row: index in the group.
        prefix: salts of the branch that earlier decisions are taken from; without it they are played unsalted and
            shared by the group.
    """
    return {**(prefix or {}), decision: f"{decision}.{row}"}


def check_group(rows: Sequence[Episode], decision: int) -> None:
    """Make sure that the rows of a group made equal calls up to the decision, and were asked for it in equal words.

    Args:
        rows: episodes that were forked at the same decision.
        decision: its depth.

    Raises:
        ReplayMismatch: the topology is not deterministic; names the first call that differs.
    """
    first, *others = [_up_to(row, decision) for row in rows]
    for row, calls in zip(rows[1:], others, strict=True):
        for position in sorted(first.keys() | calls.keys()):
            one, other = first.get(position), calls.get(position)
            if not one or not other or (one.member, one.messages) != (other.member, other.messages):
                why = difference(position, one, other, (f"row {rows[0].id}", f"row {row.id}"))
                raise ReplayMismatch(position, why)


def _up_to(row: Episode, decision: int) -> dict[Position, Turn]:
    """What does not depend on the decision, and the decision itself."""
    return {placed.position: placed.turn for placed in row.turns if placed.depth <= decision}
