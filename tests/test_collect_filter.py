"""The filter: which tasks are left out for what the agents' own answers say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish import Task
from pilotfish.collect.filter import Dropped, sift
from pilotfish.collect.store import Line, Store
from pilotfish.recipe import CollectConfig, RecipeError

TASKS = [Task(name, f"What is {name}?", "1") for name in ("none", "half", "three", "all", "outage")]
RIGHT = {"none": [0, 0], "half": [1, 1], "three": [2, 1], "all": [2, 2]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two sets by two agents; of `outage` nothing is known."""
    opened = Store(tmp_path)
    for task, rights in RIGHT.items():
        for set, right in enumerate(rights):
            opened.add(Line(task, set, 0, ("ann", "bob"), (float(right > 0), float(right > 1))))
    return opened


@pytest.mark.parametrize(
    ("drop_right", "drop_wrong", "kept"),
    [
        (0.75, False, ["none", "half", "outage"]),
        (0.76, False, ["none", "half", "three", "outage"]),
        (1.0, False, ["none", "half", "three", "outage"]),
        (0.5, False, ["none", "outage"]),
        (None, False, ["none", "half", "three", "all", "outage"]),
        (0.75, True, ["half", "outage"]),
        (None, True, ["half", "three", "all", "outage"]),
    ],
)
def test_tasks_are_dropped_from_the_share_on_and_where_nobody_is_right(
    drop_right: float | None, drop_wrong: bool, kept: list[str], store: Store
) -> None:
    found = sift(TASKS, store, CollectConfig(sets=2, drop_right=drop_right, drop_wrong=drop_wrong))
    assert [task.id for task in found.kept] == kept
    assert {dropped.task for dropped in found.dropped} == {task.id for task in TASKS} - set(kept)


def test_only_the_sets_of_the_recipe_count(store: Store) -> None:
    found = sift(TASKS, store, CollectConfig(sets=1))
    assert [(dropped.task, dropped.right, dropped.of) for dropped in found.dropped] == [("three", 2, 2), ("all", 2, 2)]


def test_an_answer_that_was_not_judged_does_not_count(store: Store) -> None:
    store.add(Line("half", 0, 0, ("ann", "bob"), (1.0, None)))
    store.add(Line("half", 1, 0, ("ann", "bob"), (None, None), absent=2))
    found = sift(TASKS, store, CollectConfig(sets=2))
    assert Dropped("half", 1, 1, "right") in found.dropped


def test_the_report_says_how_many_and_why(store: Store) -> None:
    found = sift(TASKS, store, CollectConfig(sets=2, drop_wrong=True))
    assert str(found) == "filter: 2 of 5 tasks kept; dropped: 2 too often right, 1 never right"
    report = json.loads(json.dumps(found.report()))
    assert report["rule"] == {"drop_right": 0.75, "drop_wrong": True}
    assert report["counts"] == {"kept": 2, "too often right": 2, "never right": 1, "left out when the run began": 0}
    assert report["kept"] == ["half", "outage"]
    assert report["dropped"][0] == {"task": "none", "right": 0, "of": 4, "why": "wrong"}


def test_what_a_run_began_with_stands(store: Store) -> None:
    found = sift(TASKS, store, CollectConfig(sets=2), recorded=["all", "half"])
    assert [task.id for task in found.kept] == ["half", "all"]
    assert {dropped.task: dropped.why for dropped in found.dropped} == {
        "none": "begun",
        "three": "right",
        "outage": "begun",
    }


def test_nothing_left_says_the_figures_and_the_way_out(store: Store) -> None:
    with pytest.raises(RecipeError, match=r"0 of 2 tasks kept.* 7 of the agents' 8 .* --set collect.drop_right=null"):
        sift(TASKS[2:4], store, CollectConfig(sets=2))
    with pytest.raises(RecipeError, match=r"1 never right.* --set collect.drop_wrong=false"):
        sift(TASKS[:1], store, CollectConfig(sets=2, drop_wrong=True))
