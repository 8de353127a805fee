"""Each method helps where the literature says it does, and does not where it should not.

Members are coins: right with a known chance, and reading one another's answers with a known skill. A call's seed
follows from its key, so each figure is the same in every run.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import partial

import pytest

from pilotfish import Task
from pilotfish.engine.scripted import Reply
from pilotfish.team import Messages, Sampling
from pilotfish.topology import (
    Topology,
    best_of,
    cot,
    debate,
    evoagent,
    mixture,
    reflect,
    roles,
    solo,
    vote,
)
from seated import accuracy, seats

TASKS = [Task(f"t{n}", f"What is {n} + {n}?", str(2 * n)) for n in range(1, 241)]
CLEAR = 0.1
"""Three standard errors of an accuracy over so many tasks: a larger difference is there, a smaller one is not."""


def right(messages: Messages) -> str:
    """The right answer to the task that a chat is about."""
    found = re.search(r"What is (\d+) \+ \d+\?", "\n".join(message["content"] for message in messages))
    assert found
    return str(2 * int(found[1]))


def toss(chance: float, messages: Messages, dice: random.Random) -> str:
    """The right answer with a chance, else the one wrong answer that everybody gives."""
    answer = right(messages)
    return answer if dice.random() < chance else f"{answer}1"


def choose(skill: float, answers: list[str], messages: Messages, dice: random.Random) -> str:
    """Of several answers the right one, as often as the skill says; else any of them."""
    seen = right(messages) in answers and dice.random() < skill
    return right(messages) if seen else dice.choice(answers)


def answers_in(text: str) -> list[str]:
    """The numbers that stand on a line of their own: what was answered."""
    return re.findall(r"^\d+$", text, re.MULTILINE)


def solver(chance: float = 0.6, skill: float = 0.0) -> Reply:
    """Answers by a toss; where it reads answers, its own among them, it chooses one."""

    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        dice = random.Random(seed)
        own = [message["content"] for message in messages if message["role"] == "assistant"][-1:]
        read = answers_in(messages[-1]["content"]) + own
        return choose(skill, read, messages, dice) if read else toss(chance, messages, dice)

    return reply


def measured(program: Topology, **replies: Reply) -> float:
    return accuracy(program, partial(seats, 1.0, **replies), TASKS)


@pytest.mark.parametrize(("chance", "sign"), [(0.65, 1), (0.35, -1)])
def test_a_vote_helps_a_member_that_is_right_more_often_than_wrong_and_harms_another(chance: float, sign: int) -> None:
    alone, voting = (measured(program, actor=solver(chance)) for program in (solo, vote.bind(samples=9)))
    assert sign * (voting - alone) > CLEAR


def test_chain_of_thought_helps_a_member_that_reasons_better_than_it_guesses() -> None:
    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        return toss(0.8 if "step by step" in messages[-1]["content"] else 0.5, messages, random.Random(seed))

    assert measured(cot, actor=reply) > measured(solo, actor=reply) + CLEAR
    assert measured(cot, actor=solver()) == pytest.approx(measured(solo, actor=solver()), abs=CLEAR)


def reviewer(hits: float, alarms: float, revised: float = 0.6) -> Reply:
    """Solves at 0.6; calls a wrong answer of its own wrong at one rate, a right one at another."""

    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        dice, text = random.Random(seed), messages[-1]["content"]
        if "Verdict: right or" not in text:
            return toss(revised if "Your comment" in text else 0.6, messages, dice)
        fault = dice.random() < (alarms if answers_in(text) == [right(messages)] else hits)
        return "Verdict: wrong" if fault else "Verdict: right"

    return reply


def test_reflection_helps_a_member_that_finds_its_errors_and_not_one_whose_comments_are_noise() -> None:
    alone, program = measured(solo, actor=solver()), reflect.bind(rounds=1)
    assert measured(program, actor=reviewer(hits=0.9, alarms=0.1)) > alone + CLEAR
    assert measured(program, actor=reviewer(hits=0.5, alarms=0.5)) == pytest.approx(alone, abs=CLEAR)
    assert measured(program, actor=reviewer(hits=0.5, alarms=0.5, revised=0.3)) < alone - CLEAR


def test_a_debate_beats_a_vote_when_the_right_answer_convinces_and_not_when_any_does() -> None:
    three = measured(vote.bind(samples=3), actor=solver())
    assert measured(debate, actor=solver(skill=0.6)) > three + CLEAR
    assert measured(debate, actor=solver(skill=0.0)) <= three
    sparse = debate.bind(agents=["actor"] * 5, rounds=3, topology="sparse")
    assert measured(sparse, actor=solver(skill=0.6)) > measured(vote, actor=solver()) + CLEAR


def picker(skill: float) -> Reply:
    """Names one of the answers it reads."""

    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        answers = answers_in(messages[-1]["content"])
        chosen = choose(skill, answers, messages, random.Random(seed))
        return f"Best: {answers.index(chosen) + 1}"

    return reply


def marker(skill: float) -> Reply:
    """Marks an answer: high or low as it should be, as often as the skill says; else by a toss."""

    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        dice = random.Random(seed)
        good = answers_in(messages[-1]["content"]) == [right(messages)]
        return f"Score: {9 if (good if dice.random() < skill else dice.random() < 0.5) else 2}"

    return reply


@pytest.mark.parametrize(("judging", "judge"), [("pick", picker), ("score", marker)])
def test_best_of_n_beats_a_vote_with_a_judge_that_knows_and_is_solo_with_one_that_guesses(
    judging: str, judge: Callable[[float], Reply]
) -> None:
    program = best_of.bind(judge="judge", judging=judging)
    assert measured(program, actor=solver(), judge=judge(0.9)) > measured(vote, actor=solver()) + CLEAR
    assert measured(program, actor=solver(), judge=judge(0.0)) == pytest.approx(
        measured(solo, actor=solver()), abs=CLEAR
    )


def test_a_mixture_helps_when_those_who_read_tell_right_from_wrong_and_not_when_they_do_not() -> None:
    assert measured(mixture, actor=solver(skill=0.6)) > measured(vote.bind(samples=3), actor=solver()) + CLEAR
    assert measured(mixture, actor=solver(skill=0.0)) == pytest.approx(measured(solo, actor=solver()), abs=CLEAR)


def evolving(skill: float) -> Reply:
    """Describes and retains experts who are no better than itself; chooses between its answer and theirs."""
    plain = solver(skill=skill)

    def reply(messages: Messages, sampling: Sampling, seed: int) -> str:
        text = messages[-1]["content"]
        if "Design one new expert" in text:
            return "You are one more expert."
        return "Retain" if "Retain if both hold" in text else str(plain(messages, sampling, seed))

    return reply


def test_evoagent_helps_a_member_that_knows_a_better_answer_when_it_reads_one() -> None:
    alone = measured(solo, actor=solver())
    assert measured(evoagent, actor=evolving(skill=0.7)) > alone + CLEAR
    assert measured(evoagent, actor=evolving(skill=0.0)) == pytest.approx(alone, abs=CLEAR)


def actor_in_role(messages: Messages, sampling: Sampling, seed: int) -> str:
    """Better as a teacher than as anybody else."""
    taught = "grade school teacher" in messages[0]["content"]
    return toss(0.8 if taught else 0.6, messages, random.Random(seed))


def test_a_role_helps_where_it_suits_the_actor() -> None:
    alone = measured(solo, actor=actor_in_role)
    suited, unsuited = (
        measured(roles, collaborator=lambda messages, sampling, seed, name=name: name, actor=actor_in_role)
        for name in ("Grade School Teacher", "Math Professor")
    )
    assert suited > alone + CLEAR
    assert unsuited == pytest.approx(alone, abs=CLEAR)
