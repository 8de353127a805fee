"""Episodes that end at a decision, and decisions that stand on the words of an earlier leader."""

from __future__ import annotations

import asyncio

import pytest

from pilotfish.engine.base import Refused
from pilotfish.episode import Episode, Horizon, Journal, Scopes, Team, check_group, fork, play, replay
from pilotfish.topology import Topology, leader
from stage import TASK, Stage, journal, judge, run, stage

AGENTS = ("ann", "bob", "cy")
THREE = leader.bind(rounds=3)


def team() -> Stage:
    return stage({**dict.fromkeys(AGENTS, 0.7), "leader": 1.0}, "leader", order=3)


def counts(one: Stage) -> dict[str, int]:
    return {name: len(speaker.asked) for name, speaker in one.speakers.items()}


async def played(one: Stage, record: Journal, scopes: Scopes, until: Horizon | None, topology: Topology = THREE):
    return await play(TASK, topology, one.team, record, scopes, judge=judge, until=until)


async def group(one: Stage, record: Journal, decision: int, step: int = 0, size: int = 4) -> list[Episode]:
    """The rows of a group whose prefix an earlier leader has shaped."""
    scopes = Scopes(f"train/{step}", stored="stored/sum/0", shaped="shaped/x/sum/0", before=decision)
    until = Horizon(decision)
    plays = [
        play(TASK, THREE, one.team, record, scopes, judge=judge, salts=fork(decision, row), until=until)
        for row in range(size)
    ]
    rows = list(await asyncio.gather(*plays))
    check_group(rows, decision)
    return rows


async def collected(one: Stage, record: Journal, before: int) -> Episode:
    scopes = Scopes("collect", stored="stored/sum/0", shaped="shaped/x/sum/0", before=before)
    seats = Team(one.team.members, one.team.engines, earlier=one.speakers["leader"])
    until = Horizon(before, asked=False)
    return await play(TASK, THREE, seats, record, scopes, judge=judge, until=until)


def test_an_episode_ends_with_the_decision_whose_words_are_then_the_answer() -> None:
    one = team()
    with journal() as record:
        episode = run(played(one, record, Scopes("s"), Horizon(1)))
        assert counts(one) == {**dict.fromkeys(AGENTS, 2), "leader": 2}
        assert episode.answer == episode.decisions()[-1].turn.text
        again = run(replay(episode.id, TASK, THREE, one.team.members, record, Scopes("s"), until=Horizon(1)))
    assert again.answer == episode.answer


def test_an_episode_ends_before_the_decision_with_nothing_said() -> None:
    one = team()
    with journal() as record:
        episode = run(played(one, record, Scopes("s"), Horizon(0, asked=False)))
    assert counts(one) == {**dict.fromkeys(AGENTS, 1), "leader": 0}
    assert episode.answer == ""


def test_what_was_collected_for_an_earlier_leader_is_asked_of_nobody_in_training() -> None:
    one = team()
    with journal() as record:
        kept = run(collected(one, record, before=2))
        assert counts(one) == {**dict.fromkeys(AGENTS, 3), "leader": 2}
        for decision in (1, 2):
            one.speakers["leader"].version += 1  # the policy has learned since
            rows = run(group(one, record, decision, step=decision))
            read = rows[0].decisions(decision)[0].turn.messages[0]["content"]
            shaped = [
                place.turn.text for place in kept.turns if place.depth == decision and place.turn.member in AGENTS
            ]
            assert len(shaped) == 3
            assert all(text in read for text in shaped)
            assert len({row.answer for row in rows}) == 4
        assert counts(one) == {**dict.fromkeys(AGENTS, 3), "leader": 2 + 4 + 4}, "the rows' own words, no frozen call"


def test_a_decision_on_words_that_nobody_collected_is_refused_with_the_way_out() -> None:
    one = team()
    with journal() as record, pytest.raises(Refused, match=r"run `pilotfish collect`"):
        run(group(one, record, 1))


def test_the_first_round_is_shared_between_plain_and_shaped_sets() -> None:
    one = team()
    with journal() as record:
        run(played(one, record, Scopes("c", stored="stored/sum/0"), Horizon(0, asked=False)))
        run(collected(one, record, before=1))
    assert counts(one) == {**dict.fromkeys(AGENTS, 2), "leader": 1}


def test_answers_in_drawn_order_were_drawn_when_they_were_collected() -> None:
    one, shuffled = team(), leader.bind(rounds=3, order="shuffled")
    scopes = {"stored": "stored/sum/0", "shaped": "shaped/x/sum/0", "before": 1}
    seats = Team(one.team.members, one.team.engines, earlier=one.speakers["leader"])
    with journal() as record:
        for number in range(6):  # each training step draws anew for its own decision, and finds the earlier one's words
            until = Horizon(1, asked=bool(number))
            run(play(TASK, shuffled, seats, record, Scopes(f"g{number}", **scopes), judge=judge, until=until))
    asked = [messages[0]["content"] for messages in one.speakers["leader"].asked]
    assert len(asked) == 1 + 5
    assert len(set(asked[1:])) > 1


def test_an_absent_answer_of_a_stored_set_stands_in_training() -> None:
    one = stage({"flaky": 0.7, "bob": 0.7, "leader": 1.0}, "leader", outages=1.0)
    with journal() as record:
        run(played(one, record, Scopes("c", stored="stored/sum/0"), Horizon(0, asked=False), leader))
        for step in range(3):
            scopes = Scopes(f"train/{step}", stored="stored/sum/0")
            run(played(one, record, scopes, Horizon(0), leader))
    assert counts(one) == {"flaky": 1, "bob": 1, "leader": 3}
