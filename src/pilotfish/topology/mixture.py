"""Mixture of agents: layers of agents, each of whom reads all answers of the layer before; an aggregator ends it.

y^1_k ~ phi_k(. | q); y^l_k ~ phi_k(. | q, y^(l-1)_1 … y^(l-1)_K); the answer is psi(. | q, y^(L-1)_1 … y^(L-1)_K).
K x (L - 1) + 1 calls. Source: Wang et al., 2024 (arXiv 2406.04692): three layers, of which the aggregator is the last.
With two layers it asks as `leader` does for one round, without the leader's form; in further layers everyone reads
everyone, where `leader` shows each agent its own answer and the leader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.agents import check_agents, first_answers, listed, next_answers
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts
from pilotfish.topology.solo import SOLVE

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

AGGREGATE = Prompt(
    user="Problem: {question}\n\n{answers}\n\nSome of these answers may be wrong or incomplete. Weigh them, correct "
    "what is wrong and write one answer that is better than each of them. {instruction}"
)
PROMPTS = Prompts(solve=SOLVE, aggregate=AGGREGATE)


@topology
async def mixture(
    task: Task,
    room: Room,
    *,
    agents: Sequence[str] = ("actor", "actor", "actor"),
    aggregator: str = "actor",
    layers: int = 3,
    budget: int | None = 1024,
    prompts: Prompts = PROMPTS,
) -> Turn:
    """`layers` - 1 layers of the same agents, and the aggregator.

    Options:
        agents: of each layer; a name may stand several times, each a copy (at a temperature above 0).
        aggregator: who writes the team's answer.
        layers: L, the aggregator's among them.
        budget: most tokens of an answer in a prompt; a longer one is cut in its middle, with a mark.
    """
    names = check_agents("mixture", room, agents)
    if not isinstance(layers, int) or layers < 2:
        raise ValueError(f"mixture: layers is {layers!r}; give 2 or more: one of agents, and the aggregator's")
    turns = await first_answers(room, names, prompts.solve(task))
    for layer in range(2, layers + 1):
        if not any(turn.answered for turn in turns):
            return turns[0]  # nobody is there to be read: the episode has no verdict
        read = prompts.aggregate(task, answers=listed(turns, budget))
        if layer < layers:
            turns = await next_answers(room, names, [read] * len(names))
    return await room.ask(aggregator, read, final=True)
