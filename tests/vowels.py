"""A topology for training tests: the team is right where the trainee's words begin with a vowel."""

from __future__ import annotations

from typing import Any

from pilotfish import topology
from pilotfish.topology.prompts import Prompt, Prompts

PROMPTS = Prompts(say=Prompt(user="{question}"))


@topology
async def vowels(task: Any, room: Any) -> str:
    """One ask; what it is worth is decided here, so no actor is needed."""
    said = await room.ask("collaborator", PROMPTS.say(task))
    return "yes" if said.text[:1] in set("aeiouAEIOU") else "no"


@topology
async def repeated(task: Any, room: Any) -> str:
    """The words count as an actor repeats them."""
    said = await room.ask("collaborator", PROMPTS.say(task))
    heard = await room.ask("actor", f"{task.question} SAID:{said.text}")
    return "yes" if heard.text.rpartition("SAID:")[2][:1] in set("aeiouAEIOU") else "no"


@topology
async def twice(task: Any, room: Any) -> str:
    """Two asks, of which the second counts."""
    first = await room.ask("collaborator", PROMPTS.say(task))
    said = await room.ask("collaborator", f"{task.question} Not {first.text}")
    return "yes" if said.text[:1] in set("aeiouAEIOU") else "no"
