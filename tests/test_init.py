"""What `pilotfish init` works out from rows: which column is what, what judges the answers, how the rows divide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pilotfish.cli.init_lines import look_lines, next_lines
from pilotfish.evaluate.stats import mean_interval
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.rows import Row, TaskError, read_file
from pilotfish.source import TaskSource
from pilotfish.start import members
from pilotfish.start.columns import Undecided, choose, columns
from pilotfish.start.draft import Draft
from pilotfish.start.look import Look, look, read_rows
from pilotfish.start.pairs import LeftOut, Pair, pairs
from pilotfish.start.proposal import propose
from pilotfish.start.split import divide
from pilotfish.task import load_tasks
from pilotfish.verifier import JudgeConfig


def rows(data: Sequence[Mapping[str, Any]]) -> list[Row]:
    return [Row(f"mine:{number}", number, dict(row)) for number, row in enumerate(data)]


def asked(*answers: str, times: int = 1, **more: Any) -> list[Pair]:
    """Pairs with these answers, each so many times."""
    spread = [answer for _ in range(times) for answer in answers]
    return [Pair(str(n), f"What of {n}?", answer, **more) for n, answer in enumerate(spread)]


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [
        ({"question": "2 + 2?", "answer": "4"}, "question", "answer"),
        ({"id": "1", "Problem": "2 + 2?", "solution": "so 4", "final_answer": "4"}, "Problem", "final_answer"),
        ({"prompt": "2 + 2?", "reward_model": {"ground_truth": "4"}}, "prompt", "reward_model.ground_truth"),
        ({"nr": 1, "ticket": "The printer on the second floor does not print", "team": "it"}, "ticket", "team"),
        ({"instruction": "Add.", "output": "4", "label": 4}, "instruction", "label"),
        (
            {"Nr.": "1", " Question Text ": "2 + 2?", "Expected Answer": "4", "Author": "me"},
            " Question Text ",
            "Expected Answer",
        ),
        ({"question": "2 + 2?", "answer_type": "number", "answerKey": "4"}, "question", "answerKey"),
        ({"编号": "1", "问题": "2 + 2?", "答案": "4"}, "问题", "答案"),
        (
            {"messages": [{"role": "user", "content": "2 + 2?"}], "reward_model": {"ground_truth": "4"}},
            "messages",
            "reward_model.ground_truth",
        ),
        ({"question": "Where?", "answers": {"text": ["Graz"], "answer_start": [3]}}, "question", "answers.text"),
    ],
)
def test_columns_are_known_by_name_and_by_length(row: dict[str, Any], question: str, answer: str) -> None:
    roles = choose(columns([row]), {})
    assert (roles.question.name, roles.answer.name) == (question, answer)


def test_what_cannot_be_told_is_asked_for_by_its_flag() -> None:
    known = columns([{"first": "some words of text", "second": "other words of text", "answer": "4"}])
    with pytest.raises(Undecided, match=r"which column is the question\? it could be second, first; say --question"):
        choose(known, {})
    assert choose(known, {"question": "first"}).answer.name == "answer"
    with pytest.raises(Undecided, match="which column is the answer"):
        choose(columns([{"question": "2 + 2?", "one": "4", "two": "5"}]), {})
    with pytest.raises(TaskError, match=r"--answer third: no such column; there are: first, second, answer"):
        choose(known, {"question": "first", "answer": "third"})


@pytest.mark.parametrize("row", [{"choices": ["x", "y"]}, {"A": "x", "B": "y"}, {"option_a": "x", "option_b": "y"}])
def test_options_stand_in_a_list_or_in_columns_of_their_own(row: dict[str, Any]) -> None:
    assert choose(columns([{"question": "Which?", **row, "answer": "A"}]), {}).choices == tuple(row)


@pytest.mark.parametrize(
    "choices",
    [
        {"label": ["A", "B"], "text": ["x", "y"]},
        {"A": "x", "B": "y"},
        [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}],
    ],
)
def test_options_may_stand_with_their_letters(choices: Any) -> None:
    data = [{"question": "Which?", "choices": choices, "answerKey": "B"}]
    roles = choose(columns(data), {})
    (pair,) = pairs(rows(data), roles, "mine", LeftOut())
    assert (roles.answer.name, pair.choices, pair.answer) == ("answerKey", ("x", "y"), "B")


def test_what_a_question_is_about_goes_below_it() -> None:
    data = [
        {"instruction": "Add.", "input": "2 and 2", "output": 4},
        {"instruction": "Name one.", "input": "", "output": 1},
    ]
    roles = choose(columns(data), {})
    assert [pair.question for pair in pairs(rows(data), roles, "mine", LeftOut())] == ["Add.\n\n2 and 2", "Name one."]
    alone = choose(columns(data), {"question": "instruction"})
    assert [pair.question for pair in pairs(rows(data), alone, "mine", LeftOut())] == ["Add.", "Name one."]


def test_a_chat_is_asked_by_its_last_question_and_a_list_of_answers_by_any() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    data = [{"prompt": chat, "answer": ["Graz", "Graz, Austria"]}]
    (pair,) = pairs(rows(data), choose(columns(data), {}), "mine", LeftOut())
    assert (pair.question, pair.answer, pair.meta) == ("Where?", "Graz", {"alt_answers": ["Graz, Austria"]})


def test_rows_that_teach_nothing_are_counted() -> None:
    data = [
        {"id": "a", "question": "2 + 2?", "answer": "4", "level": 1},
        {"id": "a", "question": "1 + 2?", "answer": 3},
        {"question": " 2 +  2?", "answer": "4"},
        {"question": "2 + 2?", "answer": "5"},
        {"question": "3 + 3?", "answer": " "},
        {"question": None, "answer": "6"},
    ]
    left_out = LeftOut()
    found = pairs(rows(data), choose(columns(data), {}), "mine", left_out)
    assert [(pair.id, pair.answer) for pair in found] == [("a", "4"), ("a-1", "3")]
    assert found[0].meta == {"level": 1}
    assert str(left_out) == (
        "1 repeating a question, 1 repeating a question with another answer, 1 without an answer, 1 without a question"
    )


def test_an_answer_that_is_no_number_is_none(tmp_path: Path) -> None:
    """As pandas writes what a table lacks."""
    file, left_out = tmp_path / "mine.jsonl", LeftOut()
    answers = [*range(1, 9), "NaN", "-Infinity"]
    lines = [f'{{"question": "{n} + 1?", "answer": {answer}}}' for n, answer in enumerate(answers)]
    file.write_text("\n".join(lines))
    data = read_rows(TaskSource(source=str(file)))
    found = pairs(data, choose(columns([row.data for row in data]), {}), "mine", left_out)
    assert ([pair.answer for pair in found], str(left_out)) == (list("12345678"), "2 without an answer")


@pytest.mark.parametrize(
    ("known", "verifier", "why"),
    [
        (asked("7", "1,200", "3/4", "12 %"), "maths", "all 4 answers are numbers"),
        (asked(r"\frac{1}{2}", "x^2 + 1", r"2\sqrt{3}", "[0, 1)"), "maths", "all 4 answers are numbers or formulas"),
        (asked("A", "(b)", "C."), "choice", "all 3 answers are the letter of an option"),
        (asked("y", "x", choices=("x", "y")), "choice", "all 2 answers name one of the row's options"),
        (asked("2", "1", choices=("x", "y")), "choice", "all 2 answers name one of the row's options"),
        (asked("urgent", "Urgent", "later", times=5), "exact", "the answers are 2 labels: later, urgent"),
        (asked("Ada Lovelace", "Graz", "the Danube"), "exact", "all 3 answers are a few words"),
        (asked("2024-05-01", "1.2.3", "12:30:00"), "exact", "all 3 answers are a few words"),
        (asked("光的折射", "牛顿"), "exact", "all 2 answers are a few words"),
    ],
)
def test_the_verifier_follows_from_the_answers(known: list[Pair], verifier: str, why: str) -> None:
    proposal = propose(known)
    assert proposal is not None
    assert (proposal.verifier, proposal.why.casefold()) == (verifier, why.casefold())


def test_options_by_text_position_and_letter_become_letters() -> None:
    for answers in (("y", "x"), ("2", "1"), ("1", "0"), ("b", "A")):
        proposal = propose(asked(*answers, choices=("x", "y")))
        assert proposal is not None
        assert [pair.answer for pair in proposal.pairs] == ["B", "A"]


def test_labels_are_named_in_the_instruction_and_spelt_alike() -> None:
    proposal = propose(asked("Yes", "yes", "no", times=5))
    assert proposal is not None
    assert {pair.answer for pair in proposal.pairs} <= {"yes", "Yes", "no"}
    assert len({pair.answer for pair in proposal.pairs}) == 2
    assert "one of " in (proposal.instruction or "")


def sums(count: int, answer: str = "{}", **more: Any) -> list[dict[str, Any]]:
    return [
        {"question": f"What is {n} + 1,000?", "answer": answer.format(n + 1000, steps="a word " * 9), **more}
        for n in range(count)
    ]


def looked(data: Sequence[Mapping[str, Any]], **named: str) -> Look:
    return look(rows(data), "mine", {}, **named)


def test_examples_are_judged_by_the_verifier_itself() -> None:
    found = looked(sums(40))
    assert [example.right for example in found.examples] == [True, True, True, False]
    right = found.examples[0]
    assert right.said == f"The answer is {int(right.gold):,}."
    assert len({example.gold for example in found.examples[:3]}) == 3


def test_options_are_accepted_with_letter_and_text() -> None:
    data = [{"question": f"Which {n}?", "A": f"red {n}", "B": f"blue {n}", "answer": "AB"[n % 2]} for n in range(40)]
    found = looked(data)
    assert found.examples[0].said.startswith(("The answer is (A) red", "The answer is (B) blue"))
    assert found.examples[-1].right is False


def test_worked_solutions_are_read_for_their_final_answer() -> None:
    found = looked([*sums(40, "{steps}\n#### {}"), {"question": "And?", "answer": "no mark"}])
    assert found.read_as == "what follows the last ####"
    assert all(pair.answer.isdecimal() for pair in found.split.train)
    assert str(found.left_out) == "1 without the mark of a final answer"
    assert looked(sums(40, r"{steps} so \boxed{{{}}}.")).read_as == r"what is in the last \boxed{}"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Because of {}, and " + "so on " * 20, 44),
        ("因为光在不同的介质里，速度不同{}", 9),
    ],
)
def test_long_texts_are_judged_by_a_member(answer: str, words: int) -> None:
    found = looked([{"question": f"Why {n}?", "answer": answer.format(n)} for n in range(40)])
    assert found.proposal.verifier == "judge"
    assert f"half of the answers have {words} words or more" in found.proposal.why
    made = draft(found)
    seat, why = members.judge("referee", made.actor)
    assert (why, seat["price"]) == ("--judge", made.actor["price"])
    made = replace(made, judge=seat)
    recipe = parse_recipe(made.data((Path("train.jsonl"), Path("test.jsonl"))))
    assert recipe.tasks is not None
    (source,) = recipe.tasks.train
    assert isinstance(source.verifier, JudgeConfig)
    assert recipe.team["judge"].model == "referee"


def test_a_verifier_that_does_not_take_the_rows_own_answers_is_refused() -> None:
    data = [{"question": f"Where is {n}?", "answer": f"in city {n}"} for n in range(40)]
    with pytest.raises(TaskError, match="choice takes only 0 of 40 of the rows' own answers for right"):
        looked(data, verifier="choice")
    assert looked(data, verifier="exact").proposal.why.startswith("--verifier; ")


def test_no_question_stands_in_two_parts_and_many_rows_are_drawn_from() -> None:
    split = divide([Pair(str(n), f"q{n}", "1") for n in range(2000)])
    assert (split.learned, split.holdout, len(split.test)) == (500, 64, 200)
    assert not {pair.id for pair in split.train} & {pair.id for pair in split.test}
    small = divide([Pair(str(n), f"q{n}", "1") for n in range(20)])
    assert (small.learned, small.holdout, len(small.test)) == (14, 2, 4)


def test_what_few_tasks_can_show_is_what_an_evaluation_of_them_prints() -> None:
    found = looked(sums(60))
    [line] = [line for line in look_lines(found) if "±" in line]
    shown = mean_interval([1.0, 0.0] * 6)
    assert f"12 tasks tell an accuracy to about ±{50 * (shown.high - shown.low):.0f} points" in line
    assert not [line for line in look_lines(looked(sums(500))) if "±" in line], "100 tasks"


def test_too_few_rows_and_answers_that_are_all_the_same_are_refused() -> None:
    with pytest.raises(TaskError, match=r"19 of 21 rows can be used \(2 repeating a question\); it takes 20"):
        looked([*sums(19), *sums(2)])
    with pytest.raises(TaskError, match="answer: every answer is '7', so whoever says that is always right"):
        looked([{"question": f"{n}?", "answer": "7"} for n in range(40)])


def test_commands_can_be_given_as_they_are_told() -> None:
    made, place = draft(looked(sums(40))), Path("my own/sums.yaml")
    (*_, told, _) = next_lines(made, place, (Path("train.jsonl"), Path("test.jsonl")), None)
    assert told == "next       pilotfish train 'my own/sums.yaml'"
    assert "pilotfish train 'my own/sums.yaml'\n" in made.text((Path("train.jsonl"), Path("test.jsonl")), place)


def draft(found: Look, name: str = "mine", origin: str = "mine.csv") -> Draft:
    seat = members.actor("small", base_url="http://127.0.0.1:1/v1", price=(1.0, 2.0), max_tokens=8)
    learner, _ = members.trainee("own/model", "lora")
    return Draft(name, origin, seat, learner, "hint", found.split, found.proposal)


def test_the_draft_is_a_recipe_with_comments_and_its_rows_load(tmp_path: Path) -> None:
    made = draft(looked(sums(40)), origin="mine.csv\nteam: {}")
    files = made.split.write(tmp_path, "mine")
    text = made.text(files, tmp_path / "mine.yaml", max_cost=1.5)
    assert yaml.safe_load(text) == json.loads(json.dumps(made.data(files, 1.5))), "comments stay in their lines"
    recipe = parse_recipe(yaml.safe_load(text))
    assert recipe.max_cost == 1.5
    assert recipe.tasks is not None
    loaded = [len(load_tasks(source)) for source in (*recipe.tasks.train, *recipe.evaluate.benchmarks)]
    assert loaded == [32, 8]


@pytest.mark.parametrize(("rows_", "steps"), [(20, 20), (400, 35), (2000, 60)])
def test_a_step_is_filled_and_a_pass_is_no_longer_than_needed(rows_: int, steps: int, tmp_path: Path) -> None:
    made = draft(looked(sums(rows_)))
    config = parse_recipe(made.data(made.split.write(tmp_path, "mine"))).train
    assert (config.steps, config.tasks_per_step) == (steps, 8)  # type: ignore[union-attr]


def test_a_key_in_place_of_a_variable_is_refused_and_not_repeated() -> None:
    with pytest.raises(RecipeError) as error:
        members.actor("small", base_url="http://x/v1", key_env="sk-1234", max_tokens=8)
    assert "sk-1234" not in str(error.value)
    for address in ("http://me:hidden@x/v1", "http://x/v1?api-key=hidden"):
        with pytest.raises(RecipeError) as error:
            members.actor("small", base_url=address, max_tokens=8)
        assert "hidden" not in str(error.value)


def test_an_actor_that_cannot_be_asked_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"\./nowhere: no such folder"):
        members.actor("./nowhere", max_tokens=8)
    with pytest.raises(RecipeError, match=r"no model, it holds no config\.json"):
        members.actor(str(tmp_path), max_tokens=8)
    with pytest.raises(RecipeError, match="--base-url localhost:8000/v1: no address; it begins with http"):
        members.actor("small", base_url="localhost:8000/v1", max_tokens=8)
    monkeypatch.delenv("OWN_KEY", raising=False)
    with pytest.raises(RecipeError, match=r"no key in \$OWN_KEY; export it"):
        members.check_key(members.actor("small", base_url="http://x/v1", key_env="OWN_KEY", max_tokens=8))


def test_a_model_that_is_none_is_told_how_to_be_one_behind_an_api() -> None:
    with pytest.raises(RecipeError, match=r"qwen-plus: no such folder.*add --base-url"):
        members.actor("qwen-plus", max_tokens=8)


def test_tables_are_read_with_their_delimiter_and_line_breaks(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_bytes('\ufeffquestion;answer\r\n"2 +\r\n2; or?";04\r\n\r\n"say ""5""";5\r\n'.encode())
    found = read_rows(TaskSource(source=str(file)))
    assert [row.data for row in found] == [
        {"question": "2 +\r\n2; or?", "answer": "04"},
        {"question": 'say "5"', "answer": "5"},
    ]
    assert found[1].where.endswith("mine.csv:5")
    tabs = tmp_path / "mine.tsv"
    tabs.write_text("question\tanswer\n1, 2?\t3\n")
    assert [task.answer for task in load_tasks(tabs)] == ["3"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty; its first line has to name the columns"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("a,b\n1,2\n1,2,3\n", "mine.csv:3: more cells than names in the head"),
        ("a,b\n", "no rows"),
    ],
)
def test_a_broken_table_is_named_by_line(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(text)
    with pytest.raises(TaskError, match=complaint):
        read_rows(TaskSource(source=str(file)))
    (tmp_path / "latin.csv").write_bytes("question,answer\né,1\n".encode("latin-1"))
    with pytest.raises(TaskError, match="not UTF-8"):
        list(read_file(tmp_path / "latin.csv"))
