"""bbh and mmlu: what the model is shown, what judges each answer form, and which subjects are taken."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pilotfish.benchmarks import BENCHMARKS, LETTER
from pilotfish.benchmarks.bbh import LETTERED, OTHERS, SUBJECTS, WORDS
from pilotfish.task import Task, TaskError, load_tasks
from pilotfish.verify import equivalent, judge

DATA = Path(__file__).parents[1] / "../shared/data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the public benchmarks are not beside this checkout")
quiet = pytest.mark.filterwarnings("ignore:.*repeat an earlier question")

DATES = "Today is 1 May 1999. What is the date tomorrow?\nOptions:\n(A) 05/01/1999\n(B) 05/02/1999\n(C) 06/01/1999"
FORMS: dict[str, tuple[str, str, list[str], list[str]]] = {
    **{
        name: (
            DATES,
            "(B)",
            ["B", "(B)", "(B) 05/02/1999", "05/02/1999"],
            ["A", "05/01/1999", "B or C", "D", "tomorrow"],
        )
        for name in LETTERED
    },
    "boolean_expressions": (
        "not ( True ) and ( True ) is",
        "False",
        ["False", "false.", "**False**", "The expression is False"],
        ["True", "not False", "True or False", "it is not the case that it is False", "A"],
    ),
    "formal_fallacies": (
        "Is the argument deductively valid or invalid?\nOptions:\n- valid \n- invalid",
        "valid",
        ["valid", "Valid.", "\\text{valid}", "The argument is deductively valid", "valid, as it follows"],
        [
            "invalid",
            "not valid",
            "The argument is not valid",
            "valid or invalid",
            "unclear whether it is valid",
            "in-valid",
        ],
    ),
    **{
        name: (
            "Do you return to the start?\nOptions:\n- Yes\n- No",
            "No",
            ["No", "no", "No, you do not", "The answer is no", "\\textbf{No}"],
            ["Yes", "not no", "yes or no", "There is no way to know", "know", "Yes, there is no doubt", "no idea"],
        )
        for name in ("causal_judgement", "navigate", "web_of_lies")
    },
    "sports_understanding": (
        "Is it plausible?",
        "yes",
        ["yes", "Yes!", "Yes, it is"],
        ["no", "eyes", "yes or no", "not yes"],
    ),
    "object_counting": ("How many?", "14", ["14", "14.0", "**14**", "14 fruits"], ["-14", "4", "114", "13 or 14.5"]),
    "multistep_arithmetic_two": ("(1 - 2) * 3 =", "-1200", ["-1200", "-1,200", "$-1200$"], ["1200", "-120", "-1201"]),
    "word_sorting": (
        "Sort the following words alphabetically: List: o'connor barn it&t",
        "barn it&t o'connor",
        ["barn it&t o'connor", "Barn, IT&T, O'Connor", "barn; it&t;  o’connor", "\\text{barn, it\\&t, o'connor}"],
        ["barn it&t", "barn o'connor it&t", "barn it&t o'connor zoo", "barnit&to'connor", "barn"],
    ),
    "dyck_languages": (
        "Complete the rest of the sequence. Input: [ { (",
        ") } ]",
        [") } ]", ")}]", " )  }]", "`) } ]`", ")\\}]"],
        [") }", ") ] }", "[ { ( ) } ]", ") } ] ]", "] } )"],
    ),
}


def written(folder: Path, *rows: dict[str, Any], name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def bbh_task(subject: str, folder: Path) -> Task:
    question, gold, _, _ = FORMS[subject]
    (task,) = load_tasks("bbh", path=written(folder, {"input": question, "target": gold, "subject": subject}))
    return task


def replies(answer: str) -> list[tuple[str, str]]:
    """An answer on the last line, after "answer:", in a box and in the tag, with the name of the reply's form."""
    free = [f"First this, then that.\n{answer}", f"Answer: {answer}", f"So $\\boxed{{{answer}}}$."]
    return [*((reply, "free") for reply in free), (f"<think>Hm.</think><answer>{answer}</answer>", "answer_tag")]


def test_there_are_27_answer_forms() -> None:
    assert len(SUBJECTS) == len(set(SUBJECTS)) == 27
    assert set(FORMS) == set(SUBJECTS) == {*LETTERED, *WORDS, *OTHERS}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_an_answer_in_the_form_of_its_task_is_right_and_any_other_is_wrong(subject: str, tmp_path: Path) -> None:
    task = bbh_task(subject, tmp_path)
    _, _, right, wrong = FORMS[subject]
    assert {
        answer for answer in right for reply, form in replies(answer) if not judge(task, reply, form).correct
    } == set()
    found = [(judge(task, reply, form).correct, reply) for answer in wrong for reply, form in replies(answer)]
    assert [reply for correct, reply in found if correct is not False] == []


