"""EvoAgent: an expert is described, checked and asked, and the answer is refined; iteration by iteration."""

from __future__ import annotations

import pytest

from pilotfish.engine.scripted import Reply
from pilotfish.team import Messages, Sampling
from pilotfish.topology import evoagent, solo
from seated import asked, different, group, last, played, said, seats, who
from stage import journal, stage

QUESTION = "What is 2 + 2?"


def describe(answer: str, experts: str) -> str:
    return (
        f"Problem: {QUESTION}\n\nCurrent answer:\n{answer}\n\nExperts so far:\n{experts}\n\nDesign one new expert who "
        "can improve the current answer: combine what served in the experts so far with a skill that they lack. "
        "Describe it in two or three sentences that begin with: You are. Write nothing else."
    )


def check(experts: str, expert: str) -> str:
    return (
        f"Problem: {QUESTION}\n\nExperts so far:\n{experts}\n\nProposed expert:\n{expert}\n\nWould this expert help "
        "with the problem, and does it differ from the experts so far? Reply with one word: Retain if both hold, "
        "otherwise Discard."
    )


def refine(answer: str, suggestions: str) -> str:
    return (
        f"Problem: {QUESTION}\n\nCurrent answer:\n{answer}\n\n{suggestions}\n\nAn expert may be wrong: take over only "
        "what you have checked. Write the improved answer. Box it."
    )


def test_who_is_told_what_in_two_iterations_with_one_proposal_discarded() -> None:
    script = ["5", "You are Ann.", "Retain", "3", "6"]
    script += ["You are Ann, too.", "Discard", "You are Bob.", "Retain", "4", "\\boxed{4}"]
    episode = played(evoagent.bind(iterations=2), seats(actor=script))
    assert [asked(episode, at)[-1][1] for at in range(11) if at not in (3, 9)] == [
        f"{QUESTION}\nBox it.",
        describe("5", "(none)"),
        check("(none)", "You are Ann."),
        refine("5", "Answer of expert 1:\n3"),
        describe("6", "- You are Ann."),
        check("- You are Ann.", "You are Ann, too."),
        describe("6", "- You are Ann.\n- (discarded) You are Ann, too."),
        check("- You are Ann.", "You are Bob."),
        refine("6", "Answer of expert 1:\n4"),
    ]
    experts = [asked(episode, at) for at in range(11) if len(asked(episode, at)) == 2]
    assert experts == [[("system", f"You are {name}."), ("user", f"{QUESTION}\nBox it.")] for name in ("Ann", "Bob")]
    assert episode.answer == "\\boxed{4}"
    assert [placed.final for placed in episode.turns] == [False] * 10 + [True]


def saying(verdict: str) -> Reply:
    """Numbers its answers, and checks with one verdict."""
    numbers = iter(range(1000))

    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        return verdict if "Retain if both hold" in messages[-1]["content"] else f"answer {next(numbers)}"

    return reply


@pytest.mark.parametrize(
    ("verdict", "options", "calls"),
    [
        ("Retain", {}, 13),
        ("Discard", {}, 37),
        ("Let me see.", {}, 13),
        ("It does not differ. **Discard**", {"iterations": 1, "proposals": 2}, 7),
        ("At first I would discard it. Retained.", {"iterations": 1}, 5),
        ("Retain", {"iterations": 2, "population": 3}, 1 + 2 * (3 * 2 + 3 + 1)),
    ],
)
def test_an_iteration_costs_four_calls_and_two_more_for_each_proposal_discarded(
    verdict: str, options: dict[str, int], calls: int
) -> None:
    episode = played(evoagent.bind(**options), seats(ann=["x"], actor=saying(verdict)))
    assert who(episode) == ["actor"] * calls


def test_the_last_proposal_is_taken_though_it_was_discarded() -> None:
    episode = played(evoagent.bind(iterations=1, proposals=2), seats(actor=saying("Discard")))
    texts = said(episode)
    assert asked(episode, 5)[0] == ("system", texts[3])


def test_discarded_proposals_differ_at_temperature_0_too() -> None:
    words = ["You", "are", "one", "more."]

    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        text = messages[-1]["content"]
        if "Retain if both hold" in text:
            return "Discard"
        return " ".join(words[: 1 + text.count("(discarded)")]) if "Design one new expert" in text else "4"

    episode = played(evoagent.bind(iterations=1, proposals=3), seats(0.0, actor=reply))
    assert [said(episode)[at] for at in (1, 3, 5)] == ["You", "You are", "You are one"]


def test_a_population_answers_side_by_side_and_all_its_answers_are_refined_at_once() -> None:
    script = ["5", "You are Ann.", "Retain", "You are Bob.", "Retain", "3", "4", "\\boxed{4}"]
    episode = played(evoagent.bind(iterations=1, population=2), seats(actor=script))
    assert last(episode, 3) == describe("5", "- You are Ann.")
    assert [placed.position for placed in episode.turns][5:] == [(5, 0, 0), (5, 1, 0), (6,)]
    assert last(episode, 7) == refine("5", "Answer of expert 1:\n3\n\nAnswer of expert 2:\n4")


def test_the_first_answer_is_solos() -> None:
    team = stage({"actor": 1.0}).team
    with journal() as record:
        alone, evolved = played(solo, team, record=record), played(evoagent, team, record=record)
    assert evolved.turns[0].turn.key == alone.turns[0].turn.key


def test_a_turn_of_the_member_can_be_trained() -> None:
    one = stage({"actor": 1.0}, "actor")
    assert different(group(one, evoagent.bind(iterations=1), 1, rows=4)) == [1, 4, 4, 4, 4]


@pytest.mark.parametrize("option", ["iterations", "population", "proposals"])
def test_numbers_below_one_are_refused_by_name(option: str) -> None:
    with pytest.raises(ValueError, match=f"evoagent: {option} is 0; give 1 or more"):
        played(evoagent.bind(**{option: 0}), seats(actor=["4"]))
