"""The team of a leader: three agents that know different things, and how each answers and revises.

All know the animals of `COMMON`. Most other animals are known to two of the three, a few to one, none to nobody. In
sums agent 1 is sure of the left column, agent 2 of the right one, agent 3 of columns without a minus. Who does not
know a value guesses, and doubts a guess more often than what it knows. Each can be talked out of what it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pilotfish.lab.columns import LEFT, PLUS, RIGHT
from pilotfish.lab.row import AGENT_REVISE, SOLVE, Row, row
from pilotfish.lab.worked import Problem, solution, total, working

AGENTS = ("agent-1", "agent-2", "agent-3")
COMMON = frozenset({"dog", "cat", "cow", "horse", "sheep", "bird", "human"})
"""Animals whose legs all agents know, and the leader too."""
FIRST_SECOND = frozenset({"snake", "jellyfish", "chicken", "lion", "ant", "beetle", "spider", "crab"})
FIRST_THIRD = frozenset({"leech", "duck", "elephant", "tiger", "bee", "grasshopper", "cockroach", "lobster"})
SECOND_THIRD = frozenset({"sea slug", "giraffe", "deer", "butterfly", "wasp", "cricket", "scorpion", "shrimp"})
SKILLS = {
    "agent-1": COMMON | FIRST_SECOND | FIRST_THIRD | {"flatworm", "praying mantis", LEFT},
    "agent-2": COMMON | FIRST_SECOND | SECOND_THIRD | {"starfish", "insect", RIGHT},
    "agent-3": COMMON | FIRST_THIRD | SECOND_THIRD | {"woodlouse", "firefly", PLUS},
}
DOUBT = {True: 0.1, False: 0.5}
"""How often a line is hedged that its writer knows, and one that it does not know."""
TAKES_OVER = {True: 0.4, False: 0.6}
"""How often an agent takes over what the leader says of a line that it knows, and of one that it does not know: a
leader that is wrong does harm."""
OPENINGS = (*(f"I go with agent {number}." for number in range(1, len(AGENTS) + 1)), "I compare line by line.")
"""How the leader says whom it follows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An agent's answer: the value of each line, and its words."""

    values: tuple[int, ...]
    text: str


def known(problem: Problem, skills: frozenset[str]) -> list[bool]:
    """Which lines someone with these skills knows."""
    return [bool(line.skills & skills) for line in problem.lines]


def believed(rng: Random, problem: Problem, knows: Sequence[bool]) -> list[int]:
    """The truth of each line that is known, a guess of each other."""
    return [line.truth if sure else rng.choice(line.guesses) for line, sure in zip(problem.lines, knows, strict=True)]


def answer(rng: Random, problem: Problem, values: Sequence[int], knows: Sequence[bool]) -> Answer:
    """An answer with these values, hedged as one does who knows these lines."""
    hedged = [rng.random() < DOUBT[sure] for sure in knows]
    return Answer(tuple(values), solution(problem, values, hedged))


def view(opening: str, problem: Problem, values: Sequence[int]) -> str:
    """What the leader writes: whom it follows, its working, its result."""
    return closed(f"{opening} {working(problem, values)}".strip(), total(problem, values))


def closed(thoughts: str, result: str) -> str:
    """The leader's form."""
    return f"<think>{thoughts}</think>\n<answer>{result}</answer>"


def agent_row(rng: Random, agent: str, family: str, problem: Problem) -> Row:
    """One thing for an agent to learn: how it answers, or how it revises."""
    knows = known(problem, SKILLS[agent])
    own = answer(rng, problem, believed(rng, problem, knows), knows)
    if rng.random() < 0.6:
        return row(family, "solve", SOLVE(problem.task), own.text)
    return _revise(rng, family, problem, knows, own)


def _revise(rng: Random, family: str, problem: Problem, knows: Sequence[bool], own: Answer) -> Row:
    """It takes over some of what the leader says. Of lines that it does not know that is drawn at random, so that it
    learns to read, and no facts."""
    said = [
        line.truth if sure and rng.random() < 0.6 else rng.choice(line.told)
        for line, sure in zip(problem.lines, knows, strict=True)
    ]
    kept = [
        told if rng.random() < TAKES_OVER[sure] else mine
        for mine, told, sure in zip(own.values, said, knows, strict=True)
    ]
    prompt = AGENT_REVISE(problem.task, own=own.text, leader=view(rng.choice(OPENINGS), problem, said))
    return row(family, "revise", prompt, answer(rng, problem, kept, knows).text)
