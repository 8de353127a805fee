"""Which decisions of an episode are trained: those that a recipe names, or the `last` or `all` that a topology has.

    trained_decisions(recipe, recipe.train)      # ((0, 1),): of each of its topologies

How many there are is counted in a rehearsal: the topology is played once on a made-up task, and everyone says filler.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pilotfish.background import Background
from pilotfish.engine.base import Completion
from pilotfish.episode import Scopes, Turn
from pilotfish.episode.calls import Call
from pilotfish.episode.room import Room, TopologyError, enter, placed
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.task import Task
from pilotfish.team import Member, Usage

if TYPE_CHECKING:
    from pilotfish.topology import Topology
    from pilotfish.train.profile import TrainConfig

TASK = Task("rehearsal", "What is 1 + 1?", "2")
MOST = 10_000
"""So many calls of one episode are taken for one that does not end on filler."""


def trained_decisions(recipe: Recipe, config: TrainConfig) -> tuple[tuple[int, ...], ...]:
    """For each of a recipe's topologies, the decisions that a training trains.

    Numbers stand as they are, but in a mix, where a topology is not trained for a decision that it does not have.

    Raises:
        RecipeError: a topology cannot be rehearsed, or has none of the decisions.
    """
    topologies = recipe.topologies()
    if config.numbers is not None and len(topologies) == 1:
        return (config.numbers,)
    return tuple(_among(recipe, config, topology) for topology in topologies)


def _among(recipe: Recipe, config: TrainConfig, topology: Topology) -> tuple[int, ...]:
    count = count_decisions(topology, recipe.members(training=True))
    numbers = config.numbers
    if numbers is None:
        numbers = tuple(range(count)) if config.decision == "all" else (count - 1,)
    found = tuple(number for number in numbers if 0 <= number < count)
    if not found:
        raise RecipeError(
            f"train.decision is {config.decision}, and {topology.label} asks {recipe.trainee} for {count} decisions; "
            "correct train.decision (they count from 0) or the topology"
        )
    return found


def count_decisions(topology: Topology, members: Mapping[str, Member]) -> int:
    """How many decisions of the trainee depend on one another in an episode.

    Raises:
        RecipeError: the topology cannot be played on a made-up task by this team.
    """
    room = Room(members, _Filler(), {})

    async def play() -> None:
        await enter(_played(topology, room))

    background = Background()
    try:
        background.run(play())
    except Exception as error:
        raise RecipeError(
            f"train.decision: the decisions of {topology.label} cannot be counted ({type(error).__name__}: {error}); "
            "mend the topology or the team, or name them by number"
        ) from error
    finally:
        background.close()
    return max((turn.depth + 1 for turn in placed(room) if members[turn.turn.member].trainee), default=0)


async def _played(topology: Topology, room: Room) -> None:
    await topology(TASK, room)


class _Filler:
    """Answers every call, never twice in the same words."""

    scopes = Scopes("rehearsal")

    def __init__(self) -> None:
        self._numbers = itertools.count()

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        number = next(self._numbers)
        if number == MOST:
            raise TopologyError(f"it does not end within {MOST:,} calls")
        said = Completion(f"{call.member.name} {number}", "stop", Usage())
        member, sampling = call.member.name, call.member.sampling
        return Turn("", "", member, 0, call.messages, sampling, "answered", said)
