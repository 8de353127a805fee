"""Debate: who reads whose words in which chat, who decides, and what the rows of a trained seat share."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pilotfish.evaluate.arms import answering
from pilotfish.topology import debate, solo, vote
from seated import TASK, asked, different, group, last, played, said, seats, silent, who
from stage import Stage, journal, stage

QUESTION = "What is 2 + 2?\nBox it."
AGENTS = ("ann", "bob", "cy")


def turn(answers: str) -> str:
    return (
        f"Other agents answered the same problem:\n\n{answers}\n\nCompare their reasoning with yours, settle where you "
        "differ, and answer again. Box it."
    )


def debaters(size: int) -> tuple[Stage, list[str]]:
    names = [f"agent{number}" for number in range(size)]
    return stage(dict.fromkeys(names, 1.0), order=size), names


def test_each_agent_reads_the_others_answers_in_one_turn_of_its_own_chat() -> None:
    team = seats(ann=["a0", "a1", "\\boxed{4}"], bob=["b0", "b1", "4"], cy=["c0", "c1", "5"])
    episode = played(debate.bind(agents=list(AGENTS), rounds=3), team)
    assert who(episode) == [*AGENTS] * 3
    assert [asked(episode, at) for at in range(3)] == [[("user", QUESTION)]] * 3
    assert asked(episode, 3) == [
        ("user", QUESTION),
        ("assistant", "a0"),
        ("user", turn("Answer of agent 2:\nb0\n\nAnswer of agent 3:\nc0")),
    ]
    assert asked(episode, 7) == [
        ("user", QUESTION),
        ("assistant", "b0"),
        ("user", turn("Answer of agent 1:\na0\n\nAnswer of agent 3:\nc0")),
        ("assistant", "b1"),
        ("user", turn("Answer of agent 1:\na1\n\nAnswer of agent 3:\nc1")),
    ]
    assert (episode.answer, episode.verdict.reward) == ("\\boxed{4}", 1.0)
    assert not any(placed.final for placed in episode.turns), "the majority is known when all have spoken"


@pytest.mark.parametrize(("size", "rounds"), [(2, 1), (2, 2), (3, 2), (5, 5)])
def test_agents_times_rounds_is_the_number_of_calls_and_all_read_all_others(size: int, rounds: int) -> None:
    one, names = debaters(size)
    episode = played(debate.bind(agents=names, rounds=rounds), one.team)
    assert who(episode) == names * rounds
    _check_readers(episode, size, [[other for other in range(size) if other != at] for at in range(size)])


@pytest.mark.parametrize(("size", "neighbours"), [(2, [[1], [0]]), (5, [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]])])
def test_in_a_sparse_debate_an_agent_reads_its_two_neighbours(size: int, neighbours: list[list[int]]) -> None:
    one, names = debaters(size)
    episode = played(debate.bind(agents=names, rounds=3, topology="sparse"), one.team)
    assert who(episode) == names * 3
    _check_readers(episode, size, neighbours)


def _check_readers(episode: Any, size: int, reads: list[list[int]]) -> None:
    texts = said(episode)
    for at in range(size, len(texts)):
        before = texts[at - at % size - size : at - at % size]
        read = [number for number, text in enumerate(before) if f"{text}\n" in last(episode, at)]
        assert read == reads[at % size]


def test_copies_of_an_agent_speak_for_themselves_and_the_first_answers_are_the_votes() -> None:
    one = stage({"actor": 0.7})
    with journal() as record:
        alone = played(solo, one.team, record=record)
        votes = played(vote.bind(samples=3), one.team, record=record)
        episode = played(debate, one.team, record=record)
    keys = [placed.turn.key for placed in episode.turns]
    assert who(episode) == ["actor"] * 6
    assert len(set(keys)) == 6
    assert keys[:3] == [placed.turn.key for placed in votes.turns]
    assert keys[0] == alone.turns[0].turn.key
    assert len(one.speakers["actor"].asked) == 6
    assert episode.usage()["actor"].total == 6 * alone.usage()["actor"].total, "charged for what it shares"


@pytest.mark.parametrize(
    ("finals", "answer"),
    [
        (("5", "\\boxed{4}", "The answer is 4."), "\\boxed{4}"),
        (("5", "4", "6"), "5"),
        (("", "5", "4"), "5"),
        (("<think>4", "<think>5", ""), "<think>4"),
    ],
)
def test_the_most_frequent_last_answer_wins_then_the_first_agents(finals: tuple[str, ...], answer: str) -> None:
    team = seats(**{name: ["6", final] for name, final in zip(AGENTS, finals, strict=True)})
    assert played(debate.bind(agents=list(AGENTS)), team).answer == answer


def test_a_judge_reads_the_last_answers_and_gives_the_teams() -> None:
    team = seats(ann=["a0", "5"], bob=["b0", "5"], boss=["\\boxed{4}"])
    episode = played(debate.bind(agents=["ann", "bob"], judge="boss"), team)
    assert who(episode) == ["ann", "bob", "ann", "bob", "boss"]
    assert asked(episode, 4) == [
        (
            "user",
            "Problem: What is 2 + 2?\n\nAnswer of agent 1:\n5\n\nAnswer of agent 2:\n5\n\nThese are the last answers "
            "of a debate. Weigh their reasoning and give the answer that is right. Box it.",
        )
    ]
    assert (episode.answer, episode.turns[4].final) == ("\\boxed{4}", True)


def test_an_agent_out_of_reach_stands_by_its_last_answer() -> None:
    team = seats(ann=["a0", "a1", "a2"], bob=silent(after=1), cy=silent())
    episode = played(debate.bind(agents=list(AGENTS), rounds=3), team)
    assert [placed.turn.outcome for placed in episode.turns].count("absent") == 5
    assert last(episode, 3) == turn("Answer of agent 2:\nhere\n\nAnswer of agent 3:\n(no answer)")
    assert last(episode, 6) == last(episode, 3)
    assert [content for role, content in asked(episode, 7) if role == "assistant"] == ["here", "here"]
    assert [content for role, content in asked(episode, 8) if role == "assistant"] == ["(no answer)", "(no answer)"]
    assert episode.answer == "a2"


def test_a_debate_that_nobody_comes_to_has_no_verdict() -> None:
    episode = played(debate.bind(agents=["ann", "bob"]), seats(ann=silent(), bob=silent()))
    assert len(episode.turns) == 2
    assert (episode.answer, episode.verdict.reward) == (None, None)


def test_a_long_answer_of_another_is_cut_and_ones_own_is_not() -> None:
    words = " ".join(f"w{number}" for number in range(400))
    team = seats(ann=[words, "4"], bob=["b0", "4"])
    episode = played(debate.bind(agents=["ann", "bob"], budget=20), team)
    assert "tokens left out …]" in last(episode, 3)
    assert asked(episode, 2)[1] == ("assistant", words)


# -- a trained seat


def test_a_trained_seat_shares_round_0_and_the_others_of_round_1() -> None:
    one = stage({"actor": 1.0, "collaborator": 1.0}, "collaborator", order=7)
    program = debate.bind(agents=["actor", "actor", "collaborator"], rounds=3)
    rows = group(one, program, 1, rows=8)
    assert different(rows) == [1, 1, 1, 1, 1, 8, 8, 8, 8]
    asked_of = {name: len(speaker.asked) for name, speaker in one.speakers.items()}
    assert asked_of == {"actor": 2 + 2 + 2 * 8, "collaborator": 1 + 8 + 8}
    for row in rows:
        texts = said(row)
        assert texts[5] in last(row, 6)
        assert texts[5] in last(row, 7)
        assert texts[3] in last(row, 8)


def test_its_first_answer_is_trained_with_the_others_first_answers_shared() -> None:
    one = stage({"actor": 1.0, "collaborator": 1.0}, "collaborator", order=3)
    rows = group(one, debate.bind(agents=["actor", "actor", "collaborator"]), 0, rows=8)
    assert different(rows) == [1, 1, 8, 8, 8, 8]


def test_a_judge_in_training_reads_one_debate() -> None:
    one = stage({"actor": 1.0, "judge": 1.0}, "judge")
    assert different(group(one, debate.bind(judge="judge"), 0, rows=8)) == [1] * 6 + [8]


def test_who_may_answer_is_an_agent_or_the_judge() -> None:
    assert answering(debate) == ["actor"]
    assert answering(debate.bind(agents=["actor", "actor", "collaborator"])) == ["actor", "collaborator"]
    assert answering(debate.bind(judge="boss")) == ["boss"]


# -- bad options


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"agents": ["ann"]}, r"debate: agents is \['ann'\]; give two or more"),
        ({"agents": []}, r"debate: agents is \[\]; give a list of members"),
        ({"agents": "ann"}, "debate: agents is 'ann'; give a list of members"),
        ({"agents": 3}, "debate: agents is 3; give a list of members"),
        ({"rounds": 0}, "debate: rounds is 0; give 1 or more"),
        ({"topology": "star"}, "debate: topology is 'star'; it is one of: full, sparse"),
        ({"budget": 0}, "budget is 0"),
        (
            {"prompts": {"debate": {"system": "Be fair."}}},
            r"prompts.debate has a system text.* put it in prompts.solve",
        ),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, Any], why: str) -> None:
    one = stage({"ann": 1.0, "bob": 1.0})
    with pytest.raises(ValueError, match=why):
        played(debate.bind(**{"agents": ["ann", "bob"], **options}), one.team)


def test_copies_that_would_all_say_the_same_are_refused_and_different_members_are_not() -> None:
    with pytest.raises(ValueError, match=r"actor at temperature 0 .* 3 times .* set team.actor.sampling.temperature"):
        played(debate, seats(0.0, actor=["4"]))
    team = seats(0.0, ann=["5", "4"], bob=["4", "4"])
    assert Counter(who(played(debate.bind(agents=["ann", "bob"]), team))) == {"ann": 2, "bob": 2}


def test_the_prompts_may_be_replaced() -> None:
    prompts = {"solve": {"system": "You debate.", "user": "{question}"}, "debate": {"user": "They say {answers}"}}
    team = seats(ann=["4", "4"], bob=["5", "5"])
    episode = played(debate.bind(agents=["ann", "bob"], prompts=prompts), team)
    assert asked(episode, 3) == [
        ("system", "You debate."),
        ("user", TASK.question),
        ("assistant", "5"),
        ("user", "They say Answer of agent 1:\n4"),
    ]
