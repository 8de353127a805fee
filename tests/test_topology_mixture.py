"""Mixture of agents: each layer reads the whole layer before, and an aggregator ends it."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.evaluate.arms import answering
from pilotfish.topology import mixture, solo
from seated import asked, different, group, last, played, said, seats, silent, who
from stage import journal, stage

QUESTION = "What is 2 + 2?"


def read(answers: str) -> str:
    return (
        f"Problem: {QUESTION}\n\n{answers}\n\nSome of these answers may be wrong or incomplete. Weigh them, correct "
        "what is wrong and write one answer that is better than each of them. Box it."
    )


def test_the_second_layer_and_the_aggregator_read_all_of_the_layer_before() -> None:
    team = seats(ann=["a1", "a2"], bob=["b1", "b2"], boss=["\\boxed{4}"])
    episode = played(mixture.bind(agents=["ann", "bob"], aggregator="boss"), team)
    assert who(episode) == ["ann", "bob", "ann", "bob", "boss"]
    second = [("user", read("Answer of agent 1:\na1\n\nAnswer of agent 2:\nb1"))]
    assert [asked(episode, at) for at in range(4)] == [[("user", f"{QUESTION}\nBox it.")]] * 2 + [second] * 2
    assert asked(episode, 4) == [("user", read("Answer of agent 1:\na2\n\nAnswer of agent 2:\nb2"))]
    assert (episode.answer, episode.verdict.reward) == ("\\boxed{4}", 1.0)
    assert [placed.final for placed in episode.turns] == [False] * 4 + [True]


@pytest.mark.parametrize(("size", "layers"), [(1, 2), (3, 2), (3, 3), (6, 4)])
def test_each_layer_but_the_last_asks_every_agent(size: int, layers: int) -> None:
    names = [f"agent{number}" for number in range(size)]
    episode = played(
        mixture.bind(agents=names, aggregator="boss", layers=layers),
        stage({**dict.fromkeys(names, 1.0), "boss": 1}).team,
    )
    assert who(episode) == [*names * (layers - 1), "boss"]
    texts = said(episode)
    for at in range(size, len(texts)):
        start = (at // size - 1) * size
        assert [text for text in texts if f"{text}\n" in last(episode, at)] == texts[start : start + size]


def test_copies_speak_for_themselves_in_every_layer_and_the_first_shares_solos_answer() -> None:
    one = stage({"actor": 0.7})
    with journal() as record:
        alone, episode = played(solo, one.team, record=record), played(mixture, one.team, record=record)
    assert len({placed.turn.key for placed in episode.turns}) == 7
    assert episode.turns[0].turn.key == alone.turns[0].turn.key


def test_an_agent_out_of_reach_is_shown_as_absent_and_a_layer_of_them_has_no_verdict() -> None:
    team = seats(ann=["a1", "a2"], bob=silent(after=1), boss=["4"])
    episode = played(mixture.bind(agents=["ann", "bob"], aggregator="boss"), team)
    assert last(episode, 4) == read("Answer of agent 1:\na2\n\nAnswer of agent 2:\n(no answer)")
    assert episode.answer == "4"
    episode = played(
        mixture.bind(agents=["ann", "bob"], aggregator="boss"), seats(ann=silent(1), bob=silent(1), boss=["4"])
    )
    assert who(episode) == ["ann", "bob"] * 2
    assert (episode.answer, episode.verdict.reward) == (None, None)


def test_a_trained_aggregator_shares_all_layers_and_a_trained_agent_the_layers_before_it() -> None:
    names = ["ann", "bob"]
    one = stage({**dict.fromkeys(names, 1.0), "boss": 1.0}, "boss")
    program = mixture.bind(agents=names, aggregator="boss")
    assert different(group(one, program, 0, rows=8)) == [1, 1, 1, 1, 8]
    one = stage({**dict.fromkeys(names, 1.0), "boss": 1.0}, "bob")
    assert different(group(one, program, 1, rows=8)) == [1, 1, 1, 8, 8]


def test_the_aggregator_is_who_answers() -> None:
    assert answering(mixture.bind(aggregator="boss")) == ["boss"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"agents": []}, r"mixture: agents is \[\]; give a list of members"),
        ({"agents": "actor"}, "mixture: agents is 'actor'; give a list of members"),
        ({"layers": 1}, "mixture: layers is 1; give 2 or more"),
        ({"layers": None}, "mixture: layers is None; give 2 or more"),
        ({"budget": -1}, "budget is -1"),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        played(mixture.bind(**options), stage({"actor": 1.0}).team)


def test_copies_that_would_all_say_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match="mixture: actor at temperature 0 would give 3 times the same"):
        played(mixture, seats(0.0, actor=["4"]))