@pytest.mark.parametrize("subject", SUBJECTS)
def test_two_right_answers_are_one_vote_and_a_wrong_one_is_another(subject: str, tmp_path: Path) -> None:
    task = bbh_task(subject, tmp_path)
    _, _, right, wrong = FORMS[subject]
    first, second, other = (
        judge(task, f"Answer: {answer}").extracted or "" for answer in (right[0], right[1], wrong[0])
    )
    assert equivalent(first, second, task.verifier)
    assert not equivalent(first, other, task.verifier)


def test_one_of_a_few_answers_may_hold_another() -> None:
    task = Task("t", "Which way?", "up left", "exact", choices=("up", "up left", "down"))
    assert judge(task, "Answer: up left").extracted == "up left"
    assert judge(task, "Answer: up").correct is False
    assert judge(task, "It is up left or up").correct is False


def test_the_question_stays_as_it_is_and_the_instruction_suits_the_answer(tmp_path: Path) -> None:
    asked = {subject: bbh_task(subject, tmp_path) for subject in SUBJECTS}
    assert all(task.question == FORMS[subject][0] for subject, task in asked.items())
    assert asked["snarks"].instruction == LETTER
    assert asked["snarks"].choices == ("05/01/1999", "05/02/1999", "06/01/1999")
    for subject, words in {
        "navigate": "Yes or No",
        "formal_fallacies": "valid or invalid",
        "word_sorting": "spaces",
    }.items():
        assert words in asked[subject].instruction
    assert "box" not in asked["dyck_languages"].instruction
    assert {subject for subject, task in asked.items() if task.verifier == "maths"} == {
        "object_counting",
        "multistep_arithmetic_two",
    }


def test_options_cut_apart_at_a_comma_are_asked_for_by_their_text(tmp_path: Path) -> None:
    question = "Find a movie similar to Shrek:\nOptions:\n(A) Monsters\n(B) Inc\n(C) Town & Country"
    row = {
        "question": question,
        "answer": "Monsters, Inc",
        "choices": ["(A) Monsters"],
        "subject": "movie_recommendation",
    }
    (task,) = load_tasks("bbh", path=written(tmp_path, row))
    assert (task.verifier, task.choices) == ("exact", ())
    assert "text of the right option" in task.instruction
    assert judge(task, "\\boxed{Monsters, Inc.}").correct
    assert judge(task, "\\boxed{A}").correct is False


def test_a_row_of_no_subject_of_bbh_is_refused_with_near_ones(tmp_path: Path) -> None:
    path = written(tmp_path, {"question": "q?", "answer": "(A)", "subject": "date_understandings"})
    with pytest.raises(
        TaskError, match=r"rows\.jsonl:1: the subject 'date_understandings' is none .*: date_understanding"
    ):
        load_tasks("bbh", path=path)


def test_from_the_hub_each_wanted_subject_is_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, config: str, **how: Any) -> list[dict[str, Any]]:
        asked.append((name, config, how["split"], how["revision"]))
        question, gold, _, _ = FORMS[config]
        return [{"input": f"{config}: {question}", "target": gold}]

    monkeypatch.delenv("PILOTFISH_DATA", raising=False)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    found = load_tasks({"source": "bbh", "subjects": ["navigate", "dyck_languages"], "revision": "abc"})
    assert [task.id for task in found] == ["bbh-dyck_languages-0", "bbh-navigate-0"]
    assert [task.meta["subject"] for task in found] == ["dyck_languages", "navigate"]
    assert asked == [("lukaemon/bbh", name, "test", "abc") for name in ("dyck_languages", "navigate")]
    assert len(load_tasks("bbh")) == 27
    asked.clear()
    with pytest.raises(TaskError, match=r"bbh: no subject 'navigates'; near ones: navigate"):
        load_tasks({"source": "bbh", "subjects": ["navigates"]})
    assert asked == []


