"""Best of n: the draws are those of a vote, and a judge picks one or marks each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pilotfish.evaluate.arms import answering
from pilotfish.topology import best_of, solo, vote
from seated import asked, different, group, last, played, seats, who
from stage import journal, stage

QUESTION = "What is 2 + 2?"


def test_the_judge_reads_all_answers_and_its_pick_is_the_teams() -> None:
    team = seats(actor=["5", "\\boxed{4}"], boss=["The first adds wrongly.\nBest: 2"])
    episode = played(best_of.bind(samples=2, judge="boss"), team)
    assert who(episode) == ["actor", "actor", "boss"]
    assert [asked(episode, at) for at in (0, 1)] == [[("user", f"{QUESTION}\nBox it.")]] * 2
    assert asked(episode, 2) == [
        (
            "user",
            f"Problem: {QUESTION}\n\nAnswer of agent 1:\n5\n\nAnswer of agent 2:\n\\boxed{{4}}\n\nOne of these answers "
            "is to be handed in. Check them and say briefly where they go wrong. End with one line: Best: and the "
            "number of the agent whose answer is most likely right.",
        )
    ]
    assert (episode.answer, episode.verdict.reward) == ("\\boxed{4}", 1.0)
    assert not any(placed.final for placed in episode.turns)


def test_a_judge_that_scores_reads_each_answer_alone() -> None:
    team = seats(actor=["5", "\\boxed{4}"], boss=["Score: 2", "Score: 9"])
    episode = played(best_of.bind(samples=2, judge="boss", judging="score"), team)
    assert who(episode) == ["actor", "actor", "boss", "boss"]
    assert asked(episode, 3) == [
        (
            "user",
            f"Problem: {QUESTION}\n\nAnswer:\n\\boxed{{4}}\n\nCheck this answer and say briefly where it goes wrong. "
            "End with one line: Score: and a number from 0 (surely wrong) to 10 (surely right).",
        )
    ]
    assert episode.answer == "\\boxed{4}"


@pytest.mark.parametrize(("judging", "judged"), [("pick", 1), ("score", None)])
@pytest.mark.parametrize("samples", [1, 3, 8])
def test_the_answers_are_the_draws_of_a_vote_and_the_member_judges_where_nobody_is_named(
    samples: int, judging: str, judged: int | None
) -> None:
    one = stage({"actor": 1.0, "ann": 1.0})
    with journal() as record:
        alone = played(solo, one.team, record=record)
        votes = played(vote.bind(samples=samples), one.team, record=record)
        best = played(best_of.bind(samples=samples, judging=judging), one.team, record=record)
    assert who(best) == ["actor"] * (samples + (judged or samples))
    keys = [placed.turn.key for placed in best.turns]
    assert keys[:samples] == [placed.turn.key for placed in votes.turns]
    assert keys[0] == alone.turns[0].turn.key
    assert best.answer == alone.answer, "a choice that cannot be read leaves the first answer"


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("Best: 2", 1),
        ("**Best:** agent 3", 2),
        ("best = 3", 2),
        ("Best: the answer of agent 3", 0),
        ("Best: 1? No. Best: 3", 2),
        ("Best: 2\nBest: 7", 1),
        ("Best: 0", 0),
        ("Best: none of the 3", 0),
        ("Best:\n3", 0),
        ("3", 0),
        ("", 0),
    ],
)
def test_the_last_pick_that_can_be_read_counts(said: str, place: int) -> None:
    team = seats(actor=["a", "b", "c"], boss=[said])
    assert played(best_of.bind(samples=3, judge="boss"), team).answer == "abc"[place]


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (["Score: 3", "Score: 8", "Score: 7"], 1),
        (["Score: 3", "Score: 8", "Score: 8.0"], 1),
        (["Score: 3", "**Score:** 8/10", "score: 8.5"], 2),
        (["Score: 9, no, it forgets a case. Score: 2", "Score: 3", "Score: 1"], 1),
        (["good", "Score: 0", "Score: 0"], 1),
        (["Score: 100", "Score: 1", ""], 1),
        (["good", "", "bad"], 0),
    ],
)
def test_the_first_of_the_highest_marks_wins_and_one_that_cannot_be_read_is_the_lowest(
    said: Sequence[str], place: int
) -> None:
    team = seats(actor=["a", "b", "c"], boss=said)
    assert played(best_of.bind(samples=3, judge="boss", judging="score"), team).answer == "abc"[place]


def test_a_long_answer_is_cut_for_the_judge_and_not_for_the_team() -> None:
    words = " ".join(f"w{number}" for number in range(400))
    episode = played(best_of.bind(samples=2, judge="boss", budget=20), seats(actor=["5", words], boss=["Best: 2"]))
    assert "tokens left out …]" in last(episode, 2)
    assert episode.answer == words


def test_a_judge_in_training_reads_the_same_answers_in_every_row() -> None:
    one = stage({"actor": 1.0, "judge": 1.0}, "judge")
    assert different(group(one, best_of.bind(samples=3, judge="judge"), 0, rows=8)) == [1, 1, 1, 8]


def test_the_member_is_who_answers() -> None:
    assert answering(best_of.bind(member="ann", judge="boss")) == ["ann"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"samples": 0}, "best_of: samples is 0; give 1 or more"),
        ({"samples": "all"}, "best_of: samples is 'all'; give 1 or more"),
        ({"judging": "guess"}, "best_of: judging is 'guess'; it is one of: pick, score"),
        ({"budget": 0}, "budget is 0"),
    ],
)
def test_an_option_that_is_wrong_is_named(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        played(best_of.bind(**options), stage({"actor": 1.0}).team)


def test_draws_that_would_all_be_the_same_are_refused() -> None:
    with pytest.raises(ValueError, match="best_of: actor at temperature 0 would give 5 times the same"):
        played(best_of, seats(0.0, actor=["4"]))
    assert played(best_of.bind(samples=1), seats(0.0, actor=["4", "Best: 1"])).answer == "4"
