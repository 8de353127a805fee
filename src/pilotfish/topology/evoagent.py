"""EvoAgent: in each iteration a new expert is described, checked and asked, and the answer is refined with its answer.

y_0 ~ phi(. | q); for i = 1 … I: e_i ~ phi(. | q, y_(i-1), e_1 … e_(i-1)) (crossover and mutation in one prompt),
proposed anew while a check discards it; a_i ~ phi(. | e_i, q); y_i ~ phi(. | q, y_(i-1), a_i). One member plays all
parts: 1 + 4 I calls at least, 1 + (2 P + 2) I at most with P proposals. Source: Yuan et al., 2025 (arXiv 2406.14228):
three iterations, one expert in each, at most five proposals, of which the last is taken whatever its check says. There
a proposal is repeated in the same words; here it is told what was discarded, so that it differs at temperature 0 too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.solo import SOLVE

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

DESCRIBE = Prompt(
    user="Problem: {question}\n\nCurrent answer:\n{answer}\n\nExperts so far:\n{experts}\n\n"
    "Design one new expert who can improve the current answer: combine what served in the experts so far with a skill "
    "that they lack. Describe it in two or three sentences that begin with: You are. Write nothing else."
)
CHECK = Prompt(
    user="Problem: {question}\n\nExperts so far:\n{experts}\n\nProposed expert:\n{expert}\n\n"
    "Would this expert help with the problem, and does it differ from the experts so far? "
    "Reply with one word: Retain if both hold, otherwise Discard."
)
ANSWER = Prompt(system="{expert}", user="{question}\n{instruction}")
REFINE = Prompt(
    user="Problem: {question}\n\nCurrent answer:\n{answer}\n\n{suggestions}\n\n"
    "An expert may be wrong: take over only what you have checked. Write the improved answer. {instruction}"
)
PROMPTS = Prompts(solve=SOLVE, describe=DESCRIBE, check=CHECK, answer=ANSWER, refine=REFINE)

WORD = re.compile(r"\b(retain|discard)", re.IGNORECASE)


@topology
async def evoagent(
    task: Task,
    room: Room,
    *,
    member: str = "actor",
    iterations: int = 3,
    population: int = 1,
    proposals: int = 5,
    prompts: Prompts = PROMPTS,
) -> Turn:
    """`member` answers, and `iterations` times invents `population` experts, answers as each of them, and refines.

    Options:
        iterations: I.
        population: experts in an iteration; they answer side by side, and all their answers are read at once.
        proposals: most descriptions of one expert; the last is taken whatever its check says.
    """
    _check(iterations=iterations, population=population, proposals=proposals)
    answer = await room.ask(member, prompts.solve(task), draw=0)
    experts: list[str] = []
    for number in range(1, iterations + 1):
        for _ in range(population):
            experts.append(await _expert(task, room, member, prompts, answer, experts, proposals))
        asked = (room.ask(member, prompts.answer(task, expert=expert)) for expert in experts[-population:])
        suggestions = _listed(await room.gather(*asked))
        refine = prompts.refine(task, answer=answer.text, suggestions=suggestions)
        answer = await room.ask(member, refine, final=number == iterations)
    return answer


async def _expert(
    task: Task, room: Room, member: str, prompts: Prompts, answer: Turn, experts: Sequence[str], proposals: int
) -> str:
    """A description of an expert that its check retains, or the last of so many."""
    expert = ""
    discarded: list[str] = []
    for _ in range(proposals):
        seen = _bulleted([*experts, *discarded])
        expert = (await room.ask(member, prompts.describe(task, answer=answer.text, experts=seen))).text.strip()
        verdict = await room.ask(member, prompts.check(task, experts=_bulleted(experts), expert=expert))
        if not _discards(verdict.text):
            break
        discarded.append(f"(discarded) {expert}")
    return expert


def _check(**options: int) -> None:
    for name, value in options.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"evoagent: {name} is {value!r}; give 1 or more")


def _discards(verdict: str) -> bool:
    """Whether the last word of a check is Discard; a check that says neither retains."""
    words = WORD.findall(verdict)
    return bool(words) and words[-1].lower() == "discard"


def _bulleted(experts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in experts) or "(none)"


def _listed(turns: Sequence[Turn]) -> str:
    return "\n\n".join(f"Answer of expert {number}:\n{turn.text.strip()}" for number, turn in enumerate(turns, 1))
