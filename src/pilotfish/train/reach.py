"""Reach: whether a run comes to the decisions that it trains. An episode may end before one, and that is no fault;
where all do for a long time, the recipe names a decision that there is not.

reach = Reach(["critic"], every=10)
for step, rows in enumerate(played):
    for note in reach.after(step, rows): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pilotfish.train.row import Row


class Reach:
    """Looks at the rows of so many steps at a time.

    Args:
        topologies: labels, by number.
        every: steps.
    """

    def __init__(self, topologies: Sequence[str], every: int) -> None:
        self.topologies = topologies
        self.every = every
        self._ended: dict[tuple[int, int], bool] = {}
        """Whether all episodes ended before it, by topology and decision."""

    def after(self, step: int, rows: Sequence[Row]) -> Iterator[str]:
        """What is to be said after a step, counted from 0."""
        for row in rows:
            place = row.id.topology, row.id.decision
            self._ended[place] = self._ended.get(place, True) and row.ended_early
        if (step + 1) % self.every:
            return
        for (topology, decision), ended in sorted(self._ended.items()):
            if ended:
                yield (
                    f"step {step + 1}: no row of {self.topologies[topology]} has come to decision {decision} of late, "
                    f"so nothing is learned there; correct train.decision (they count from 0) or the topology"
                )
        self._ended.clear()
