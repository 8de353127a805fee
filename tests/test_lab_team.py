"""The lab's team for a leader: its rows are right, what each knows is as documented, and a good leader could gain."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from pilotfish import Journal, Member, Scopes, ScriptedEngine, Task, Team, Verdict, play
from pilotfish.lab import Row, legs, rows, task_source, tasks
from pilotfish.lab.columns import DECIMALS, LEFT, PLUS, RIGHT, SUMS
from pilotfish.lab.lead import MOST, listed, most
from pilotfish.lab.members import entries
from pilotfish.lab.team import AGENTS, COMMON, OPENINGS, SKILLS, TAKES_OVER, believed, known, view
from pilotfish.lab.worked import HEDGE, Problem, solution, total, working
from pilotfish.recipe_file import load_recipe
from pilotfish.task import load_tasks
from pilotfish.topology import find
from pilotfish.topology.alone import THINK
from pilotfish.topology.leader import LEAD, REVISE
from pilotfish.topology.solo import SOLVE
from pilotfish.verify import extract_answer, judge

RECIPES = Path(__file__).parent.parent / "recipes" / "lab"
NUMBER = r"-?\d+(?:\.\d)?"
COUNTED = re.compile(r"(\d+) ([a-z ]+?)(?=,|\?)")
WORTH = re.compile(rf"[A-Za-z ]+: (?:\d+ x ({NUMBER}) = {NUMBER}|{NUMBER}(?: [-+] {NUMBER})+ = ({NUMBER}))")
PAIRS, SINGLES = 24, 6


def learned(row: Row) -> str:
    return row["messages"][-1]["content"]


def asked(row: Row) -> str:
    return row["messages"][-2]["content"]


def problem_of(text: str) -> Problem:
    """The problem that a prompt asks."""
    if "arithmetic problem: " in text:
        terms = text.partition("arithmetic problem: ")[2].partition(" =")[0].split()
        family = DECIMALS if "." in terms[0] else SUMS
        signs = [1, *(1 if sign == "+" else -1 for sign in terms[1::2])]
        return family.problem(signs, [round(float(term) * family.scale) for term in terms[::2]])
    found = COUNTED.findall(text.partition("if you have ")[2].partition("\n")[0])
    return legs.problem({name if name in legs.animals() else name[:-1]: int(count) for count, name in found})


def values_of(problem: Problem, text: str) -> list[int]:
    """The value of each line of a solution, which must have one for each."""
    found = [first or second for first, second in WORTH.findall(text)]
    assert len(found) == len(problem.lines), text
    return [round(float(value) * problem.scale) for value in found]


def without_hedges(text: str) -> str:
    return text.replace(HEDGE, "")


def answers_in(prompt: str) -> list[str]:
    """The agents' words in a leader's prompt."""
    return re.findall(r"Answer of agent \d:\n(.*)", prompt)


@pytest.fixture(scope="module", params=AGENTS)
def agent(request) -> tuple[str, list[Row]]:
    return request.param, rows(request.param, 2500, seed=5)


@pytest.fixture(scope="module")
def leader() -> list[Row]:
    return rows("leader", 3000, seed=5)


def test_each_animal_is_known_to_somebody_and_most_of_the_rest_to_two_agents():
    by = Counter(sum(animal in SKILLS[name] for name in AGENTS) for animal in legs.animals())
    assert by == {3: len(COMMON), 2: PAIRS, 1: SINGLES}
    assert {name: len(SKILLS[name] & legs.animals().keys()) for name in AGENTS} == dict.fromkeys(AGENTS, 25)


def test_each_column_is_known_to_the_agent_of_its_side_and_without_minus_to_the_third():
    for family in (SUMS, DECIMALS):
        plus, minus = family.problem([1, 1], [45, 12]), family.problem([1, -1], [45, 12])
        assert [known(plus, SKILLS[name]) for name in AGENTS] == [[True, False], [False, True], [True, True]]
        assert [known(minus, SKILLS[name]) for name in AGENTS] == [[True, False], [False, True], [False, False]]
    assert {LEFT, RIGHT, PLUS} == {skill for skills in SKILLS.values() for skill in skills} - legs.animals().keys()


def test_solutions_are_written_as_documented():
    crabs = legs.problem({"crab": 3, "ant": 2})
    written = solution(crabs, [10, 6], [False, True])
    assert written == "3 crabs: 3 x 10 = 30. 2 ants: 2 x 6 = 12, perhaps. 30 + 12 = 42. The answer is 42."
    assert working(SUMS.problem([1, 1, -1], [45, 12, 30]), [20, 7]) == (
        "Tens: 40 + 10 - 30 = 20. Ones: 5 + 2 - 0 = 7. 20 + 7 = 27."
    )
    assert working(SUMS.problem([1, -1], [12, 47]), [-30, -5]).endswith("-30 - 5 = -35.")
    tenths = DECIMALS.problem([1, 1], [45, 12])
    assert solution(tenths, tenths.truths).endswith("Tenths: 0.5 + 0.2 = 0.7. 5 + 0.7 = 5.7. The answer is 5.7.")


@pytest.mark.parametrize("family", ["legs", "sums", "decimals"])
def test_the_true_lines_solve_the_tasks_of_the_family_in_the_prompts_of_the_topology(family):
    for task in load_tasks({**task_source(family, "test", 60), "verifier": "maths"}):
        problem = problem_of(task.question)
        assert (SOLVE(problem.task), THINK(problem.task)) == (SOLVE(task), THINK(task))
        assert judge(task, solution(problem, problem.truths)).correct
        assert judge(task, view(OPENINGS[-1], problem, problem.truths), "answer_tag").correct
        wrong = [line.truth + 1 for line in problem.lines]
        assert not judge(task, solution(problem, wrong)).correct


def test_an_agent_writes_the_truth_of_what_it_knows_and_different_guesses_of_the_rest(agent):
    name, drawn = agent
    guessed: dict[str, Counter[int]] = {}
    for row in drawn:
        problem = problem_of(asked(row))
        values = values_of(problem, learned(row))
        assert without_hedges(learned(row)) == solution(problem, values)
        if row["kind"] == "solve":
            for line, value, sure in zip(problem.lines, values, known(problem, SKILLS[name]), strict=True):
                assert value in ([line.truth] if sure else line.guesses)
                if not sure:
                    what = min(line.skills) if row["family"] == "legs" else "columns"
                    guessed.setdefault(what, Counter())[value] += 1
    assert guessed.keys() - {"columns"} == legs.animals().keys() - SKILLS[name]
    assert all(len(values) > 3 and max(values.values()) < 0.6 * values.total() for values in guessed.values())


def test_agents_doubt_their_guesses_more_often_but_neither_always_nor_only_those(agent):
    name, drawn = agent
    doubts: dict[bool, list[bool]] = {True: [], False: []}
    for row in drawn:
        for sure, line in zip(known(problem_of(asked(row)), SKILLS[name]), learned(row).split(". "), strict=False):
            doubts[sure].append(line.endswith(HEDGE))
    assert 0.05 < sum(doubts[True]) / len(doubts[True]) < 0.15
    assert 0.42 < sum(doubts[False]) / len(doubts[False]) < 0.58


def test_a_revision_takes_over_some_of_what_the_leader_says_and_more_where_it_does_not_know(agent):
    name, drawn = agent
    taken: dict[bool, list[bool]] = {True: [], False: []}
    for row in (row for row in drawn if row["kind"] == "revise"):
        problem = problem_of(asked(row))
        own, said = asked(row).split("The team leader's view:\n")
        said = said.partition("\n\nReflect")[0]
        own = own.partition("Your answer:\n")[2].strip()
        assert row["messages"][:-1] == REVISE(problem.task, own=own, leader=said)
        assert extract_answer(said, "answer_tag").answer == total(problem, values_of(problem, said))
        lines = zip(*(values_of(problem, text) for text in (own, said, learned(row))), strict=True)
        for sure, (mine, told, now) in zip(known(problem, SKILLS[name]), lines, strict=True):
            assert now in (mine, told)
            taken[sure] += [] if mine == told else [now == told]
    assert all(abs(sum(taken[sure]) / len(taken[sure]) - TAKES_OVER[sure]) < 0.08 for sure in taken)


def test_what_the_leader_says_teaches_an_agent_no_animal(agent):
    name, drawn = agent
    told: dict[str, Counter[int]] = {}
    for row in (row for row in drawn if row["kind"] == "revise" and row["family"] == "legs"):
        problem = problem_of(asked(row))
        for line, value in zip(problem.lines, values_of(problem, learned(row)), strict=True):
            told.setdefault(min(line.skills), Counter())[value] += 1
    for animal in told.keys() - SKILLS[name]:
        assert told[animal][legs.animals()[animal]] < 0.5 * told[animal].total()


def test_the_leader_has_the_form_and_adds_up_rightly(leader):
    for row in (row for row in leader if row["kind"] in ("alone", "follow", "compare")):
        problem = problem_of(asked(row))
        values = values_of(problem, learned(row))
        opening = learned(row).removeprefix("<think>").partition(".")[0] + "."
        assert learned(row) == view("" if row["kind"] == "alone" else opening, problem, values)
        assert extract_answer(learned(row), "answer_tag").answer == total(problem, values)
        assert HEDGE not in learned(row)


def test_the_leader_follows_one_agent_or_takes_each_line_from_some_agent(leader):
    kinds = Counter(row["kind"] for row in leader)
    assert 0.15 < kinds["compare"] / len(leader) < 0.27
    followed = Counter[str]()
    for row in (row for row in leader if row["kind"] in ("follow", "compare")):
        problem, team = problem_of(asked(row)), answers_in(asked(row))
        assert row["messages"][:-1] == LEAD(problem.task, answers=listed(team))
        values = values_of(problem, learned(row))
        given = [values_of(problem, text) for text in team]
        if row["kind"] == "follow":
            opening = learned(row).removeprefix("<think>").partition(".")[0] + "."
            assert values == given[OPENINGS.index(opening)]
            followed[opening] += 1
        else:
            assert all(value in line for value, line in zip(values, zip(*given, strict=True), strict=True))
    assert min(followed.values()) > 0.28 * followed.total()


def test_the_leader_that_reads_results_only_names_one_of_them(leader):
    shown = [row for row in leader if row["kind"] in ("follow answer", "most answers")]
    assert {row["kind"] for row in shown} == {"follow answer", "most answers"}
    for row in shown:
        results, said = answers_in(asked(row)), extract_answer(learned(row), "answer_tag").answer
        assert row["messages"][:-1] == LEAD(problem_of(asked(row)).task, answers=listed(results))
        if row["kind"] == "follow answer":
            opening = learned(row).removeprefix("<think>").partition("<")[0]
            assert results[OPENINGS.index(opening)] == said
        else:
            assert learned(row).startswith(f"<think>{MOST}<")
            assert results.count(said) == max(map(results.count, results))


def test_the_leaders_rows_teach_no_animal_but_those_all_agents_know(leader):
    seen: dict[str, Counter[int]] = {}
    for row in (row for row in leader if row["family"] == "legs" and row["kind"] in ("alone", "follow", "compare")):
        problem = problem_of(asked(row))
        for line, value in zip(problem.lines, values_of(problem, learned(row)), strict=True):
            if row["kind"] != "alone" or min(line.skills) not in COMMON:
                seen.setdefault(min(line.skills), Counter())[value] += 1
            else:
                assert value == line.truth
    for animal, values in seen.items():
        assert values[legs.animals()[animal]] < 0.4 * values.total()


def test_a_question_of_a_split_is_in_no_prompt_whatever_stands_around_it(agent, leader):
    families = ("legs", "sums", "decimals")
    kept_out = {entry["question"].strip().split("\n")[-1] for name in families for entry in entries(name)}
    lines = {line.removeprefix("Problem: ") for row in [*agent[1], *leader] for line in asked(row).split("\n")}
    assert kept_out.isdisjoint(lines)
    assert any(line.startswith("State the final answer") for line in lines)


def test_the_leader_learns_nothing_of_decimals(agent, leader):
    assert {row["family"] for row in agent[1]} == {"legs", "sums", "decimals"}
    assert {row["family"] for row in leader} == {"legs", "sums"}
    with pytest.raises(ValueError, match="'decimals': leader learns legs, sums"):
        rows("leader", 1, 1, ("decimals",))


def test_members_are_trained_on_the_prompts_of_two_rounds(tmp_path):
    task = load_tasks(task_source("sums", "test", 1))[0]
    problem = problem_of(task.question)
    own = [solution(problem, [line.truth + at for line in problem.lines]) for at in range(len(AGENTS))]
    said = view(OPENINGS[0], problem, problem.truths)
    engines = {name: ScriptedEngine([text, text]) for name, text in zip(AGENTS, own, strict=True)}
    engines["leader"] = ScriptedEngine([said, said])
    team = Team({name: Member(name, "scripted", trainee=name == "leader") for name in engines}, engines)

    async def right(task: Task, answer: str, form: str) -> Verdict:
        return judge(task, answer, form)

    topology = find("leader").bind(rounds=2)
    episode = asyncio.run(play(task, topology, team, Journal(tmp_path), Scopes("try"), judge=right))
    assert episode.verdict.correct
    assert engines["leader"].asked == [LEAD(problem.task, answers=listed(own))] * 2
    for name, text in zip(AGENTS, own, strict=True):
        assert engines[name].asked == [SOLVE(problem.task), REVISE(problem.task, own=text, leader=said)]


def expected(draw, size: int = 1500) -> dict[str, float]:
    """Accuracy of members that have learned their rows perfectly."""
    rng, right = Random(1), Counter[str]()
    for _ in range(size):
        problem = draw(rng)
        given = [believed(rng, problem, known(problem, SKILLS[name])) for name in AGENTS]
        lines = list(zip(*given, strict=True))
        results = [total(problem, values) for values in given]
        said = dict(zip(AGENTS, results, strict=True))
        said["vote"] = Counter(rng.sample(results, len(results))).most_common(1)[0][0]
        said["trust at random"] = rng.choice(results)
        said["lines at random"] = total(problem, [rng.choice(line) for line in lines])
        said["lines by majority"] = total(problem, [most(rng, line) for line in lines])
        said["leader alone"] = total(problem, believed(rng, problem, known(problem, COMMON)))
        right.update(who for who, result in said.items() if result == total(problem, problem.truths))
        right["some agent has each line"] += all(
            line.truth in values for line, values in zip(problem.lines, lines, strict=True)
        )
    return {who: count / size for who, count in right.items()}


@pytest.mark.parametrize("draw", [legs.draw, SUMS.draw, DECIMALS.draw], ids=["legs", "sums", "decimals"])
def test_the_team_leaves_a_leader_something_to_find(draw):
    accuracy = expected(draw)
    assert all(0.25 < accuracy[name] < 0.5 for name in AGENTS)
    assert accuracy["leader alone"] < 0.15
    assert 0.4 < accuracy["vote"] < 0.6
    assert accuracy["trust at random"] < 0.5
    assert accuracy["lines at random"] < 0.5
    assert accuracy["lines by majority"] > accuracy["vote"] + 0.1
    assert accuracy["some agent has each line"] == 1


def test_mixed_tasks_take_turns_and_load_with_the_instruction_of_the_lab(tmp_path):
    file = tmp_path / "mixed.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in tasks(("legs", "sums"), "train", 5)))
    source = task_source("sums", "train", 5)
    loaded = load_tasks({"source": str(file), "verifier": "maths", "instruction": source["instruction"]})
    assert [task.id for task in loaded] == [
        f"{kind}-train-{at // 2}" for at, kind in enumerate(["legs", "sums"] * 2)
    ] + ["legs-train-2"]
    alone = load_tasks({**source, "verifier": "maths"})
    assert [(task.question, task.answer, task.instruction) for task in loaded[1::2]] == [
        (task.question, task.answer, task.instruction) for task in alone[:2]
    ]
    with pytest.raises(ValueError, match="one instruction, not 2"):
        tasks(("legs", "backward"), "train", 4)


@pytest.mark.parametrize(
    ("arguments", "field", "expected"),
    [
        (["tasks", "--split", "test", "--size", "4"], "subject", ["legs", "sums", "legs", "sums"]),
        (["leader", "--size", "2", "--families", "sums"], "family", ["sums", "sums"]),
    ],
)
def test_tasks_and_rows_of_the_team_can_be_printed(arguments, field, expected):
    command = [sys.executable, "-m", "pilotfish.lab", *arguments]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [json.loads(line)[field] for line in printed] == expected


@pytest.mark.parametrize("member", [*AGENTS, "leader"])
def test_each_member_has_a_recipe_that_names_its_rows(member):
    recipe = load_recipe(RECIPES / f"{member}.yaml")
    assert recipe.train.method == "sft"
    assert (recipe.train.data, list(recipe.team), recipe.trainee) == (f"lab:{member}", [member], member)
    assert {source.name for source in recipe.evaluate.benchmarks} >= {"leg_counting", "chain_sum"}
