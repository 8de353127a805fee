"""Roles: the collaborator says in which role the problem is best solved, the actor answers in that role.

r ~ pi(. | q); y ~ phi(. | q, r). Two calls. Source: ADAS (Hu et al., 2024, arXiv 2408.08435), "dynamic assignment of
roles": a router picks one of a few experts by name, and an answer that names none gives the default. AgentPO trains the
router's seat and leaves open how it assigns; with `experts: null` the collaborator writes the role in its own words.
As the untrained baseline one model does both: `{name: roles, options: {collaborator: actor}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pilotfish.task import Task
from pilotfish.topology.base import topology
from pilotfish.topology.prompts import Prompt, Prompts

if TYPE_CHECKING:
    from pilotfish.episode.room import Room
    from pilotfish.episode.turn import Turn

EXPERTS = {
    "Math Professor": "You are a professor of mathematics. You know the theorems and justify each step you take.",
    "Grade School Teacher": "You are a grade school teacher. You go in small, plain steps and check the arithmetic.",
    "Math Enthusiast": "You are a math enthusiast. You know contest tricks and look at a problem from several sides.",
}
"""The three of ADAS for mathematics, with what the actor is told in the role of each."""
DEFAULT = "You are a helpful assistant."

PICK = Prompt(
    system="You lead a team of experts and decide who solves the user's problem. Do not solve it.",
    user="Problem: {question}\n\nExperts:\n{experts}\n\nWho is best suited? Reply with the name alone.",
)
WRITE = Prompt(
    system="You decide in which role another model is to solve the user's problem. Describe the expert it should be "
    "and what that expert pays attention to, in two or three sentences that begin with: You are. "
    "Do not solve the problem.",
    user="{question}",
)
SOLVE_IN_ROLE = Prompt(system="{role}", user="{question}\n{instruction}")
PROMPTS = Prompts(pick=PICK, write=WRITE, solve=SOLVE_IN_ROLE)


@topology
async def roles(
    task: Task,
    room: Room,
    *,
    experts: Mapping[str, str] | None = EXPERTS,
    collaborator: str = "collaborator",
    actor: str = "actor",
    prompts: Prompts = PROMPTS,
) -> Turn:
    """One role, one answer.

    Options:
        experts: whom the collaborator may pick, by name, and what the actor is then told; null to let it write that.
    """
    if experts is not None and not (isinstance(experts, Mapping) and experts and all(map(_told, experts.values()))):
        raise ValueError(f"roles: experts is {experts!r}; give names and what the actor is told, or null")
    if experts is None:
        role = (await room.ask(collaborator, prompts.write(task))).text.strip()
    else:
        names = "\n".join(f"- {name}" for name in experts)
        role = _picked((await room.ask(collaborator, prompts.pick(task, experts=names))).text, experts)
    return await room.ask(actor, prompts.solve(task, role=role or DEFAULT), final=True)


def _told(text: object) -> bool:
    return isinstance(text, str)


def _picked(said: str, experts: Mapping[str, str]) -> str:
    """The role of the expert who is named first; empty where none is."""
    words = " ".join(said.split()).casefold()
    named = [(words.find(name.casefold()), -len(name), name) for name in experts if name.casefold() in words]
    return experts[min(named)[2]] if named else ""