def test_subjects_of_any_source_are_kept_and_unknown_ones_refused_with_near_ones(tmp_path: Path) -> None:
    rows = [
        {"question": f"q{n}?", "answer": "1", "subject": name} for n, name in enumerate(["Algebra", "Geometry", None])
    ]
    path = str(written(tmp_path, *rows))
    assert [task.question for task in load_tasks({"source": path, "subjects": ["Geometry"]})] == ["q1?"]
    assert len(load_tasks({"source": path, "subjects": ["Geometry", "Algebra"], "limit": 1})) == 1
    with pytest.raises(TaskError, match=r"no subject 'geometry'; near ones: Geometry"):
        load_tasks({"source": path, "subjects": ["Algebra", "geometry"]})
    with pytest.raises(TaskError, match=r"no subject 'X'; its tasks name none"):
        load_tasks({"source": written(tmp_path, rows[2], name="none.jsonl"), "subjects": ["X"]})
    with pytest.raises(TaskError, match="subjects is for benchmark and hub and file sources only"):
        load_tasks({"source": "gym:chain_sum", "subjects": ["X"]})
    with pytest.raises(TaskError, match=r"no tasks of levels \[4\] and subjects \['Algebra'\]"):
        load_tasks({"source": path, "levels": [4], "subjects": ["Algebra"]})


def test_mmlu_shows_its_options_and_takes_a_position_as_the_hub_has_it(tmp_path: Path) -> None:
    row = {"question": "Which is even?", "choices": ["1", "2", "3", "A and B"], "answer": 1, "subject": "number_theory"}
    (task,) = load_tasks("mmlu", path=written(tmp_path, row))
    assert task.question == "Which is even?\nA. 1\nB. 2\nC. 3\nD. A and B"
    assert (task.id, task.answer, task.verifier, task.instruction) == ("mmlu-test-0", "B", "choice", LETTER)
    assert task.meta == {"subject": "number_theory"}
    for right in ("B", "B. 2", "The answer is 2."):
        assert judge(task, right).correct
    for wrong in ("A and B", "D", "A. 1", "B or C", "<answer>B</answer> or so"):
        assert judge(task, wrong, "answer_tag" if "<" in wrong else "free").correct is False


def test_mmlu_is_read_from_the_hubs_one_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, config: str, **how: Any) -> list[dict[str, Any]]:
        asked.append((name, config, how["split"]))
        return [{"question": "q?", "choices": ["a", "b", "c", "d"], "answer": 0, "subject": ""}]

    monkeypatch.delenv("PILOTFISH_DATA", raising=False)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert [load_tasks("mmlu", split=split)[0].answer for split in BENCHMARKS["mmlu"].sizes] == ["A"] * 4
    assert asked == [("cais/mmlu", "all", split) for split in ("test", "validation", "dev", "auxiliary_train")]


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("Which?", "Which?\nA. red\nB. blue"),
        ("Is it red or blue?\n", "Is it red or blue?\nA. red\nB. blue"),
        ("Which?\n(A) red\n(B) blue", "Which?\n(A) red\n(B) blue"),
        ("Which? A: red B: blue", "Which? A: red B: blue"),
        ("Which? A. blue B. red", "Which? A. blue B. red\nA. red\nB. blue"),
    ],
)
def test_the_options_of_a_file_stand_in_the_question_once(question: str, shown: str, tmp_path: Path) -> None:
    path = str(written(tmp_path, {"question": question, "choices": ["red", "blue"], "answer": "A"}))
    assert load_tasks({"source": path, "verifier": "choice"})[0].question == shown
    assert load_tasks({"source": path, "verifier": "exact"})[0].question == question


def test_more_options_than_letters_are_refused(tmp_path: Path) -> None:
    path = str(written(tmp_path, {"question": "Which?", "choices": list(range(27)), "answer": 3}))
    with pytest.raises(TaskError, match=r"rows\.jsonl:1: 27 choices, and only 26 letters"):
        load_tasks({"source": path, "verifier": "choice"})


@pytest.mark.parametrize(
    ("choices", "reply", "letter"),
    [
        (("B", "Al", "In", "Tl"), "\\boxed{B}", "B"),
        (("A", "~A", "C", "~C"), "The answer is ~C.", "C"),
        (("A", "~A", "C", "~C"), "\\boxed{~C}", "D"),
        (("Freud", "Jung", "B. F. Skinner", "Horney"), "The answer is B. F. Skinner.", "C"),
        (("Valid", "Invalid. C is false.", "Invalid. B is false."), "Answer: Invalid. B is false.", "C"),
        (("x < y", "x > y", "x = y"), "\\boxed{x > y}", "B"),
        (("one", "two", "Both A and B"), "Answer: C. Both A and B", "C"),
        (("same", "same", "other"), "Answer: same", None),
    ],
)
def test_options_that_speak_of_letters_and_signs(choices: tuple[str, ...], reply: str, letter: str | None) -> None:
    verdicts = {
        gold: judge(Task("t", "", gold, "choice", choices=choices), reply).correct for gold in "ABCD"[: len(choices)]
    }
    assert [gold for gold, correct in verdicts.items() if correct] == ([letter] if letter else [])


