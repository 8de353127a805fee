"""Leader: K frozen agents answer, the leader reads their answers and writes its own, the agents revise; T rounds.

A^0_k ~ phi_k(. | q); L^t ~ pi(. | q, A^t_1 … A^t_K); A^(t+1)_k ~ phi_k(. | q, A^t_k, L^t); the answer is L^(T-1).
The leader writes `<think>…</think><answer>…</answer>` and is never told which agent is right. Source: MLPO, section
"inference". How agents are named to the leader, and that it does not read its own earlier words, is left open there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from pilotfish.task import Task
from pilotfish.team import Messages
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.share import Share, shared
from pilotfish.topology.solo import SOLVE

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

Order = Literal["fixed", "member", "shuffled"]
"""Of the answers in the leader's prompt: as the agents are listed, by their names, or drawn for each task and set."""

LEAD = Prompt(
    user="Problem: {question}\n\n{answers}\n\nSome of these answers may be wrong. Check them and think the problem "
    "through inside <think> and </think>. Then give the result, and nothing else, inside <answer> and </answer>, and "
    "stop.",
)
REVISE = Prompt(
    user="Problem: {question}\n\nYour answer:\n{own}\n\nThe team leader's view:\n{leader}\n\n"
    "Reflect on both, mend what is wrong and answer again. {instruction}",
)
PROMPTS = Prompts(solve=SOLVE, lead=LEAD, revise=REVISE)


@topology(form="answer_tag")
async def leader(
    task: Task,
    room: Room,
    *,
    rounds: int = 1,
    leader: str = "leader",
    agents: Sequence[str] | None = None,
    share: Share = "full",
    order: Order = "fixed",
    budget: int | None = 1024,
    prompts: Prompts = PROMPTS,
) -> Turn:
    """`rounds` times: the agents answer or revise, the leader reads and answers.

    Options:
        rounds: T; K x T calls of agents and T of the leader.
        leader: who leads.
        agents: the team, in this order; all other members when not given. A name may stand several times: each is a
            copy with answers of its own (at a temperature above 0).
        share: what the leader reads of an answer.
        order: of the answers in its prompt.
        budget: most tokens of one answer in a prompt; a longer one is cut in its middle, with a mark.
    """
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"leader: rounds is {rounds!r}; give 1 or more")
    team = _team(room, leader, agents)
    turns = await room.gather(*(_solve(room, agent, copy, prompts.solve(task)) for agent, copy in team))
    latest, view = turns, turns[0]
    for number in range(rounds):
        if number:
            chats = [_revision(task, prompts, turn, view, budget) for turn in latest]
            turns = await room.gather(*(_ask(room, team[at][0], chat) for at, chat in enumerate(chats)))
            latest = [new if new.answered else old for new, old in zip(turns, latest, strict=True)]
        if not any(turn.answered for turn in turns):
            return turns[0]  # nobody is there to lead: the episode has no verdict
        answers = _listed(_ordered(room, team, order, number), turns, share, budget)
        view = await room.ask(leader, prompts.lead(task, answers=answers), final=number == rounds - 1)
    return view


def _team(room: Room, leader: str, agents: Sequence[str] | None) -> list[tuple[str, int]]:
    """Each agent's name, and which of its copies it is."""
    if isinstance(agents, str):
        raise ValueError(f"leader: agents is {agents!r}; give a list, [{agents}]")
    names = [name for name in room.members if name != leader] if agents is None else list(agents)
    if not names:
        raise ValueError(f"leader: {leader} has no agents; name some in the team, or use the topology `alone`")
    return [(name, names[:at].count(name)) for at, name in enumerate(names)]


async def _solve(room: Room, agent: str, copy: int, chat: Messages) -> Turn:
    return await room.ask(agent, chat, optional=True, draw=copy)


async def _ask(room: Room, agent: str, chat: Messages) -> Turn:
    return await room.ask(agent, chat, optional=True)


def _revision(task: Task, prompts: Prompts, own: Turn, view: Turn, budget: int | None) -> Messages:
    return prompts.revise(task, own=shared(own, "full", budget), leader=shared(view, "full", budget))


def _ordered(room: Room, team: Sequence[tuple[str, int]], order: Order, number: int) -> list[int]:
    """In which order the agents' answers stand in the leader's prompt of a round."""
    if order not in get_args(Order):
        raise ValueError(f"leader: order is {order!r}; it is one of: {', '.join(get_args(Order))}")
    places = list(range(len(team)))
    if order == "member":
        return sorted(places, key=lambda at: team[at])
    if order == "shuffled":
        room.rng(f"order {number}").shuffle(places)
    return places


def _listed(places: Sequence[int], turns: Sequence[Turn], share: Share, budget: int | None) -> str:
    shown = (shared(turns[at], share, budget) for at in places)
    return "\n\n".join(f"Answer of agent {number}:\n{text}" for number, text in enumerate(shown, 1))
