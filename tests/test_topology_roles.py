"""Roles: the collaborator picks or writes a role, the actor answers in it."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.evaluate.arms import answering
from pilotfish.topology import roles
from pilotfish.topology.roles import DEFAULT, EXPERTS
from seated import asked, different, group, last, played, said, seats, who
from stage import stage

QUESTION = "What is 2 + 2?"


def test_the_collaborator_picks_an_expert_and_the_actor_answers_as_that_one() -> None:
    episode = played(roles, seats(collaborator=["Grade School Teacher"], actor=["\\boxed{4}"]))
    assert who(episode) == ["collaborator", "actor"]
    assert asked(episode, 0) == [
        ("system", "You lead a team of experts and decide who solves the user's problem. Do not solve it."),
        (
            "user",
            f"Problem: {QUESTION}\n\nExperts:\n- Math Professor\n- Grade School Teacher\n- Math Enthusiast\n\n"
            "Who is best suited? Reply with the name alone.",
        ),
    ]
    assert asked(episode, 1) == [
        (
            "system",
            "You are a grade school teacher. You go in small, plain steps and check the arithmetic.",
        ),
        ("user", f"{QUESTION}\nBox it."),
    ]
    assert [placed.final for placed in episode.turns] == [False, True]
    assert episode.verdict.reward == 1.0


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ("**math professor**.", EXPERTS["Math Professor"]),
        ("I pick the Math\nEnthusiast.", EXPERTS["Math Enthusiast"]),
        ("Math Enthusiast, rather than the Math Professor", EXPERTS["Math Enthusiast"]),
        ("a plumber", DEFAULT),
        ("", DEFAULT),
    ],
)
def test_the_expert_who_is_named_first_is_picked_or_a_helpful_assistant(words: str, role: str) -> None:
    episode = played(roles, seats(collaborator=[words], actor=["4"]))
    assert asked(episode, 1)[0] == ("system", role)


def test_of_names_that_begin_alike_the_longer_one_is_meant() -> None:
    experts = {"Teacher": "short", "Teacher of Physics": "long"}
    episode = played(roles.bind(experts=experts), seats(collaborator=["Teacher of physics"], actor=["4"]))
    assert asked(episode, 1)[0] == ("system", "long")


def test_without_experts_the_collaborator_writes_the_role() -> None:
    team = seats(collaborator=["  You are a careful {adder}. "], actor=["4"])
    episode = played(roles.bind(experts=None), team)
    assert asked(episode, 0)[0][1].endswith("begin with: You are. Do not solve the problem.")
    assert asked(episode, 0)[1] == ("user", QUESTION)
    assert asked(episode, 1) == [("system", "You are a careful {adder}."), ("user", f"{QUESTION}\nBox it.")]


def test_one_model_may_play_both_parts() -> None:
    episode = played(roles.bind(collaborator="actor"), stage({"actor": 1.0}).team)
    assert who(episode) == ["actor", "actor"]


def test_in_training_each_row_has_a_role_and_an_answer_of_its_own() -> None:
    one = stage({"collaborator": 1.0, "actor": 1.0}, "collaborator")
    rows = group(one, roles.bind(experts=None), 0, rows=8)
    assert different(rows) == [8, 8]
    assert all(asked(row, 1)[0] == ("system", said(row)[0]) for row in rows)


def test_a_greedy_actor_is_asked_once_for_each_expert_that_a_group_picks() -> None:
    one = stage({"collaborator": 1.0, "actor": 0.0}, "collaborator")
    group(one, roles, 0, rows=8)  # a speaker names no expert: all eight get the default
    assert {name: len(speaker.asked) for name, speaker in one.speakers.items()} == {"collaborator": 8, "actor": 1}


def test_the_actor_is_who_answers() -> None:
    assert answering(roles.bind(actor="bob")) == ["bob"]


@pytest.mark.parametrize("experts", [{}, ["Math Professor"], "Math Professor"])
def test_experts_that_are_none_are_refused(experts: Any) -> None:
    with pytest.raises(ValueError, match=r"roles: experts is .*; give names and what the actor is told, or null"):
        played(roles.bind(experts=experts), seats(collaborator=["x"], actor=["4"]))


def test_the_prompts_may_be_replaced() -> None:
    prompts = {"pick": {"user": "{experts}?"}, "solve": {"system": "", "user": "{role} {question}"}}
    episode = played(roles.bind(experts={"A": "Be A."}, prompts=prompts), seats(collaborator=["A"], actor=["4"]))
    assert last(episode, 0) == "- A?"
    assert asked(episode, 1) == [("user", f"Be A. {QUESTION}")]
