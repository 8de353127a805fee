"""Debate: agents answer, read one another's answers and answer again; most of them, or a judge, decide.

y^0_i ~ phi_i(. | q); y^r_i ~ phi_i(. | chat of i, {y^(r-1)_j : j is read by i}); the answer that most of y^(R-1) came
to. N x R calls, one more with a judge. Sources: Du et al., 2023 (arXiv 2305.14325): three copies, one answer and one
round of debate, each in a chat of its own; Li et al., 2024 (arXiv 2406.11776) for the sparse ring; a deciding agent as
in ADAS (Hu et al., 2024, arXiv 2408.08435). Where AgentPO seats its trained member is not told; here it is one of the
agents, `agents: [actor, actor, collaborator]`, and of two answers that are equally frequent the first agent's stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from pilotfish.task import Task
from pilotfish.team import Message
from pilotfish.topology.agents import check_agents, first_answers, listed, next_answers
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.share import shared
from pilotfish.topology.solo import SOLVE
from pilotfish.verify.majority import agreeing, read_vote

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

Links = Literal["full", "sparse"]
"""Whom an agent reads: everyone else, or its two neighbours in a ring."""

DEBATE = Prompt(
    user="Other agents answered the same problem:\n\n{answers}\n\nCompare their reasoning with yours, settle where you "
    "differ, and answer again. {instruction}"
)
DECIDE = Prompt(
    user="Problem: {question}\n\n{answers}\n\nThese are the last answers of a debate. Weigh their reasoning and give "
    "the answer that is right. {instruction}"
)
PROMPTS = Prompts(solve=SOLVE, debate=DEBATE, decide=DECIDE)


@topology
async def debate(
    task: Task,
    room: Room,
    *,
    agents: Sequence[str] = ("actor", "actor", "actor"),
    rounds: int = 2,
    topology: Links = "full",
    judge: str | None = None,
    budget: int | None = 1024,
    prompts: Prompts = PROMPTS,
) -> Turn:
    """A round in which everyone answers alone, and `rounds` - 1 in which everyone answers again.

    An agent that cannot be reached stands by what it said last.

    Options:
        agents: two or more; a name may stand several times, each a copy (at a temperature above 0).
        rounds: R; with 1 nobody reads anybody, and it is a vote.
        topology: who reads whom.
        judge: a member who reads the last answers and gives the team's; the majority when not given.
        budget: most tokens of another's answer in a prompt; a longer one is cut in its middle, with a mark.
    """
    names = check_agents("debate", room, agents)
    _check(names, rounds, prompts)
    reads = [_read(at, len(names), topology) for at in range(len(names))]
    chats = [prompts.solve(task)] * len(names)
    latest = await first_answers(room, names, chats[0])
    if not any(turn.answered for turn in latest):
        return latest[0]  # nobody is there to debate: the episode has no verdict
    for _ in range(1, rounds):
        heard = [prompts.debate(task, answers=listed(latest, budget, places)) for places in reads]
        chats = [[*chat, _own(turn), *new] for chat, turn, new in zip(chats, latest, heard, strict=True)]
        turns = await next_answers(room, names, chats)
        latest = [new if new.answered else old for new, old in zip(turns, latest, strict=True)]
    if judge is None:
        return _majority(task, latest)
    return await room.ask(judge, prompts.decide(task, answers=listed(latest, budget)), final=True)


def _check(names: Sequence[str], rounds: int, prompts: Prompts) -> None:
    if len(names) < 2:
        raise ValueError(f"debate: agents is {names!r}; give two or more, or use the topology `reflect`")
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"debate: rounds is {rounds!r}; give 1 or more")
    if prompts.debate.system:
        raise ValueError("debate: prompts.debate has a system text, in a chat that has begun; put it in prompts.solve")


def _read(at: int, of: int, links: Links) -> list[int]:
    """The places of those whom an agent reads, in order."""
    if links not in get_args(Links):
        raise ValueError(f"debate: topology is {links!r}; it is one of: {', '.join(get_args(Links))}")
    if links == "sparse":
        return sorted({(at - 1) % of, (at + 1) % of})
    return [other for other in range(of) if other != at]


def _own(turn: Turn) -> Message:
    """An agent's answer in its own chat, as it said it."""
    return Message(role="assistant", content=turn.text if turn.answered else shared(turn, "full", None))


def _majority(task: Task, turns: Sequence[Turn]) -> Turn:
    """The first turn with the most frequent answer; the first that spoke where none can be read."""
    said = [turn for turn in turns if turn.answered]
    groups = agreeing([read_vote(task, turn.text) for turn in said], task.verifier)
    return said[groups[0][0] if groups else 0]
