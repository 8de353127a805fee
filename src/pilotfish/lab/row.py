"""A row of supervised fine-tuning data: a chat that ends with the words to learn, and what kind it is.

The prompts are those of the topologies: a member is trained on exactly the messages that it meets later.
"""

from __future__ import annotations

from typing import TypedDict

from pilotfish.task import Task
from pilotfish.team import Message, Messages
from pilotfish.topology.alone import THINK
from pilotfish.topology.critic import CRITICISE, REVISE
from pilotfish.topology.debate import DEBATE
from pilotfish.topology.hint import ADVISE, SOLVE_WITH_HINT
from pilotfish.topology.leader import LEAD
from pilotfish.topology.leader import REVISE as AGENT_REVISE
from pilotfish.topology.roles import SOLVE_IN_ROLE
from pilotfish.topology.solo import SOLVE

__all__ = [
    "ADVISE",
    "AGENT_REVISE",
    "CRITICISE",
    "DEBATE",
    "LEAD",
    "REVISE",
    "SOLVE",
    "SOLVE_IN_ROLE",
    "SOLVE_WITH_HINT",
    "THINK",
    "Row",
    "ask",
    "lab_task",
    "row",
]


class Row(TypedDict):
    """`messages` end with the assistant message that is learned; the rest is the prompt."""

    messages: Messages
    family: str
    kind: str


def row(family: str, kind: str, prompt: Messages, completion: str) -> Row:
    """Put the words to learn behind their prompt."""
    learned = Message(role="assistant", content=completion)
    return Row(messages=[*prompt, learned], family=family, kind=kind)


def ask(text: str) -> Messages:
    """A plain question, outside any topology."""
    return [Message(role="user", content=text)]


def lab_task(question: str, answer: str, instruction: str) -> Task:
    """A task as the topologies' prompts take it."""
    return Task(id="lab", question=question, answer=answer, instruction=instruction)
