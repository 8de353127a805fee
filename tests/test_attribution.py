"""Attribution on scripted teams: flips, leaks, and whether a critic tells right drafts from wrong ones."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path

import numpy as np
import pytest

from pilotfish import Journal, Sampling, ScriptedEngine, Task, Team, Verdict
from pilotfish.evaluate.arms import Arm, Field, Played
from pilotfish.evaluate.attribution import Attribution, Critique, attribute, flips, separation
from pilotfish.evaluate.attribution_table import attribution_csv, attribution_record, attribution_sections
from pilotfish.evaluate.bench import Result, measure
from pilotfish.evaluate.comment import says
from pilotfish.evaluate.table import markdown_table
from pilotfish.team import Member, Messages
from pilotfish.topology import Topology, critic, hint, solo, vote
from pilotfish.verify import judge as verify

TASKS = [Task(f"t{number}", f"What is {number} + 50?", str(number + 50)) for number in range(10, 18)]
RIGHT_DRAFTS = ("t10", "t11", "t12")
MENDED = ("t13", "t14")
"""Wrong drafts that the actor mends after any comment."""
SPOILED = ("t10",)
"""Right drafts that it spoils after any comment."""

Says = Callable[[Task, bool], str]
"""What a critic says on a draft that is right or not."""


async def judge(task: Task, answer: str, form: str) -> Verdict:
    return verify(task, answer, form)


def task_of(messages: Messages) -> Task:
    return next(task for task in TASKS if task.question in messages[-1]["content"])


def answer(task: Task, right: bool) -> str:
    return f"The answer is {int(task.answer) + (not right)}."


def actor(messages: Messages) -> str:
    task, asked = task_of(messages), messages[-1]["content"]
    right = task.id in RIGHT_DRAFTS
    if "Comment on it:" in asked:
        right = (right or task.id in MENDED) and task.id not in SPOILED
    if "(Hint: " in asked:
        right = right or f"Hint: {task.answer}" in asked
    return answer(task, right)


def seats(adviser: Callable[[Messages], str]) -> Team:
    engines = {
        "collaborator": ScriptedEngine(lambda messages, sampling, seed: adviser(messages)),
        "actor": ScriptedEngine(lambda messages, sampling, seed: actor(messages)),
    }
    greedy = Sampling(temperature=0.0)
    return Team({name: Member(name, "m", name == "collaborator", greedy) for name in engines}, engines)


def criticising(comment: Says) -> Team:
    return seats(
        lambda messages: comment(task_of(messages), answer(task_of(messages), True) in messages[-1]["content"])
    )


def found(topology: Topology, team: Team, folder: Path, tasks: Sequence[Task] = TASKS) -> Attribution | None:
    async def played() -> Attribution | None:
        field = Field("b", tasks, Journal(folder), judge)
        alone, own = [
            Played(arm, await field.sample(arm, 1)) for arm in (Arm("solo", solo, team), Arm("own", topology, team))
        ]
        return await attribute(own, alone, tasks, judge)

    return asyncio.run(played())


def critique(comment: Says, folder: Path) -> Critique:
    made = found(critic, criticising(comment), folder)
    assert made is not None
    assert made.critique is not None
    return made.critique


def honest(task: Task, right: bool) -> str:
    return "The solution is correct." if right else "The sum is wrong."


# -- flips and leaks


def test_flips_name_the_tasks_and_leave_out_those_without_a_verdict() -> None:
    nan = float("nan")
    made = flips(TASKS[:6], [0, 1, 0, 1, nan, 1], [1, 0, 0, 1, 1, nan])
    assert (made.wrong_to_right, made.right_to_wrong, made.n) == (("t10",), ("t11",), 4)


def test_a_hint_that_leaks_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    leaking = ("t12", "t15", "t16")

    def adviser(messages: Messages) -> str:
        task = task_of(messages)
        return f"{task.answer}, I think" if task.id in leaking else "Add the tens first"

    made = found(hint, seats(adviser), tmp_path)
    assert made is not None
    assert made.leaks is not None
    assert made.flips is not None
    assert made.critique is None
    assert made.leaks.tasks == leaking
    assert (made.leaks.rate.estimate, made.leaks.rate.n) == (3 / 8, 8)
    assert (made.leaks.with_leak.estimate, made.leaks.with_leak.n) == (1.0, 3)
    assert (made.leaks.without_leak.estimate, made.leaks.without_leak.n) == (2 / 5, 5)
    assert made.flips.wrong_to_right == ("t15", "t16")
    assert made.flips.right_to_wrong == ()


def test_of_a_method_in_which_nobody_advises_only_the_flips_are_told(tmp_path: Path) -> None:
    made = found(vote.bind(samples=1), seats(lambda messages: ""), tmp_path)
    assert made is not None
    assert (made.leaks, made.critique) == (None, None)


def test_each_arm_is_compared_with_the_actor_alone_on_the_same_models(tmp_path: Path) -> None:
    large = ScriptedEngine(lambda messages, sampling, seed: answer(task_of(messages), True), identity="large")
    better = seats(lambda messages: "Add the tens first")
    better = Team(better.members, {**better.engines, "actor": large})
    weaker = seats(lambda messages: task_of(messages).answer)
    arms = [
        Arm("solo", solo, weaker),
        Arm("hint", hint, weaker, "untrained"),
        Arm("large: solo", solo, better, model="large", deployments={"actor": "large"}),
        Arm("large: hint", hint, better, "untrained", model="large", deployments={"actor": "large"}),
    ]

    async def measured() -> Result:
        field = Field("b", TASKS, Journal(tmp_path), judge)
        return await measure(field, [Played(arm, await field.sample(arm, 1)) for arm in arms])

    made = asyncio.run(measured()).attribution
    against = {name: one.against for name, one in made.items()}
    assert against == {"hint": "solo", "large: hint": "large: solo"}, "an arm is not compared with itself"
    gained = {name: len(one.flips.wrong_to_right) for name, one in made.items() if one.flips}
    assert gained == {"hint": 5, "large: hint": 0}


# -- critics


def test_a_critic_that_separates(tmp_path: Path) -> None:
    made = critique(honest, tmp_path)
    assert made.comments == {"right": (3, 0), "unclear": (0, 0), "wrong": (0, 5)}
    assert (made.separation.estimate, made.precision.estimate, made.recall.estimate) == (1, 1, 1)
    assert made.separation.low < 0.9, "eight drafts show no certainty"
    assert made.told.estimate == 0


def test_a_critic_that_always_finds_fault_raises_the_answers_and_separates_nothing(tmp_path: Path) -> None:
    made = critique(lambda task, right: "There is a mistake in it.", tmp_path)
    assert (made.drafts.estimate, made.revised.estimate) == (3 / 8, 4 / 8)
    assert made.change.estimate == pytest.approx(1 / 8)
    assert (made.flips.wrong_to_right, made.flips.right_to_wrong) == (MENDED, SPOILED)
    assert made.separation.estimate == 0.5
    assert made.separation.low < 0.5 < made.separation.high
    assert (made.precision.estimate, made.recall.estimate) == (5 / 8, 1)


def test_a_critic_that_is_unclear_says_nothing_that_could_be_precise(tmp_path: Path) -> None:
    made = critique(lambda task, right: "Add up again, step by step.", tmp_path)
    assert made.comments == {"right": (0, 0), "unclear": (3, 5), "wrong": (0, 0)}
    assert made.separation.estimate == 0.5
    assert isnan(made.precision.estimate)
    assert made.recall.estimate == 0


def test_a_critic_that_is_wrong_about_every_draft(tmp_path: Path) -> None:
    made = critique(lambda task, right: honest(task, not right), tmp_path)
    assert (made.separation.estimate, made.precision.estimate, made.recall.estimate) == (0, 0, 0)


def test_a_critic_that_tells_the_answer_to_wrong_drafts_is_told_from_one_that_repeats_right_ones(
    tmp_path: Path,
) -> None:
    telling = critique(lambda task, right: f"No, the answer is {task.answer}.", tmp_path / "a")
    assert (telling.told.estimate, telling.told.n) == (1, 5)
    assert telling.comments == {"right": (3, 0), "unclear": (0, 0), "wrong": (0, 5)}
    repeating = critique(lambda task, right: f"{task.answer} is correct." if right else "It is wrong.", tmp_path / "b")
    assert repeating.told.estimate == 0


def test_of_several_rounds_the_first_comment_and_the_last_answer_count(tmp_path: Path) -> None:
    made = found(critic.bind(rounds=2), criticising(honest), tmp_path)
    assert made is not None
    assert made.critique is not None
    assert made.critique.comments["wrong"] == (0, 5)
    assert made.critique.flips.wrong_to_right == MENDED


def test_where_all_drafts_are_right_there_is_nothing_to_separate(tmp_path: Path) -> None:
    made = found(critic, criticising(honest), tmp_path, TASKS[:3])
    assert made is not None
    assert made.critique is not None
    assert isnan(made.critique.separation.estimate)
    assert isnan(made.critique.recall.estimate)


def test_the_separation_is_the_rank_statistic_of_its_definition() -> None:
    counts = {"right": (6, 1), "unclear": (3, 2), "wrong": (1, 4)}
    right = [score for score, said in enumerate(counts) for _ in range(counts[said][0])]
    wrong = [score for score, said in enumerate(counts) for _ in range(counts[said][1])]
    pairs = [(r < w) + (r == w) / 2 for r in right for w in wrong]
    made = separation(counts)  # type: ignore[arg-type]
    assert made.estimate == pytest.approx(sum(pairs) / len(pairs))
    assert made.low < made.estimate < made.high
    assert made.n == 17


@pytest.mark.parametrize("counts", [((6, 3, 1), (1, 2, 4)), ((10, 0, 0), (10, 0, 0)), ((0, 0, 30), (0, 1, 4))])
def test_the_interval_of_the_separation_is_that_of_jeffreys_posterior(counts: tuple[tuple[int, ...], ...]) -> None:
    """Shares of a Dirichlet as what each of three gamma variates is of their sum, and the area pair by pair."""
    rng = np.random.default_rng(1)
    weights = [rng.gamma(np.array(made) + 0.5, size=(200_000, 3)) for made in counts]
    right, wrong = (drawn / drawn.sum(axis=1, keepdims=True) for drawn in weights)
    area = sum(right[:, r] * wrong[:, w] * ((r < w) + (r == w) / 2) for r in range(3) for w in range(3))
    made = separation(dict(zip(("right", "unclear", "wrong"), zip(*counts, strict=True), strict=True)))  # type: ignore[arg-type]
    assert (made.low, made.high) == pytest.approx(tuple(np.quantile(area, [0.025, 0.975])), abs=0.01)


# -- reading a comment

READ = {
    "right": [
        "The solution is correct.",
        "Correct! 19 + 20 = 39.",
        "**Right.**",
        "I see no errors.",
        "There are no obvious mistakes in the draft.",
        "The draft doesn’t contain any errors.",
        "Nothing is missing.",
        "It is not wrong.",
        "The sum isn't off.",
        "Well done.",
        "The steps are all right and the result is accurate.",
        "You got the correct answer.",
        "The solution correctly adds the numbers.",
        "I checked each step and it is correct.",
        "The solution is sound. To avoid errors, write the steps down.",
        "The answer is 38.",
        "The answer is 38, not 39.",
        "38 is the correct answer.",
        "The draft is error-free.",
        "A mistake-free solution.",
        "There are no errors, mistakes or omissions.",
        "It is free of errors, gaps, and omissions.",
        "I find neither a mistake nor an omission.",
        "There are no missing steps.",
        "None of the steps is wrong.",
        "The answer is correct and contains no errors.",
        "It is terse, but the answer is correct.",
        "Although it is terse, the answer is correct.",
        "Correct, with no other errors.",
    ],
    "wrong": [
        "The solution is not correct.",
        "The answer isn't right.",
        "That is not the right answer.",
        "This cannot be right.",
        "The approach is correct, but the sum is wrong.",
        "There is an error in the last step.",
        "You forgot to carry.",
        "The draft fails to count the fox.",
        "**Mistake:** 19 + 20 is not 38.",
        "If you add 19 and 20 you get 39, so the draft is wrong.",
        "The answer should be 39.",
        "The correct answer is 39.",
        "So it is \\boxed{39}.",
        "The correct answer is 39, not 38.",
        "The answer is not 38.",
        "The answer isn’t $38$.",
        "The answer is not 38 but 39.",
        "It is \\boxed{39} rather than \\boxed{38}.",
        "The answer is 39, but you wrote 38.",
        "39 is the correct answer.",
        "It is not error-free.",
        "There are no errors in the first step, mistakes in the second.",
        "There are no gaps, and one mistake.",
        "You did not fix the error.",
        "This mistake could have been avoided.",
        "Neither the approach nor the sum is right.",
        "You're off by one.",
        "Your approach is right, but the sum is off.",
        "Your approach is right, but the answer is 39.",
        "The first step is fine, though you forgot to carry.",
        "There are no errors in the first step, but the second is wrong.",
    ],
    "unclear": [
        "",
        "Check for any errors.",
        "Make sure the answer is correct.",
        "It might be wrong.",
        "Ask whether 0.5 is wrong.",
        "A fox has 4 legs.",
        "The answer is hard to see.",
        "答案是对的。",
        "The answer is not 37.",
        "You say that the answer is 38.",
        "The answer is 39, one more than 38.",
        "The common mistake of adding 1 is avoided.",
        "It did not make the common mistake of adding 1.",
        "There are no other errors.",
        "Your approach is right, but the sum comes to 39.",
        "All is correct except the last step.",
        "The discount is taken off the price.",
        "Apart from the sum, all is correct.",
        "Although the approach is right, the sum comes to 39.",
        "There is a mistake in the wording, but the answer is right.",
        "The approach is correct. The answer is 39.",
    ],
}


@pytest.mark.parametrize(("said", "comment"), [(said, comment) for said in READ for comment in READ[said]])
def test_a_comment_is_read_by_the_rules(said: str, comment: str) -> None:
    assert says(Task("t", "19 + 20?", "39"), "The answer is 38.", comment) == said


def test_an_answer_is_compared_with_a_draft_that_has_one() -> None:
    assert says(TASKS[0], "10 + 50 = 60\n\nThe final", "The answer is 60.") == "unclear"
    choice = Task("c", "Which?", "B", verifier="choice", choices=("ant", "bee"))
    assert says(choice, "The answer is A.", "The answer is B.") == "wrong"
    assert says(choice, "The answer is A.", "The answer is (B), not (A).") == "wrong"
    assert says(choice, "The answer is B.", "The answer is (B), not (A).") == "right"
    assert says(choice, "The answer is B.", "I think the answer is (B).") == "right"


@pytest.mark.parametrize(
    ("answer", "comment", "said"),
    [
        ("5", "The correct answer is 4, not 5.", "wrong"),
        ("5", "The answer is not 5.", "wrong"),
        ("4", "error-free", "right"),
        ("4", "no errors, mistakes or omissions", "right"),
        ("4", "neither a mistake nor an omission", "right"),
        ("4", "the common mistake of adding 1 is avoided", "unclear"),
        ("4", "Your approach is right, but the sum is off", "wrong"),
        ("5", "Your approach is right, but the sum is off", "wrong"),
        ("(1, 2)", "The answer is $(1, 2)$.", "right"),
        ("0.5", "The answer is 0.25, not 0.5.", "wrong"),
    ],
)
def test_a_comment_is_not_read_against_its_sense(answer: str, comment: str, said: str) -> None:
    assert says(Task("t", "2 + 2?", "4"), f"The answer is {answer}.", comment) == said


def test_a_long_comment_is_read_at_once() -> None:
    begun = time.process_time()
    for part in ("mistake ", "not 5 ", "1", "no errors, ", "neither ", "although ", "not \\("):
        says(TASKS[0], "The answer is 60.", part * (40_000 // len(part)))
    assert time.process_time() - begun < 5


# -- tables


def test_the_tables_hold_what_was_found(tmp_path: Path) -> None:
    arms = {}
    for name, comment in {"critic, trained": honest, "critic, untrained": lambda task, right: "It is wrong."}.items():
        made = found(critic, criticising(comment), tmp_path / name)
        assert made is not None
        arms[name] = made
    page = "\n\n".join(map(markdown_table, attribution_sections(arms)))
    assert "| critic, trained | solo | 2 | 1 | +1 | 8 |" in page
    assert "| critic, untrained | 50.0 [" in page
    assert "| critic, untrained | 0 / 0 | 0 / 0 | 3 / 5 |" in page
    lines = list(csv.DictReader(io.StringIO(attribution_csv(arms))))
    shown = {(line["arm"], line["question"], line["figure"]): line for line in lines}
    assert float(shown["critic, trained", "critic", "separation"]["estimate"]) == 1
    assert shown["critic, untrained", "critic", "says wrong of right drafts"]["estimate"] == "3"
    record = json.loads(json.dumps(attribution_record(arms), allow_nan=False))
    assert record["critic, trained"]["flips"]["wrong_to_right"] == list(MENDED)
    assert record["critic, trained"]["critique"]["comments"]["wrong"] == [0, 5]