@cache
def gathered(name: str, split: str | None = None) -> list[Task]:
    return load_tasks(name, path=DATA, split=split)


def spellings(task: Task) -> tuple[list[str], str]:
    """The gold answer in three spellings, and a wrong one."""
    if task.verifier == "choice":
        text = task.choices[ord(task.answer) - ord("A")].strip()
        return [task.answer, f"({task.answer})", f"{task.answer}. {text}"], "B" if task.answer == "A" else "A"
    right = [task.answer, task.answer.upper(), f" {task.answer}."]
    if task.verifier == "maths":
        return right, str(int(task.answer) + 1)
    if task.choices:
        return right, next(word for word in task.choices if word != task.answer)
    dressed = {"word_sorting": task.answer.replace(" ", ", "), "dyck_languages": task.answer.replace(" ", "")}
    return [*right[:2], dressed.get(task.meta["subject"], task.answer)], f"{task.answer} {task.answer[0]}"


SELF_REFERRING = {
    "mmlu-test-high_school_computer_science-28",  # an option of several lines, on the last line of a reply
    "mmlu-test-high_school_statistics-28",  # an option that says "answers are"
    "mmlu-test-professional_law-1060",  # an option that says "answer was"
}
"""Letter and text on a line of their own are not read as an option here; the letter alone is."""


def misjudged(tasks: list[Task]) -> list[tuple[str, str]]:
    wrong_verdicts = []
    for task in tasks:
        right, wrong = spellings(task)
        free = [f"Hm.\n\\boxed{{{right[0]}}}", f"The answer is {right[1]}", f"Hm.\n{right[2]}"]
        cases = [(reply, "free", True) for reply in free]
        cases += [(f"<answer>{answer}</answer>", "answer_tag", True) for answer in right]
        cases += [(f"The answer is {wrong}.", "free", False), (f"<answer>{wrong}</answer>", "answer_tag", False)]
        wrong_verdicts += [
            (task.id, reply) for reply, form, expected in cases if judge(task, reply, form).correct is not expected
        ]
    return wrong_verdicts


@needs_data
@quiet
def test_all_of_bbh_loads_and_its_gold_answers_are_right_in_both_reply_forms() -> None:
    tasks = gathered("bbh")
    assert len(tasks) == BENCHMARKS["bbh"].size == 6511
    assert {task.meta["subject"] for task in tasks} == set(SUBJECTS)
    assert [task.id for task in tasks if "(A)" in task.question and not task.choices] == [
        "bbh-movie_recommendation-163",
        "bbh-ruin_names-99",
        "bbh-ruin_names-144",
    ]
    assert misjudged(tasks) == []


@needs_data
@quiet
def test_all_of_mmlu_loads_and_its_gold_answers_are_right_in_both_reply_forms() -> None:
    tasks = gathered("mmlu")
    assert len(tasks) == BENCHMARKS["mmlu"].size == 14042
    assert all("\nA. " in task.question and "\nD. " in task.question for task in tasks)
    assert {name for name, _ in misjudged(tasks)} == SELF_REFERRING


@needs_data
@quiet
def test_the_other_splits_and_single_subjects_are_at_hand() -> None:
    for split in ("validation", "dev"):
        assert len(gathered("mmlu", split)) == BENCHMARKS["mmlu"].sizes[split]
    dates = load_tasks({"source": "bbh", "path": DATA, "subjects": ["date_understanding"]})
    assert len(dates) == 250
    with pytest.raises(TaskError, match=r"mmlu: no subject 'anatomie'; near ones: anatomy"):
        load_tasks({"source": "mmlu", "path": DATA, "subjects": ["anatomie"]})


@needs_data
def test_repeated_questions_are_a_warning_only() -> None:
    with pytest.warns(UserWarning, match=r"mmlu: 105 of 14042 tasks repeat"):
        load_tasks("mmlu", path=DATA)
