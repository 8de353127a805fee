"""Where an episode belongs is read from its id: what is played for training, on the holdout and in evaluations."""

from __future__ import annotations

import pytest

from pilotfish import Scopes
from pilotfish.episode import episode_id, fork
from pilotfish.topology import critic, hint, solo, vote
from pilotfish.view.place import Place, place

TASKS = ["t7", "0", "algebra/7", "train/0/x", "a|b"]


def placed(scope: str, task: str, topology: object = hint, **more: object) -> Place:
    """The place of an episode, named as the player names it."""
    return place(episode_id(topology, Scopes(scope), **more), task, topology.name, scope)  # type: ignore[arg-type, attr-defined]


@pytest.mark.parametrize("task", TASKS)
def test_a_row_of_training(task: str) -> None:
    found = placed(f"train/3/{task}/1", task, salts=fork(0, 5))
    assert found == Place("train", "", step=3, sample=1, method="hint", decision=0, row=5)


def test_a_row_of_a_stage_behind_a_drawn_branch_with_a_second_answer() -> None:
    found = placed("mlpo#2/train/10/t/0#1", "t", salts=fork(2, 7, fork(1, 0)), then="answer 1")
    assert found == Place("train", "mlpo#2", 10, 0, "hint", decision=2, row=7, answer="answer 1")


def test_what_a_row_is_compared_with_is_no_row() -> None:
    found = placed("train/3/t/0", "t", salts={0: "0.1", 2: "silent 2"})
    assert (found.row, found.decision, found.answer) == (None, None, "silent 2")


@pytest.mark.parametrize("task", TASKS)
def test_the_holdout_after_a_step(task: str) -> None:
    assert placed(f"eval/holdout/{task}/0", task, arm="step 20") == Place("holdout", "", step=20, method="hint")
    assert placed(f"eval/sft#1/holdout/{task}/0", task, arm="step 0") == Place(
        "holdout", "sft#1", step=0, method="hint"
    )


@pytest.mark.parametrize("task", TASKS)
def test_an_evaluation_of_several_models(task: str) -> None:
    bound = vote.bind(samples=3)
    found = placed(f"eval/math500/{task}/2", task, bound, arm="big: vote(samples: 3)")
    assert found == Place("eval", "math500", sample=2, method="big: vote(samples: 3)")
    assert found.model == "big"


def test_the_model_is_no_part_of_an_arms_options() -> None:
    assert placed("eval/math500/t/0", "t", arm="vote(samples: 3)").model == ""


@pytest.mark.parametrize(
    ("scope", "topology", "arm", "is_alone"),
    [
        ("alone/t", solo, "", True),
        ("eval/math500/t/0", solo, "solo", True),
        ("eval/math500/t/0", solo, "big: solo", True),
        ("eval/math500/t/0", hint, "trained", False),
    ],
)
def test_whom_others_are_compared_with(scope: str, topology: object, arm: str, is_alone: bool) -> None:
    assert placed(scope, "t", topology, arm=arm).is_alone is is_alone


def test_prompts_of_a_recipes_own_are_left_out_of_the_method() -> None:
    bound = hint.bind(prompts={"advise": {"system": "Be brief."}})
    assert placed("train/0/t/0", "t", bound, salts=fork(0, 1)).method == "hint"
    several = critic.bind(rounds=2, prompts={"revise": {"system": "Go."}})
    assert placed("train/0/t/0", "t", several).method == "critic(rounds=2)"


def test_what_was_collected_and_what_is_not_known() -> None:
    assert placed("collect/shaped/1f/t/4", "t") == Place("collect", "shaped", sample=4, method="hint")
    assert placed("mlpo#1/samples/t/2#5", "t") == Place("other", "mlpo#1 samples", sample=2, method="hint")
    assert placed("elsewhere", "t") == Place("other", method="hint")
