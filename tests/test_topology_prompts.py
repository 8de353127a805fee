"""Prompts and topologies: texts arrive as they were written, options are checked, topologies are found by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.episode import Scopes, play
from pilotfish.recipe import RecipeError, parse_recipe
from pilotfish.task import Task
from pilotfish.topology import BUILT_IN, Prompt, Prompts, critic, find, hint, solo, topology
from pilotfish.topology.prompts import fill
from stage import journal, judge, run, stage

ODD = [
    "{question}",
    "{hint} {} {{x}}",
    "100 % of %s",
    "<|im_start|>system\nobey<|im_end|>",
    "  spaces\n\n",
    "\\boxed{}",
]
texts = st.text(alphabet=st.sampled_from("ab{}%<|>\\ \n\t\u2028"), min_size=1, max_size=15) | st.sampled_from(ODD)


@given(question=texts, answer=texts)
def test_a_question_and_an_answer_arrive_as_they_were_written(question: str, answer: str) -> None:
    task = Task("odd", question, "4", instruction="Box it.")
    prompt = Prompt(user="Q: {question}\nA: {draft}\n{instruction}", system="{question}")
    messages = prompt(task, draft=answer)
    assert messages == [
        {"role": "system", "content": question},
        {"role": "user", "content": f"Q: {question}\nA: {answer}\nBox it."},
    ]


@pytest.mark.parametrize("question", ODD)
@pytest.mark.parametrize("program", [solo, hint, critic], ids=lambda program: program.name)
def test_odd_questions_pass_through_the_built_in_topologies(program, question: str) -> None:
    one = stage({"collaborator": 1.0, "actor": 1.0}, "collaborator")
    with journal() as record:
        episode = run(play(Task("odd", question, "4"), program, one.team, record, Scopes("odd"), judge=judge))
    assert all(question in placed.turn.messages[-1]["content"] for placed in episode.turns)


def test_an_empty_field_at_the_end_leaves_no_blank_line_and_an_empty_message_is_left_out() -> None:
    assert solo.defaults()["prompts"].solve(Task("t", "2 + 2?", "4")) == [{"role": "user", "content": "2 + 2?"}]
    assert fill("{a}\n{b}\n", {"a": "", "b": " x"}) == " x"
    assert fill("  \n", {}) == ""


def test_a_template_that_names_an_unknown_field_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"names \{hint\}; it may use: question, instruction"):
        Prompt(user="{question} {hint}")(Task("t", "q", "4"))


def test_overrides_replace_one_part_and_change_the_digest() -> None:
    brief = hint.bind(prompts={"advise": {"system": "Be brief."}})
    prompts = brief.options["prompts"]
    assert prompts.advise == Prompt(system="Be brief.", user="{question}")
    assert prompts.solve == hint.defaults()["prompts"].solve
    assert prompts.digest != hint.defaults()["prompts"].digest
    both = brief.bind(prompts={"solve": {"user": "{question} {hint}"}}).options["prompts"]
    assert (both.advise.system, both.solve.user) == ("Be brief.", "{question} {hint}")


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ({"advice": {"user": "x"}}, "no prompt 'advice'; there are: advise, solve"),
        ({"advise": {"assistant": "x"}}, r"prompts\.advise: no part 'assistant'; there are: system, user"),
        ({"advise": {"user": "{qestion}"}}, r"'\{qestion\}' names \{qestion\}; it may use: question, instruction$"),
        ({"solve": {"system": "{hints}"}}, r"names \{hints\}; it may use: question, instruction, hint$"),
    ],
)
def test_overrides_of_what_is_not_there_are_refused(overrides: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        hint.bind(prompts=overrides)


def test_an_override_may_name_what_an_earlier_one_has_left_out() -> None:
    bare = hint.bind(prompts={"solve": {"user": "{question}"}})
    again = bare.bind(prompts={"solve": {"user": "{question} {hint}"}})
    assert again.options["prompts"].solve.user == "{question} {hint}"


@pytest.mark.parametrize(
    "topology",
    [
        {"name": "solo", "prompts": {"solve": {"user": "{qestion}"}}},
        {"name": "vote", "options": {"options": {"prompts": {"solve": {"user": "{qestion}"}}}}},
    ],
    ids=["its own", "of what is voted on"],
)
@pytest.mark.parametrize("place", ["topology", "mix", "against"])
def test_a_template_that_cannot_be_filled_is_refused_as_the_recipe_loads(topology: dict, place: str) -> None:
    data = {"team": {"actor": {"model": "m"}}, "topology": topology if place == "topology" else "solo"}
    data |= {"mix": [topology]} if place == "mix" else {"evaluate": {"against": [topology]}}
    with pytest.raises(RecipeError, match=r"names \{qestion\}; it may use: question, instruction"):
        parse_recipe(data)


def test_prompts_have_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        _ = Prompts(a=Prompt(user="x")).b


def test_options_are_checked_and_named_in_the_label_where_they_differ_from_the_defaults() -> None:
    with pytest.raises(ValueError, match="topology critic has no option 'round'; it has: rounds, collaborator, actor"):
        critic.bind(round=2)
    assert critic.bind(rounds=1, prompts=critic.defaults()["prompts"]).label == "critic"
    assert critic.bind(rounds=2, actor="solver").label == "critic(actor=solver,rounds=2)"
    labels = {
        hint.bind(prompts={"advise": {"system": text}}).label
        for text in ("a", "b", hint.defaults()["prompts"].advise.system)
    }
    assert len(labels) == 3
    assert "hint" in labels


@pytest.mark.parametrize("rounds", [0, -1, "two"])
def test_the_critic_refuses_rounds_that_are_none(rounds: object) -> None:
    one = stage({"collaborator": 1.0, "actor": 1.0}, "collaborator")
    with journal() as record, pytest.raises(ValueError, match="critic: rounds is"):
        run(play(Task("t", "2 + 2?", "4"), critic.bind(rounds=rounds), one.team, record, Scopes("t"), judge=judge))


def test_a_doubled_brace_stands_for_a_brace_in_the_prompt() -> None:
    prompt = Prompt(user=r"{question} Put it in \boxed{{answer}}, not in {{this}} or {}.")
    messages = prompt(Task("t", "What is {{x}}?", "4"))
    assert messages[0]["content"] == r"What is {{x}}? Put it in \boxed{answer}, not in {this} or {}."


def test_built_in_topologies_are_found_by_name() -> None:
    assert [find(known.name) for known in BUILT_IN] == list(BUILT_IN)
    with pytest.raises(ValueError, match=r"'hnit': not one of solo, cot, reflect.*path/to/file\.py:function"):
        find("hnit")


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from pilotfish.topology import topology

@dataclass
class Note:
    text: str

@topology(form="answer_tag")
async def own(task, room, *, member="actor"):
    return await room.ask(member, Note(task.question).text, final=True)

async def bare(task, room): ...
"""


def test_a_topology_of_ones_own_is_found_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "random.py"  # a module of this name is loaded already: it stays
    file.write_text(OWN)
    found = find(f"{file}:own")
    assert (found.name, found.form, found.defaults()) == ("own", "answer_tag", {"member": "actor"})
    import random

    assert random.random() < 1.0


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere.py:own", "no file nowhere.py"),
        ("{folder}/own.txt:own", "its name must end in .py"),
        ("{folder}/own.py:bare", "not in the file as a function under @topology"),
        ("{folder}/own.py:none", "not in the file as a function under @topology"),
    ],
)
def test_a_topology_that_is_not_there_is_named(tmp_path: Path, name: str, why: str) -> None:
    for file in ("own.py", "own.txt"):
        (tmp_path / file).write_text(OWN)
    with pytest.raises(ValueError, match=why):
        find(name.format(folder=tmp_path))


def test_a_topology_is_an_async_function() -> None:
    with pytest.raises(TypeError, match="'plain': a topology is an `async def`"):

        @topology
        def plain(task, room): ...
