"""Best of n: a member answers n times, a judge chooses one of the answers.

y_i ~ phi(. | q) for i = 1 … n; the judge picks i ~ psi(. | q, y_1 … y_n), one call, or gives each a mark
s_i ~ psi(. | q, y_i), n calls, and the highest wins. Source: best-of-n with a verifier (Cobbe et al., 2021, arXiv
2110.14168), here with a prompted model in the verifier's place. The answers are the draws that `vote` counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from pilotfish.task import Task
from pilotfish.topology.agents import check_draws, listed
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.share import shared
from pilotfish.topology.solo import SOLVE

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

Judging = Literal["pick", "score"]
"""How a judge chooses: it reads all answers at once and names one, or reads each alone and gives it a mark."""
HIGHEST = 10.0

PICK = Prompt(
    user="Problem: {question}\n\n{answers}\n\nOne of these answers is to be handed in. Check them and say briefly "
    "where they go wrong. End with one line: Best: and the number of the agent whose answer is most likely right."
)
SCORE = Prompt(
    user="Problem: {question}\n\nAnswer:\n{answer}\n\nCheck this answer and say briefly where it goes wrong. End with "
    "one line: Score: and a number from 0 (surely wrong) to 10 (surely right)."
)
PROMPTS = Prompts(solve=SOLVE, pick=PICK, score=SCORE)

BEST = re.compile(r"\bbest\b[^\w\n]*(?:agent|answer)?[^\w\n]*(\d+)", re.IGNORECASE)
MARK = re.compile(r"\bscore\b[\s:=*_]*(\d+(?:\.\d+)?)", re.IGNORECASE)


@topology
async def best_of(
    task: Task,
    room: Room,
    *,
    member: str = "actor",
    samples: int = 5,
    judge: str | None = None,
    judging: Judging = "pick",
    budget: int | None = 1024,
    prompts: Prompts = PROMPTS,
) -> Turn:
    """`samples` answers of `member`, of which the judge's choice is the team's.

    Of equal marks the first wins; a judge whose choice cannot be read leaves the first answer.

    Options:
        samples: n.
        judge: who chooses; the member itself when not given.
        judging: `pick`, one call, or `score`, n calls.
        budget: most tokens of an answer in the judge's prompt; a longer one is cut in its middle, with a mark.
    """
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"best_of: samples is {samples!r}; give 1 or more")
    if judging not in get_args(Judging):
        raise ValueError(f"best_of: judging is {judging!r}; it is one of: {', '.join(get_args(Judging))}")
    check_draws("best_of", room, member, samples)
    chat = prompts.solve(task)
    answers = await room.gather(*(room.ask(member, chat, draw=draw) for draw in range(samples)))
    if judging == "pick":
        said = await room.ask(judge or member, prompts.pick(task, answers=listed(answers, budget)))
        return answers[_picked(said.text, samples)]
    chats = [prompts.score(task, answer=shared(answer, "full", budget)) for answer in answers]
    marks = await room.gather(*(room.ask(judge or member, chat) for chat in chats))
    return answers[_highest([mark.text for mark in marks])]


def _picked(said: str, of: int) -> int:
    """The place of the answer that is named last; 0 where none is."""
    named = [int(number) - 1 for number in BEST.findall(said)]
    return next((place for place in reversed(named) if 0 <= place < of), 0)


def _highest(said: Sequence[str]) -> int:
    """The first place with the highest mark; one that cannot be read, or is above `HIGHEST`, is below all others."""
    marks = [[float(mark) for mark in MARK.findall(text)] for text in said]
    last = [found[-1] if found and found[-1] <= HIGHEST else -1.0 for found in marks]
    return last.index(max(last))
