"""Chain of thought, and a member that comments on its own answer: which calls, in which words, and when it ends."""

from __future__ import annotations

import pytest

from pilotfish import Task
from pilotfish.topology import cot, reflect, solo, vote
from pilotfish.topology.reflect import finds_it_right
from seated import TASK, asked, different, group, last, played, said, seats, who
from stage import journal, stage

QUESTION = "What is 2 + 2?"


def test_chain_of_thought_is_one_call_that_asks_for_steps() -> None:
    episode = played(cot, seats(actor=["2 and 2 make 4. \\boxed{4}"]))
    assert asked(episode, 0) == [
        (
            "user",
            f"{QUESTION}\n\nThink step by step: say what is given and what is asked, work it out one step at a time, "
            "and state the result only at the end. Box it.",
        )
    ]
    assert [placed.final for placed in episode.turns] == [True]
    assert episode.verdict.reward == 1.0


def test_a_vote_over_chain_of_thought_begins_with_its_answer() -> None:
    team = stage({"actor": 1.0}).team
    with journal() as record:
        single = played(cot, team, record=record)
        three = played(vote.bind(of="cot", samples=3), team, record=record)
    assert three.turns[0].turn.key == single.turns[0].turn.key
    assert len(set(said(three))) == 3


def test_the_member_reads_its_answer_then_its_comment_and_revises() -> None:
    team = seats(actor=["5", "2 + 2 is not 5. Verdict: wrong", "\\boxed{4}", "All holds. Verdict: right"])
    episode = played(reflect, team)
    assert [asked(episode, at) for at in range(4)] == [
        [("user", f"{QUESTION}\nBox it.")],
        [("user", _check("5"))],
        [
            (
                "user",
                f"Problem: {QUESTION}\n\nYour answer:\n5\n\nYour comment on it:\n2 + 2 is not 5. Verdict: wrong\n\n"
                "Mend what is wrong and answer again. Box it.",
            )
        ],
        [("user", _check("\\boxed{4}"))],
    ]
    assert (episode.answer, episode.verdict.reward) == ("\\boxed{4}", 1.0)


def _check(answer: str) -> str:
    return (
        f"Problem: {QUESTION}\n\nYour answer:\n{answer}\n\nGo through your answer step by step and name each error, or "
        "say that there is none. Do not answer again yet. End with one line: Verdict: right or Verdict: wrong."
    )


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_without_a_verdict_of_right_there_are_two_calls_a_round(rounds: int) -> None:
    episode = played(reflect.bind(rounds=rounds), stage({"ann": 1.0, "actor": 1.0}).team)
    assert who(episode) == ["actor"] * (1 + 2 * rounds)
    texts = said(episode)
    for number in range(rounds):
        answer, comment, revised = texts[2 * number : 2 * number + 3]
        assert f"Your answer:\n{answer}\n" in last(episode, 2 * number + 1)
        assert f"Your answer:\n{answer}\n\nYour comment on it:\n{comment}\n" in last(episode, 2 * number + 2)
        assert revised not in last(episode, 2 * number + 2)
    assert episode.answer == texts[-1]
    assert [placed.final for placed in episode.turns] == [False] * (2 * rounds) + [True]


def test_the_first_answer_is_solos() -> None:
    team = stage({"actor": 1.0}).team
    with journal() as record:
        alone, both = played(solo, team, record=record), played(reflect, team, record=record)
    assert both.turns[0].turn.key == alone.turns[0].turn.key


@pytest.mark.parametrize(
    ("feedback", "right"),
    [
        ("Verdict: right", True),
        ("Each step holds.\n\n**Verdict:** Right.", True),
        ("verdict - correct", True),
        ("Verdict: wrong", False),
        ("Verdict: incorrect", False),
        ("At first sight Verdict: right. But 2 + 2 is 4. Verdict: wrong", False),
        ("Verdict: wrong? No. Verdict: right", True),
        ("Verdict: not right", False),
        ("The answer is right.", False),
        ("", False),
    ],
)
def test_the_last_verdict_of_a_comment_counts(feedback: str, right: bool) -> None:
    assert finds_it_right(feedback) is right


@pytest.mark.parametrize("decision", [0, 1, 2])
def test_each_of_the_members_turns_can_be_trained(decision: int) -> None:
    one = stage({"actor": 1.0}, "actor")
    rows = group(one, reflect.bind(rounds=1), decision, rows=4)
    assert different(rows) == [1] * decision + [4] * (3 - decision)


@pytest.mark.parametrize("rounds", [0, "two"])
def test_rounds_that_are_none_are_refused(rounds: object) -> None:
    with pytest.raises(ValueError, match=f"reflect: rounds is {rounds!r}; give 1 or more"):
        played(reflect.bind(rounds=rounds), seats(actor=["4"]))


def test_prompts_may_be_replaced_and_braces_arrive_as_written() -> None:
    program = reflect.bind(member="ann", rounds=1, prompts={"check": {"system": "Be strict.", "user": "{answer}"}})
    task = Task("set", "Is {x} a set?", "4", instruction=TASK.instruction)
    episode = played(program, seats(ann=["{answer} of {x}", "Verdict: right"]), task)
    assert asked(episode, 0) == [("user", "Is {x} a set?\nBox it.")]
    assert asked(episode, 1) == [("system", "Be strict."), ("user", "{answer} of {x}")]
