"""The lab: its rows are right, each member learns its own half, and no question of a split is among them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.lab import FAMILIES, Row, backward, legs, read_rows, rows, task_source
from pilotfish.lab.members import SPLIT_SEEDS, SPLIT_SIZE, entries, learned_by
from pilotfish.recipe_file import load_recipe
from pilotfish.task import Task, load_tasks
from pilotfish.topology.hint import ADVISE
from pilotfish.topology.solo import SOLVE
from pilotfish.verify import judge

RECIPES = Path(__file__).parent.parent / "recipes" / "lab"
STEP = re.compile(r"(\d+) ([x+]) (\d+) = (\d+)")
COUNTED = re.compile(r"(\d+) ([a-z ]+?)(?=,|\?)")


def learned(row: Row) -> str:
    return row["messages"][-1]["content"]


def asked(row: Row) -> str:
    return row["messages"][-2]["content"]


def word_of(question: str) -> str:
    return question.split("\n")[0].rpartition(": ")[2]


def counts_of(question: str) -> dict[str, int]:
    found = COUNTED.findall(question.partition("if you have ")[2].partition("\n")[0])
    return {name if name in legs.animals() else name[:-1]: int(count) for count, name in found}


@pytest.fixture(scope="module")
def actor() -> list[Row]:
    return rows("actor", 3000, seed=5)


@pytest.fixture(scope="module")
def collaborator() -> list[Row]:
    return rows("collaborator", 3000, seed=5)


def test_the_same_arguments_give_the_same_rows_and_another_seed_gives_others():
    assert rows("actor", 50, seed=3) == rows("actor", 50, seed=3)
    assert rows("actor", 50, seed=3) != rows("actor", 50, seed=4)


def test_every_step_and_every_sum_of_an_actor_solution_is_right(actor):
    solutions = [row for row in actor if row["family"] == "legs"]
    assert solutions
    for row in solutions:
        steps = STEP.findall(learned(row))
        assert all(int(c) == (int(a) * int(b) if sign == "x" else int(a) + int(b)) for a, sign, b, c in steps)
        products = [int(result) for _, sign, _, result in steps if sign == "x"]
        assert learned(row).endswith(f"The answer is {sum(products)}.")
        assert len(products) == len(counts_of(asked(row)))


def test_reasoning_gym_itself_accepts_what_the_actor_learns_to_answer_alone(actor):
    alone = [row for row in actor if row["kind"] == "solve"]
    assert {row["family"] for row in alone} == set(learned_by("actor"))
    for row in alone:
        if row["family"] == "legs":
            gold = sum(count * legs.animals()[animal] for animal, count in counts_of(asked(row)).items())
            meta = {"dataset": legs.GYM, "entry": {"answer": str(gold)}}
        else:
            word = word_of(asked(row))
            meta = {"dataset": backward.GYM, "entry": {"answer": word[::-1]}}
        task = Task("t", "q", meta["entry"]["answer"], verifier="reasoning_gym", meta=meta)
        assert judge(task, learned(row)).correct


def test_the_actor_never_learns_the_legs_of_an_animal_outside_its_half(actor):
    told: dict[str, set[str]] = {}
    for row in actor:
        if row["family"] == "legs":
            for number, (animal, count) in enumerate(counts_of(asked(row)).items()):
                step = learned(row).split(". ")[number]
                assert step.startswith(f"{count} {animal}")
                told.setdefault(animal, set()).add(step.split(" x ")[1].split(" = ")[0])
    unknown = told.keys() - legs.KNOWN
    assert len(unknown) == len(legs.animals()) - len(legs.KNOWN)
    assert all(len(told[animal]) > 3 for animal in unknown)
    assert all(told[animal] == {str(legs.animals()[animal])} for animal in legs.KNOWN)


def test_the_actor_solves_alone_only_what_it_knows(actor):
    alone = [row for row in actor if row["kind"] == "solve"]
    assert all(legs.KNOWN.issuperset(counts_of(asked(row))) for row in alone if row["family"] == "legs")
    words = {word_of(asked(row)) for row in alone if row["family"] == "backward"}
    assert backward.VOCABULARY / 2 < len(words) <= backward.VOCABULARY


def test_a_useful_hint_names_every_unknown_animal_and_the_solution_follows_it(actor):
    hinted = [row for row in actor if row["kind"] == "hint" and row["family"] == "legs"]
    assert hinted
    for row in hinted:
        hint = asked(row).partition("(Hint: ")[2].partition(")")[0]
        for animal in counts_of(asked(row)).keys() - legs.KNOWN:
            told = re.search(rf"{animal}(?: has|:) (\d+) legs", hint)
            assert told
            assert re.search(rf"\d+ {animal}s?: \d+ x {told[1]} =", learned(row))


def test_an_idle_comment_leaves_the_draft_as_it_is(actor):
    stood = [row for row in actor if row["kind"] == "stand"]
    assert stood
    assert all(learned(row) in asked(row) for row in stood)


def test_the_collaborator_states_true_facts_and_computes_nothing(collaborator):
    for row in collaborator:
        text = learned(row)
        assert "=" not in text
        assert "The answer" not in text
        for animal, count in re.findall(r"One ([a-z ]+) has (\d+) legs", text):
            assert legs.animals()[animal] == int(count)
        if text.startswith("The letters are"):
            spelt = text.removeprefix("The letters are ").rstrip(".").replace(" ", "")
            assert asked(row).endswith(f": {spelt}")


def test_an_untrained_hint_is_at_times_useful_and_at_times_not(collaborator):
    remarks = [learned(row) for row in collaborator if row["kind"] == "remark" and row["family"] == "legs"]
    useful = sum("One " in remark for remark in remarks) / len(remarks)
    assert 0.4 < useful < 0.6


def test_no_question_of_a_split_is_in_the_rows(actor, collaborator):
    kept_out = {entry["question"].strip().split("\n")[-1] for name in learned_by("actor") for entry in entries(name)}
    assert len(kept_out) > SPLIT_SIZE
    assert all(kept_out.isdisjoint(asked(row).split("\n")) for row in [*actor, *collaborator])
    words = {entry["metadata"]["word"] for entry in entries("backward")}
    spelt = {word_of(asked(row)) for row in [*actor, *collaborator] if row["family"] == "backward"}
    assert words.isdisjoint(spelt)


def test_train_and_test_splits_share_no_item():
    first, second = SPLIT_SEEDS.values()
    assert abs(first - second) >= SPLIT_SIZE


@pytest.mark.parametrize("family", ["legs", "backward"])
def test_members_are_trained_on_the_prompts_that_tasks_of_the_family_give(family):
    task = load_tasks(task_source(family, "test", 3))[0]
    if family == "legs":
        made = legs.task(counts_of(task.question), legs.animals())
    else:
        made = backward.task(word_of(task.question))
    assert (SOLVE(made), ADVISE(made), made.answer) == (SOLVE(task), ADVISE(task), task.answer)


def test_answers_and_hints_are_short(actor, collaborator):
    assert max(len(learned(row).split()) for row in actor) <= 45
    assert max(len(learned(row).split()) for row in collaborator) <= 20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rows("umpire", 1, 1), "lab member 'umpire'"),
        (lambda: rows("actor", 1, 1, ("sums",)), "lab family 'sums'"),
        (lambda: task_source("legs", "dev", 1), "lab split 'dev'"),
        (lambda: task_source("legs", "test", SPLIT_SIZE + 1), "kept out"),
    ],
)
def test_unknown_names_are_refused_with_those_that_exist(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_data_names_a_member_a_family_or_a_file(tmp_path):
    assert {row["family"] for row in read_rows("lab:actor", 40, 1)} == set(learned_by("actor"))
    assert {row["family"] for row in read_rows("lab:actor/legs", 40, 1)} == {"legs"}
    file = tmp_path / "own.jsonl"
    file.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n\n")
    assert read_rows(str(file), 99, 1)[0]["messages"] == [{"role": "user", "content": "a"}]


@pytest.mark.parametrize("line", ["{", "[]", '{"messages": [{"role": "user"}]}'])
def test_a_bad_line_of_data_is_named(tmp_path, line):
    file = tmp_path / "own.jsonl"
    file.write_text('{"messages": []}\n' + line)
    with pytest.raises(ValueError, match=r"own\.jsonl:2: no"):
        read_rows(str(file), 1, 1)


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_lab_recipes_use_the_lab_tasks(file):
    recipe = load_recipe(file)
    trained = recipe.tasks.train if recipe.tasks else ()
    sources = [source for source in (*recipe.evaluate.benchmarks, *trained) if source.label is None]
    for source in sources:
        family = next(family for family in FAMILIES.values() if source.name == family.gym)
        split = "train" if source in trained else "test"
        expected = task_source(family.name, split, source.size)
        assert source.model_dump(include=set(expected)) == expected


def test_making_rows_needs_no_torch():
    code = "import sys, pilotfish.lab as lab; lab.rows('actor', 2, 1); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_rows_can_be_printed_from_the_command_line():
    command = [sys.executable, "-m", "pilotfish.lab", "collaborator", "--size", "3", "--families", "legs"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [json.loads(line)["family"] for line in printed] == ["legs"] * 3
