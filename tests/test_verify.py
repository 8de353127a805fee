"""Verification: the cases written here, the gathered ones where they are at hand, and the policies behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.task import Task
from pilotfish.verifier import NAMES
from pilotfish.verify import VERIFIERS, contains_answer, equivalent, judge

ROOT = Path(__file__).resolve().parents[1]
OWN = ROOT / "tests" / "data" / "verifier_cases_own.jsonl"
GATHERED = ROOT / ".." / "shared" / "data"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def task_of(row: dict[str, Any], verifier: str = "maths") -> Task:
    return Task(
        id=row.get("id", ""),
        question=row.get("question", ""),
        answer=str(row["gold"]),
        verifier=row.get("verifier", verifier),
        choices=tuple(row.get("choices", ())),
        meta={"alt_answers": row.get("gold_alternatives", [])},
    )


def gathered(name: str) -> list[dict[str, Any]]:
    if not (GATHERED / name).exists():
        pytest.skip(f"{name} is not here")
    return read(GATHERED / name)


@pytest.mark.parametrize("row", read(OWN), ids=lambda row: f"{row['id']} {row['why']}")
def test_own_case(row: dict[str, Any]) -> None:
    verdict = judge(task_of(row), row["pred"], row.get("form", "free"))
    assert verdict.correct is row["match"], verdict
    assert verdict.why or verdict.correct


def test_gathered_answers_agree_in_97_percent_with_two_false_accepts_at_most() -> None:
    rows = [r for r in gathered("verifier_cases.jsonl") if "note" not in r and r["kind"] in ("answer", "response")]
    found = [(judge(task_of(row), row["pred"]).correct, row) for row in rows]
    assert sum(correct is row["match"] for correct, row in found) >= 0.97 * len(rows)
    assert sum(bool(correct) and not row["match"] for correct, row in found) <= 2


def test_gathered_choices_agree() -> None:
    rows = [r for r in gathered("verifier_cases.jsonl") if r["kind"] == "choice"]
    found = [judge(task_of(row, "choice"), row["pred"]).correct is row["match"] for row in rows]
    assert sum(found) >= 0.95 * len(rows)


def test_reported_faults_of_other_verifiers_are_not_ours() -> None:
    rows = gathered("verifier_reported.jsonl")
    assert sum(judge(task_of(row), row["pred"]).correct is row["expected"] for row in rows) >= 0.9 * len(rows)


def test_any_of_the_other_accepted_answers_counts() -> None:
    task = Task("t", "", "4.5e33", meta={"alt_answers": ["4.49e33", "4.5 \\times 10^{33} J"]})
    assert judge(task, "\\boxed{4.49 \\times 10^{33}}").correct
    assert judge(task, "\\boxed{4.4e33}").correct is False


def test_an_empty_gold_answer_gives_no_verdict_even_beside_others_that_do_not_match() -> None:
    assert judge(Task("t", "", " ", meta={"alt_answers": []}), "5").reward is None


def test_a_gold_answer_that_cannot_be_evaluated_gives_no_verdict_unless_it_is_repeated() -> None:
    task = Task("t", "", "10^{10^{10^{10}}}")
    assert judge(task, "\\boxed{10^{10^{10^{10}}}}").correct
    assert judge(task, "\\boxed{x+1}").reward is None


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'latex': not one of maths, choice, exact, reasoning_gym, judge"):
        judge(Task("t", "", "5", verifier="latex"), "5")
    with pytest.raises(ValueError, match="'json' is not one of free, answer_tag"):
        judge(Task("t", "", "5"), "5", "json")
    assert tuple(VERIFIERS) == NAMES


@pytest.mark.parametrize(
    ("first", "second", "verifier", "equal"),
    [
        ("1/2", "0.5", "maths", True),
        ("0", "x^2-x^2", "maths", True),
        ("0", "10^{-60}", "maths", False),
        ("E_1+E_2", "E_2+E_1", "maths", True),
        ("I_0 t", "I t", "maths", False),
        ("\\frac{n(n+1)}{2}", "\\sum_{k=1}^{n} k", "maths", True),
        ("\\pi R^2", "\\pi r^2", "maths", False),
        ("10^{10^{10^{10}}}", "3", "maths", False),
        ("(B)", "B) the moon", "choice", True),
        ("(B)", "C", "choice", False),
        ("New York", "new york.", "exact", True),
        ("", "", "exact", False),
    ],
)
def test_two_answers_are_equivalent_whichever_comes_first(first: str, second: str, verifier: str, equal: bool) -> None:
    assert equivalent(first, second, verifier) is equal
    assert equivalent(second, first, verifier) is equal


@pytest.mark.parametrize(
    ("gold", "text", "verifier", "leaks"),
    [
        ("12", "Try 120 or 12.5 or 312 or 1,112.", "maths", False),
        ("12", "It should come to 12.", "maths", True),
        ("12", "So x=12, as required", "maths", True),
        ("1000", "about 1,000 of them", "maths", True),
        ("0.5", "that is \\frac{1}{2}", "maths", True),
        ("1/2", "that is 11/2", "maths", False),
        ("x^2+1", "expand to get $x^{2} + 1$ and stop", "maths", True),
        ("x^2+1", "expand to get $x^2+10$", "maths", False),
        ("Tuesday", "count on to tuesday", "exact", True),
        ("day", "count on to tuesday", "exact", False),
        ("B", "the answer is B", "choice", True),
        ("B", "By the way", "choice", False),
        ("A", "A hint: read it again", "choice", False),
        ("A", "option (A) looks right", "choice", True),
        ("", "anything", "maths", False),
    ],
)
def test_a_text_contains_the_gold_answer_as_a_whole_token_only(
    gold: str, text: str, verifier: str, leaks: bool
) -> None:
    assert contains_answer(gold, text, verifier) is leaks


@settings(max_examples=150, deadline=None)
@given(st.integers(-(10**15), 10**15), st.integers(1, 10**6))
def test_a_number_equals_itself_in_every_spelling_and_its_neighbour_in_none(number: int, divisor: int) -> None:
    task = Task("t", "", f"{number}/{divisor}")
    sign = "-" if number < 0 else ""
    spellings = (
        f"\\frac{{{number}}}{{{divisor}}}",
        f"{sign}\\dfrac{{{abs(number)}}}{{{divisor}}}",
        f"{number}/{divisor}",
    )
    assert all(judge(task, f"\\boxed{{{spelling}}}").correct for spelling in spellings)
    assert judge(task, f"\\boxed{{\\frac{{{number + 1}}}{{{divisor}}}}}").correct is False
    assert judge(Task("t", "", str(number)), f"The answer is {number:,}.").correct


GYM = {"dataset": "chain_sum", "entry": {"question": "4 + 3", "answer": "7", "metadata": {}}}


def test_reasoning_gym_judges_with_its_own_scorer() -> None:
    task = Task("t", "4 + 3 = ?", "7", verifier="reasoning_gym", meta=GYM)
    assert judge(task, "4 and 3, so\n\\boxed{7}").reward == 1.0
    assert judge(task, "<answer>7</answer>", "answer_tag").reward == 1.0
    assert judge(task, "7", "answer_tag").reward == 0.0
    assert 0.0 <= (judge(task, "The answer is 8.").reward or 0.0) < 1.0


def test_reasoning_gym_grids_are_read_as_lines() -> None:
    grid = "1 2\n2 1"
    entry = {"question": "", "answer": grid, "metadata": {}}
    task = Task("t", "", grid, verifier="reasoning_gym", meta={"dataset": "chain_sum", "entry": entry})
    assert judge(task, f"Here it is:\n```\n{grid}\n```").reward == 1.0
    assert judge(task, "Here it is:\n2 1\n1 2").reward != 1.0


def test_a_reasoning_gym_task_without_its_entry_gets_no_verdict() -> None:
    assert judge(Task("t", "", "7", verifier="reasoning_gym"), "7").reward is None
    unknown = Task("t", "", "7", verifier="reasoning_gym", meta={"dataset": "no_such", "entry": {"answer": "7"}})
    assert judge(unknown, "7").reward is None
