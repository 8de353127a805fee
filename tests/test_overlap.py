"""Repeats between training and test sets: what counts as one, what does not, and the three policies."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.overlap import Overlap, overlap, without_overlap
from pilotfish.task import Task, TaskError, load_tasks

DATA = Path(__file__).parents[1] / "../shared/data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the public benchmarks are not beside this checkout")

STORY = (
    "A farmer has {a} sheep and {b} goats in two fields. He sells half of the sheep, buys {c} more goats, and then "
    "counts all the animals that are left. How many animals does he count?"
)


def tasks(*pairs: tuple[str, str], name: str = "t") -> list[Task]:
    return [Task(f"{name}{index}", question, answer) for index, (question, answer) in enumerate(pairs)]


def repeats(train: tuple[str, str], test: tuple[str, str]) -> list[Overlap]:
    return overlap(tasks(train), {"bench": tasks(test, name="b")})


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("The zeros of $x^4 + jx^2 + 225$ are distinct.", "The zeros of \\(x^{4}+j x^{2}+225\\)  are\ndistinct."),
        ("Find $\\dfrac{1}{2} + x$.", "find $\\frac{1}{2}\\, + \\left. x$."),
        ("Find $\\frac12$ of 1,000.", "Find $\\frac{1}{2}$ of $1{,}000$."),
        ("What is 3 + 4 =", "What is 3+4="),
    ],
)
def test_the_same_text_in_other_dress_is_a_repeat_whatever_the_answers_say(train: str, test: str) -> None:
    assert repeats((train, "1"), (test, "2")) == [Overlap("t0", "bench", "b0", same_answer=False)]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("What is 4 - 1 - 7 =", "What is 4 + 1 - 7 ="),
        ("Sort 1 23", "Sort 12 3"),
        ("Round 1.5", "Round 15"),
        ("Find $\\frac{1}{23}$", "Find $\\frac{12}{3}$"),
        ("What is 12 + 3?", "What is 13 + 2?"),
        ("What is 3 + 4?", "What is 4 + 3?"),
        ("Given P ∧ Q, what follows?", "Given P ∨ Q, what follows?"),
        (STORY.format(a=20, b=30, c=5), STORY.format(a=40, b=20, c=5)),
    ],
)
def test_another_problem_of_the_same_letters_or_template_is_no_repeat(train: str, test: str) -> None:
    assert repeats((train, "9"), (test, "9")) == []


def test_brackets_make_another_problem_when_the_answers_differ() -> None:
    assert repeats(("What is (1 + 2) * 3?", "9"), ("What is 1 + (2 * 3)?", "7")) == []


def test_letters_and_numbers_alone_make_a_repeat_when_the_answer_is_the_same() -> None:
    train, test = "Compute $a + b$, if a = 2; b = 3.", "Compute $a + b$ if a = 2, b = 3"
    assert repeats((train, "\\frac{49}{3}"), (test, "$49/3$")) == [Overlap("t0", "bench", "b0", same_answer=True)]
    assert repeats((train, "5"), (test, "6")) == []


def test_a_reworded_copy_is_a_repeat_and_a_variant_with_another_answer_is_not() -> None:
    original = STORY.format(a=20, b=30, c=5)
    reworded = original.replace("How many animals", "Tell how many animals")
    assert [found.test_id for found in repeats((reworded, "45"), (original, "45"))] == ["b0"]
    assert repeats((reworded, "46"), (original, "45")) == []


def test_any_accepted_answer_of_the_test_task_counts() -> None:
    test = Task("b0", "Compute a + b, if a = 2.", "0.5", meta={"alt_answers": ["1/2"]})
    found = overlap(tasks(("Compute a + b if a = 2", "\\frac{1}{2}")), {"bench": [test]})
    assert [repeat.same_answer for repeat in found] == [True]


@given(st.integers(0, 10**6))
def test_the_index_finds_exactly_the_near_texts_that_a_full_comparison_finds(seed: int) -> None:
    rng = random.Random(seed)
    base = [rng.choice("abcdefgh") for _ in range(30)]

    def edited() -> str:
        return " ".join(rng.choice("xyz") if rng.random() < 0.03 else word for word in base)

    def runs(text: str) -> set[tuple[str, ...]]:
        words = text.split()
        return {tuple(words[start : start + 6]) for start in range(len(words) - 5)}

    train, test = [edited() for _ in range(6)], [edited() for _ in range(6)]
    found = overlap(tasks(*((text, "1") for text in train)), {"b": tasks(*((text, "1") for text in test), name="b")})
    near = {
        (f"t{i}", f"b{j}")
        for i, first in enumerate(train)
        for j, second in enumerate(test)
        if len(runs(first) & runs(second)) >= 0.7 * len(runs(first) | runs(second))
    }
    assert {(repeat.train_id, repeat.test_id) for repeat in found} == near


def test_drop_takes_out_the_repeats_keeps_the_order_and_lists_each() -> None:
    train = tasks(("one", "1"), ("two", "2"), ("three", "3"))
    kept, found = without_overlap(train, {"bench": tasks(("Two", "2"), name="b")})
    assert [task.id for task in kept] == ["t0", "t2"]
    assert [str(repeat) for repeat in found] == ["t1 repeats b0 of bench (same answer)"]


def test_keep_leaves_everything_and_still_tells() -> None:
    train = tasks(("one", "1"))
    kept, found = without_overlap(train, {"bench": train}, "keep")
    assert kept == train
    assert len(found) == 1


def test_refuse_stops_with_a_list_that_does_not_grow_without_end() -> None:
    train = tasks(*((f"question {number}", "1") for number in range(30)))
    with pytest.raises(TaskError, match=r"30 training tasks .*t0 repeats t0 of bench.*; and 20 more"):
        without_overlap(train, {"bench": train}, "refuse")


def test_refuse_lets_clean_sets_pass() -> None:
    train = tasks(("one", "1"))
    assert without_overlap(train, {"bench": tasks(("two", "2"))}, "refuse") == (train, [])


def test_dropping_everything_is_an_error_with_the_way_out() -> None:
    train = tasks(("one", "1"))
    with pytest.raises(TaskError, match=r"all 1 training tasks .* overlap: keep"):
        without_overlap(train, {"bench": train})


def test_neighbouring_gym_seeds_share_items_and_distant_ones_hardly() -> None:
    train = load_tasks("gym:chain_sum", size=50, seed=1)
    near, far = (load_tasks("gym:chain_sum", size=50, seed=seed) for seed in (2, 10**6))
    assert len({repeat.train_id for repeat in overlap(train, {"near": near})}) >= 49
    assert len(overlap(train, {"far": far})) <= 2


@needs_data
@pytest.mark.filterwarnings("ignore:.*repeat an earlier question")
def test_math8k_repeats_olympiadbench_but_not_math500_and_is_checked_in_seconds() -> None:
    train = load_tasks("math8k", path=DATA)
    tests = {name: load_tasks(name, path=DATA) for name in ("math500", "olympiadbench")}
    start = time.process_time()
    found = overlap(train, {"olympiadbench": tests["olympiadbench"]})
    seconds = time.process_time() - start
    assert {repeat.test_id for repeat in found} == {f"olympiadbench-{n}" for n in (2713, 2791, 2890, 2895)}
    assert overlap(train, {"math500": tests["math500"]}) == []
    assert seconds < 30  # two do on one core; comparing each with each takes many minutes
