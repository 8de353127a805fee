"""The order in which a training goes through its groups: tasks, stored sets and decisions."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from pilotfish.train.profile import TrainConfig, steps
from pilotfish.train.row import RowId

Shares = Mapping[RowId, float]
"""The share of right answers in the stored set that a group stands on."""


def order(rows: Sequence[RowId], config: TrainConfig, seed: int, right: Shares | None = None) -> list[RowId]:
    """The groups of a whole training, one behind the other: each epoch in an order of its own, drawn by the seed.

    The decisions of one task, set and topology stand together, so that they share a step's episodes.
    TRL would shuffle each epoch itself, but a run resumed in its second epoch would see the first one's order again.

    Args:
        rows: one id a group.
        config: steps, groups a step, `set_order`.
        seed: of the draw.
        right: for `set_order: easy_first` and `hard_first`.

    Raises:
        ValueError: the order goes by right answers, and none were collected.
    """
    laid: list[RowId] = []
    stands = _stands(rows)
    wanted = steps(config, len(rows)) * config.tasks_per_step
    epoch = 0
    while len(laid) < wanted:
        full = len(rows) // config.tasks_per_step * config.tasks_per_step
        # Cut before it is sorted: what an epoch leaves out is drawn anew each time.
        shuffled = chain.from_iterable(random.Random(f"{seed}/{epoch}").sample(stands, len(stands)))
        laid += _sorted(list(shuffled)[:full], config.set_order, right)
        epoch += 1
    return laid[:wanted]


def _stands(rows: Sequence[RowId]) -> list[list[RowId]]:
    """The groups that stand together; one that is given several times stands each time for itself."""
    met: Counter[RowId] = Counter()
    stands: dict[tuple[tuple[str, int, int], int], list[RowId]] = defaultdict(list)
    for row in rows:
        stands[row.stand, met[row]].append(row)
        met[row] += 1
    return list(stands.values())


def _sorted(shuffled: list[RowId], set_order: str, right: Shares | None) -> list[RowId]:
    """Sorts are stable: what the order leaves open stays as drawn."""
    if set_order == "mixed":
        return shuffled
    if set_order == "by_set":
        return sorted(shuffled, key=lambda row: row.set)
    if set_order == "by_task":
        first = {row.task: at for at, row in reversed(list(enumerate(shuffled)))}
        return sorted(shuffled, key=lambda row: first[row.task])
    if not right:
        raise ValueError(
            f"train.set_order is {set_order}, and no answers were collected; run `pilotfish collect` first"
        )
    sign = -1 if set_order == "easy_first" else 1
    return sorted(shuffled, key=lambda row: sign * right.get(row, 0.0))
