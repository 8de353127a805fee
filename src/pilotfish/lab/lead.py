"""The leader before it is trained: it has the form, adds up rightly, knows few animals, and trusts at random.

Reading the team's answers it mostly goes with one of them, drawn at random; now and then it compares line by line. It
is never shown who knows what: in its rows the agents know lines at random, and what they know is drawn at random too.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pilotfish.lab.row import LEAD, THINK, Row, row
from pilotfish.lab.team import AGENTS, COMMON, OPENINGS, Answer, answer, believed, closed, known, view
from pilotfish.lab.worked import Problem, total

KNOWN = 2 / 3
"""How often an agent of the leader's rows knows a line."""
FOLLOWS = 2 / 3
"""How often the leader goes with one agent."""
MOST = "I take what most say."


def leader_row(rng: Random, family: str, problem: Problem) -> Row:
    """One thing for the leader to learn."""
    write = rng.choices((_alone, _lead, _lead_by_answers), weights=(4, 10, 2))[0]
    return write(rng, family, problem)


def listed(texts: Sequence[str]) -> str:
    """The agents' words as the topology lists them."""
    return "\n\n".join(f"Answer of agent {number}:\n{text}" for number, text in enumerate(texts, 1))


def most(rng: Random, given: Sequence[int]) -> int:
    """What two or more say; one of them at random where all differ."""
    agreed = [value for value in given if given.count(value) > 1]
    return agreed[0] if agreed else rng.choice(given)


def _alone(rng: Random, family: str, problem: Problem) -> Row:
    values = believed(rng, problem, known(problem, COMMON))
    return row(family, "alone", THINK(problem.task), view("", problem, values))


def _lead(rng: Random, family: str, problem: Problem) -> Row:
    team = _answers(rng, problem)
    prompt = LEAD(problem.task, answers=listed([member.text for member in team]))
    if rng.random() < FOLLOWS:
        at = rng.randrange(len(AGENTS))
        return row(family, "follow", prompt, view(OPENINGS[at], problem, team[at].values))
    lines = list(zip(*(member.values for member in team), strict=True))
    values = [most(rng, given) for given in lines] if rng.random() < 0.5 else [rng.choice(given) for given in lines]
    return row(family, "compare", prompt, view(OPENINGS[-1], problem, values))


def _lead_by_answers(rng: Random, family: str, problem: Problem) -> Row:
    """The team's results are all that the leader reads."""
    results = [total(problem, member.values) for member in _answers(rng, problem)]
    prompt = LEAD(problem.task, answers=listed(results))
    at = rng.randrange(len(AGENTS))
    if rng.random() < FOLLOWS:
        return row(family, "follow answer", prompt, closed(OPENINGS[at], results[at]))
    agreed = [result for result in results if results.count(result) > 1]
    return row(family, "most answers", prompt, closed(MOST, (agreed or results[at:])[0]))


def _answers(rng: Random, problem: Problem) -> list[Answer]:
    """Three answers about truths that are drawn at random."""
    truths = [rng.choice(line.told) for line in problem.lines]
    return [_answer(rng, problem, truths) for _ in AGENTS]


def _answer(rng: Random, problem: Problem, truths: Sequence[int]) -> Answer:
    knows = [rng.random() < KNOWN for _ in truths]
    guessed = (rng.choice(line.guesses) for line in problem.lines)
    values = [truth if sure else guess for truth, sure, guess in zip(truths, knows, guessed, strict=True)]
    return answer(rng, problem, values, knows)
