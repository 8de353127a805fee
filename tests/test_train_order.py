"""The order of tasks and stored sets in training."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.train.order import check_shares, order, parts
from pilotfish.train.profile import TrainConfig
from pilotfish.train.rollout import RowId

ROWS = [RowId(f"t{task}", set) for task in range(6) for set in range(3)]
RIGHT = {row: ((int(row.task[1:]) + row.set) % 4) / 3 for row in ROWS}


def config(set_order: str, epochs: float = 2.0) -> TrainConfig:
    sized = {"group_size": 2, "tasks_per_step": 3, "updates_per_step": 1, "micro_batch": 6}
    return TrainConfig(prefix="stored", sets=3, set_order=set_order, epochs=epochs, **sized)


@pytest.mark.parametrize("set_order", ["mixed", "by_set", "by_task", "easy_first", "hard_first"])
def test_every_epoch_goes_through_every_set_once_in_an_order_of_its_own(set_order: str) -> None:
    laid = order(ROWS, config(set_order), 0, RIGHT)
    first, second = laid[: len(ROWS)], laid[len(ROWS) :]
    assert sorted(map(str, first)) == sorted(map(str, second)) == sorted(map(str, ROWS))
    assert first != second
    assert order(ROWS, config(set_order), 0, RIGHT) == laid
    assert order(ROWS, config(set_order), 1, RIGHT) != laid


def test_one_set_of_every_task_after_the_other() -> None:
    laid = order(ROWS, config("by_set", 1.0), 0)
    assert [row.set for row in laid] == [0] * 6 + [1] * 6 + [2] * 6


def test_the_sets_of_a_task_stand_together() -> None:
    laid = order(ROWS, config("by_task", 1.0), 0)
    assert [len({row.task for row in laid[at : at + 3]}) for at in range(0, 18, 3)] == [1] * 6


def test_sets_go_from_easy_to_hard_and_back() -> None:
    easy = [RIGHT[row] for row in order(ROWS, config("easy_first", 1.0), 0, RIGHT)]
    hard = [RIGHT[row] for row in order(ROWS, config("hard_first", 1.0), 0, RIGHT)]
    assert easy == sorted(easy, reverse=True)
    assert hard == sorted(hard)


def test_an_order_by_right_answers_needs_collected_ones() -> None:
    with pytest.raises(ValueError, match="run `pilotfish collect` first"):
        order(ROWS, config("easy_first"), 0)


# -- several decisions


def several(sizes: list[int], tasks: int) -> list[RowId]:
    """On each task as many decisions as each topology of a mix has."""
    return [
        RowId(f"t{n}", 0, decision, at)
        for n in range(tasks)
        for at, size in enumerate(sizes)
        for decision in range(size)
    ]


def steps_of(size: int, **more: Any) -> TrainConfig:
    return TrainConfig(
        decision="all", group_size=2, tasks_per_step=size, updates_per_step=1, micro_batch=2 * size, **more
    )


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    tasks=st.integers(3, 30),
    size=st.integers(1, 9),
    seed=st.integers(0, 9),
)
def test_an_epoch_has_each_group_once_and_the_decisions_of_an_episode_in_their_order(
    sizes: list[int], tasks: int, size: int, seed: int
) -> None:
    rows = several(sizes, tasks)
    if len(rows) < size:
        return
    laid = order(rows, steps_of(size), seed)
    assert len(laid) == len(rows) // size * size
    assert len(set(laid)) == len(laid)
    assert set(laid) <= set(rows)
    for part in parts(laid, size):
        assert [row.decision for row in part] == list(range(part[0].decision, part[0].decision + len(part)))


@pytest.mark.parametrize(
    ("sizes", "size"), [([2], 12), ([1, 2], 12), ([2, 1], 3), ([3, 1], 12), ([3], 3), ([1, 2, 3], 12)]
)
def test_steps_hold_whole_episodes(sizes: list[int], size: int) -> None:
    laid = order(several(sizes, 60), steps_of(size, epochs=2), 0)
    cut = [part for part in parts(laid, size) if len(part) < sizes[part[0].topology]]
    assert len(cut) <= 2, "at an epoch's end nothing may be left that fits"


def test_where_episodes_do_not_fill_a_step_as_few_as_can_be_are_divided() -> None:
    played = list(parts(order(several([3], 24), steps_of(4), 0), 4))
    assert sorted(map(len, played)) == sorted([3] * 12 + [1, 2] * 12)


def test_no_two_processes_play_one_episode() -> None:
    mixed = order(several([1, 2], 60), steps_of(12), 0)
    check_shares(mixed, steps_of(12), 2)
    backwards = [RowId(f"t{n}", 0, decision) for n in range(4) for decision in (1, 0)]
    with pytest.raises(ValueError, match="2 processes with 1 groups each divide the decisions of an episode on task t"):
        check_shares(order(backwards, steps_of(2), 0), steps_of(2), 2)
    check_shares(order(backwards, steps_of(4), 0), steps_of(4), 2)
