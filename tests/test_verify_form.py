"""Faults of form have one name each, and answers that are one are counted as one without algebra."""

from __future__ import annotations

import time

import pytest

from pilotfish.task import Task
from pilotfish.verify import extract_answer
from pilotfish.verify.form import form_fault
from pilotfish.verify.majority import agreeing, read_vote

THOUGHT = "<think>2 + 2 is 4</think>"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"{THOUGHT}<answer>4</answer>", None),
        (f"{THOUGHT}\n\n<answer>\n4\n</answer>\n", None),
        ("<think>an <answer> tag will follow</think><answer>4</answer>", None),
        (f"{THOUGHT} It is 4.", "no <answer> tag"),
        ("", "no <answer> tag"),
        (f"<answer>4</answer>{THOUGHT}", "<answer> stands before </think>"),
        (f"{THOUGHT}<answer>4</answer><answer>5</answer>", "more than one <answer> tag"),
        (f"{THOUGHT}<answer>4", "the <answer> tag is not closed"),
        (f"{THOUGHT}<answer>4</answer></answer>", "the tags do not pair"),
        (f"{THOUGHT}<answer>4</answer> as I said", "text after </answer>"),
        (f"{THOUGHT}<answer> </answer>", "the answer is empty"),
        (f"{THOUGHT}<answer>{'9' * 2500}</answer>", "the answer is too long"),
        (f"{THOUGHT}<answer>{'9' * 2600}</answer>", "the answer is too long"),
        ("<answer>4</answer>", "no <think>…</think> before <answer>"),
        ("2 + 2 is 4</think><answer>4</answer>", "no <think>…</think> before <answer>"),
        ("<think>2 + 2 <answer>4</answer>", "<think> is not closed"),
        (f"{THOUGHT} or <think>was it 5 <answer>4</answer>", "<think> is not closed"),
    ],
)
def test_each_fault_has_its_name(text: str, fault: str | None) -> None:
    assert form_fault(text, "answer_tag") == fault
    assert form_fault(text, "free") is None


def test_what_has_no_fault_holds_an_answer() -> None:
    pieces = ["<think>", "</think>", "<answer>", "</answer>", "4", " "]
    texts = [f"{a}{b}{c}{d}{e}" for a in pieces for b in pieces for c in pieces for d in pieces for e in pieces]
    sound = [text for text in texts if form_fault(text, "answer_tag") is None]
    assert "<think></think><answer>4</answer>" in sound
    assert all(extract_answer(text, "answer_tag").answer == "4" for text in sound)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="'xml' is not one of free, answer_tag"):
        form_fault("4", "xml")


def test_equal_answers_stand_together_the_most_frequent_first() -> None:
    assert agreeing(["3", "1/2", None, "0.5", "\\frac{1}{2}", ""]) == [[1, 3, 4], [0]]
    assert agreeing(["3", "4", "4", "3", "5"]) == [[0, 3], [1, 2], [4]], "a tie goes to the one that came first"
    assert agreeing([None, ""]) == []


def test_an_answer_that_would_hold_algebra_for_good_costs_nothing() -> None:
    began = time.process_time()
    assert agreeing(["9^{9^9}", "42", "x(x+1)", "x^2+x"]) == [[0], [1], [2], [3]]
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("task", "text", "vote"),
    [
        (Task("t", "", "B", "choice", choices=("red", "blue")), "The answer is blue.", "B"),
        (Task("t", "", "B", "choice", choices=("red", "blue")), "So it is (A) red", "A"),
        (Task("t", "", "B", "choice", choices=("red", "blue")), "The answer is green.", None),
        (Task("t", "", "Yes", "exact", choices=("Yes", "No")), "The answer is no, it does not.", "No"),
        (Task("t", "", "b a", "exact"), "The answer is b, a", "b, a"),
        (Task("t", "", "4"), "So we get 2 + 2 = \\boxed{4}", "4"),
        (Task("t", "", "4"), "", None),
    ],
)
def test_an_answer_is_read_as_its_verifier_reads_it(task: Task, text: str, vote: str | None) -> None:
    assert read_vote(task, text) == vote
