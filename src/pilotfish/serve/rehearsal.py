"""A rehearsal: the team is played once before anybody is served, by members who say next to nothing.

A topology that asks for members whom the team lacks would otherwise fail with every request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pilotfish.engine.scripted import ScriptedEngine
from pilotfish.episode import Scopes, Team, play
from pilotfish.episode.room import TopologyError
from pilotfish.recipe import RecipeError
from pilotfish.serve.memory import Memory
from pilotfish.serve.offers import Offer
from pilotfish.task import Task
from pilotfish.verify.verdict import Verdict

TASK = Task("rehearsal", "What is 1 + 1?", "")


def rehearse(offer: Offer, told: Callable[[str], None]) -> None:
    """Play a topology with its members; no engine of theirs is asked.

    Args:
        offer: what is to be served.
        told: called where it fails in a way that may lie in the words of the rehearsal.

    Raises:
        RecipeError: the topology cannot be played with these members.
    """
    engines = {name: ScriptedEngine(lambda messages, sampling, seed: "2") for name in offer.team.members}
    team = Team(offer.team.members, engines)
    try:
        asyncio.run(play(TASK, offer.topology, team, Memory(), Scopes(TASK.id), judge=_unjudged))
    except TopologyError as error:
        raise RecipeError(f"topology {offer.topology.name} does not fit this team: {error}") from error
    except Exception as error:  # a topology of the user's own may raise anything
        told(f"note: topology {offer.topology.name} failed in a rehearsal, and may fail for clients: {error}")


async def _unjudged(task: Task, answer: str, form: str) -> Verdict:
    return Verdict(None, None, "a rehearsal is not judged")
