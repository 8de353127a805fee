"""The store: what was collected, how right it is, and for which recipes it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collecting import recipe
from pilotfish import Sampling
from pilotfish.collect.manifest import Leader
from pilotfish.collect.store import Line, Store
from pilotfish.curriculum import curriculum
from pilotfish.recipe import Recipe, RecipeError, parse_recipe

URL = "http://127.0.0.1:9/v1"


def changed(whole: Recipe, **fields: Any) -> Recipe:
    """The recipe with fields set, each by its dotted name with `__` for the dots."""
    data = whole.model_dump(mode="json")
    for name, value in fields.items():
        *parents, last = name.split("__")
        place = data
        for parent in parents:
            place = place[parent]
        place[last] = value
    return parse_recipe(data)


@pytest.fixture
def whole(tmp_path: Path) -> Recipe:
    return recipe(tmp_path, URL)


@pytest.fixture
def store(tmp_path: Path, whole: Recipe) -> Store:
    """Round 0 of four tasks in two sets, by two agents: in set 0 the first is right, in set 1 nobody."""
    opened = Store(tmp_path)
    tasks = curriculum(whole).train
    opened.begin(whole, tasks)
    for task in tasks:
        for set in range(2):
            opened.add(Line(task.id, set, 0, ("ann", "bob"), (1.0 - set, 0.0 if task.id != "t3" else None)))
    opened.finish((0,))
    return opened


def test_a_folder_in_which_nothing_was_collected_says_how_to(tmp_path: Path, whole: Recipe) -> None:
    store = Store(tmp_path)
    assert (store.sets, store.shaped, store.rounds, dict(store.verdicts())) == (0, None, (), {})
    assert store.share_right("t0", 0, 0) == 0.0
    with pytest.raises(RecipeError, match="no answers are collected; run `pilotfish collect RECIPE --run"):
        store.expect(whole, rounds=(0,))


def test_shares_and_verdicts_are_of_the_judged_answers(tmp_path: Path, store: Store) -> None:
    again = Store(tmp_path)
    assert again.sets == 2
    assert again.verdicts()["t0", 0, 0] == (1.0, 0.0)
    assert again.verdicts()["t3", 0, 0] == (1.0, None)
    assert [again.share_right(task, 0, 0) for task in ("t0", "t3", "unknown")] == [0.5, 1.0, 0.0]
    assert again.share_right("t0", 1, 0) == 0.0


def test_what_was_collected_is_accepted(store: Store, whole: Recipe) -> None:
    store.expect(whole, rounds=(0,))
    store.expect(changed(whole, collect__drop_right=None, team__leader__model="another/leader"), rounds=(0,))
    store.expect(changed(whole, topology__options={"rounds": 5}), rounds=(0,))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"team__ann__model": "other"}, "agent ann: model 'model-ann' was collected, the recipe's is 'other'"),
        ({"team__bob__revision": "v2"}, "agent bob: revision None was collected, the recipe's is 'v2'"),
        ({"team__ann__sampling__temperature": 0.9}, "agent ann: sampling .*0.7.* the recipe's is .*0.9"),
        ({"team__ann__extra": {"think": False}}, "agent ann: extra {} was collected, the recipe's is {'think': False}"),
        ({"topology__prompts": {"solve": {"user": "{question}!"}}}, "prompt version 2.* was collected"),
        ({"topology__name": "alone"}, "topology leader was collected, the recipe's is alone"),
    ],
)
def test_answers_of_other_prompts_models_or_sampling_are_refused_by_name(
    fields: dict[str, Any], said: str, store: Store, whole: Recipe
) -> None:
    with pytest.raises(RecipeError, match=f"not those of this recipe: .*{said}"):
        store.expect(changed(whole, **fields), rounds=(0,))


def test_an_agent_more_or_less_is_refused_by_name(store: Store, whole: Recipe) -> None:
    data = whole.model_dump(mode="json")
    data["team"]["eve"] = data["team"].pop("bob")
    with pytest.raises(RecipeError, match="bob is not in the recipe; agent eve is not among the collected ones"):
        store.expect(parse_recipe(data), rounds=(0,))


def test_answers_to_another_task_set_are_refused_by_name(tmp_path: Path, store: Store, whole: Recipe) -> None:
    file = tmp_path / "tasks.jsonl"
    text = file.read_text()
    file.write_text(text.replace('"answer": "8"', '"answer": "9"'))
    with pytest.raises(RecipeError, match=r"1 tasks ask something else or have another gold \('t1' is the first\)"):
        store.expect(whole, rounds=(0,))
    file.write_text(text.replace('"id": "t', '"id": "newt'))
    with pytest.raises(RecipeError, match=r"4 of 4 tasks are not among them \('newt0' is the first\)"):
        store.expect(whole, rounds=(0,))


def test_fewer_sets_than_are_trained_on_are_refused(store: Store, whole: Recipe) -> None:
    more = changed(whole, collect__sets=4, train__prefix="stored", train__sets=3)
    with pytest.raises(RecipeError, match=r"collect has 2 sets a task; the recipe trains on 3: lower train.sets"):
        store.expect(more, rounds=(0,))
    store.expect(changed(more, train__sets=2), rounds=(0,))


def test_a_round_that_is_not_there_is_refused_with_the_command(store: Store, whole: Recipe) -> None:
    with pytest.raises(
        RecipeError, match=r"collect has rounds 0; train.decision needs 1,2: .*--rounds 1,2 --leader RUN"
    ):
        store.expect(whole, rounds=(1, 2))


def test_rounds_above_0_are_those_of_the_last_leader(tmp_path: Path, store: Store, whole: Recipe) -> None:
    tasks = curriculum(whole).train
    first, second = Leader(model="a", identity="1"), Leader(model="b", identity="2")
    for leader, reward in ((first, 0.0), (second, 1.0)):
        store.begin(whole, tasks, leader)
        store.add(Line("t0", 0, 1, ("ann",), (reward,), leader=leader.scope))
        store.finish((0, 1), leader)
    assert Store(tmp_path).share_right("t0", 0, 1) == 1.0
    assert store.shaped == second.scope != first.scope
    store.begin(whole, tasks, first)
    assert Store(tmp_path).share_right("t0", 0, 1) == 0.0
    assert store.rounds == (0, 1)
    assert store.led_by("b", Sampling()) == second.model_copy(update={"rounds": (1,)})


def test_a_newer_line_counts_and_a_torn_one_is_passed_over(tmp_path: Path, store: Store) -> None:
    with (tmp_path / "collected.jsonl").open("a") as file:
        file.write('{"task": "t0", "set": 0, "rou')
    store.add(Line("t1", 0, 0, ("ann", "bob"), (0.0, 0.0)))
    again = Store(tmp_path)
    assert len(again.lines()) == 8
    assert (again.share_right("t0", 0, 0), again.share_right("t1", 0, 0)) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"format": 9}', "written by a newer Pilotfish"), ('{"format": 1', "damaged"), ("[]", "damaged")],
)
def test_a_store_that_cannot_be_read_is_refused_by_name(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(text)
    with pytest.raises(RecipeError, match=f"store.json: .*{said}"):
        Store(tmp_path)


def test_sets_without_an_answer_or_without_the_round_are_lacking(tmp_path: Path, store: Store, whole: Recipe) -> None:
    tasks = curriculum(whole).train
    store.add(Line("t2", 1, 0, ("ann", "bob"), (None, None), absent=2))
    assert store.lacking(tasks, 2, (0,)) == [("t2", 1)]
    assert len(store.lacking(tasks, 2, (0, 1))) == 8
