"""The order in which a training goes through its groups: tasks, stored sets and decisions."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby

from pilotfish.train.profile import TrainConfig, steps
from pilotfish.train.row import RowId

Shares = Mapping[RowId, float]
"""The share of right answers in the stored set that a group stands on."""
Stand = Sequence[RowId]
"""The groups that train the decisions of one episode."""


def order(rows: Sequence[RowId], config: TrainConfig, seed: int, right: Shares | None = None) -> list[RowId]:
    """The groups of a whole training, one behind the other: each epoch in an order of its own, drawn by the seed.

    The decisions of one task, set and topology stand together, so that they share a step's episodes; only where what is
    left of a step holds no whole stand, one goes on in the next step, which plays it once more.
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
    size, stands = config.tasks_per_step, _stands(rows)
    wanted = steps(config, len(rows)) * size
    epoch = 0
    while len(laid) < wanted:
        shuffled = random.Random(f"{seed}/{epoch}").sample(stands, len(stands))
        # Cut before it is sorted: what an epoch leaves out is drawn anew each time.
        (kept,) = _packed(shuffled, len(rows) // size * size, 1)
        ordered = _stands(_sorted(list(chain.from_iterable(kept)), config.set_order, right))
        for step in _packed(ordered, size, len(rows) // size):
            # Then processes that share the step have whole ones, where that can be.
            larger_first = sorted(step, key=len, reverse=True)
            laid += chain.from_iterable(larger_first)
        epoch += 1
    return laid[:wanted]


def parts(laid: Sequence[RowId], size: int) -> Iterator[Stand]:
    """What each step plays of each stand.

    Args:
        laid: what `order` gave.
        size: groups in a step.
    """
    for start in range(0, len(laid), size):
        yield from _stands(laid[start : start + size])


def check_shares(laid: Sequence[RowId], config: TrainConfig, processes: int) -> None:
    """Make sure that no two processes play one episode: its decisions stand side by side, in the share of one.

    Args:
        laid: what `order` gave; of each step, a process takes as many groups as any other, one behind the other.
        config: groups a step, and what the decisions stand on: behind shaped answers each has an episode of its own.
        processes: that divide them.

    Raises:
        ValueError: names the first task whose decisions would be divided.
    """
    share = config.tasks_per_step // processes
    for at in range(share, len(laid), share) if config.prefix != "shaped" else ():
        before, after = laid[at - 1], laid[at]
        if at % config.tasks_per_step and before.stand == after.stand:
            raise ValueError(
                f"train: {processes} processes with {share} groups each divide the decisions of an episode on task "
                f"{after.task}; make tasks_per_step / {processes} a multiple of how many are trained in an episode"
            )


def _stands(rows: Iterable[RowId]) -> list[Stand]:
    """Rows that follow one another, by what they have in common."""
    return [list(stand) for _, stand in groupby(rows, key=lambda row: row.stand)]


def _packed(stands: Iterable[Stand], size: int, steps: int) -> Iterator[list[Stand]]:
    """So many steps of so many groups. Stands of one size keep their order; of several sizes, as large a share is taken
    of each, so that all of them last to the end and one that fits can be found."""
    waiting: dict[int, deque[Stand]] = {}
    for stand in stands:
        waiting.setdefault(len(stand), deque()).append(stand)
    counts = {length: len(queue) for length, queue in waiting.items()}
    rest: Stand = []
    for _ in range(steps):
        step, room = list[Stand](), size
        while room:
            stand = rest or _next(waiting, counts, room)
            step.append(stand[:room])
            rest = stand[room:]
            room -= len(step[-1])
        yield step


def _next(waiting: Mapping[int, deque[Stand]], counts: Mapping[int, int], room: int) -> Stand:
    """One that fits, if any does."""
    lengths = [length for length, queue in waiting.items() if queue]
    fitting = [length for length in lengths if length <= room] or lengths
    return waiting[max(fitting, key=lambda length: (len(waiting[length]) / counts[length], length))].popleft()


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
