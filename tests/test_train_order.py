"""The order of tasks and stored sets in training."""

from __future__ import annotations

import pytest

from pilotfish.train.order import order
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
