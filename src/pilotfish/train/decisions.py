"""Which decisions of an episode are trained: those that a recipe names, or the `last` or `all` that a topology has.

    trained_decisions(recipe, recipe.train)      # ((0, 1),): of each of its topologies
    cautions(recipe, recipe.train, task)         # what a rehearsal finds wrong with them, before anything is spent

How many there are is counted in a rehearsal: the topology is played once, and everyone says filler. Words may lead to
more turns or fewer, so numbers stand whatever it counts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Rehearsed:
    """What the trainee does in an episode in which everyone says filler."""

    asked: Mapping[int, int]
    """How often it is asked for each decision: more than once on concurrent branches."""
    answers: bool
    """Whether its words are the team's answer."""

    @property
    def count(self) -> int:
        """Decisions that depend on one another."""
        return max(self.asked, default=-1) + 1


def trained_decisions(recipe: Recipe, config: TrainConfig) -> tuple[tuple[int, ...], ...]:
    """For each of a recipe's topologies, the decisions that a training trains. Numbers stand as they are.

    Raises:
        RecipeError: `last` or `all` of a topology that cannot be rehearsed or never asks the trainee; or rewards that
            are compared with silence, where only first decisions are trained.
    """
    found = tuple(_of(recipe, config, topology) for topology in recipe.topologies())
    if config.reward.counterfactual and not any(map(any, found)):
        raise RecipeError(
            f"reward.counterfactual is {config.reward.counterfactual:g}, and only an episode's first decision is "
            "trained, which stands on the same in all rows and is not compared; leave it out, or train later ones"
        )
    return found


def _of(recipe: Recipe, config: TrainConfig, topology: Topology) -> tuple[int, ...]:
    if config.numbers is not None:
        return config.numbers
    count = rehearsed(topology, recipe.members(training=True)).count
    if not count:
        raise RecipeError(_never_asked(recipe, config, topology.label))
    return tuple(range(count)) if config.decision == "all" else (count - 1,)


def cautions(recipe: Recipe, config: TrainConfig, task: Task = TASK) -> list[str]:
    """What stands against training the decisions that a recipe names, as far as filler tells: one line each.

    Args:
        recipe: whose topologies are rehearsed; one that does not get by with filler is passed by.
        config: its `train`.
        task: that they are rehearsed on.

    Raises:
        RecipeError: none of the topologies asks the trainee, or one asks it for a decision on concurrent branches.
    """
    members, found = recipe.members(training=True), list[str]()
    counts = list[int]()
    for topology, numbers in zip(recipe.topologies(), trained_decisions(recipe, config), strict=True):
        try:
            on_filler = {number: rehearsed(_played(config, topology, number), members, task) for number in numbers}
        except RecipeError:  # a topology may need more than filler, and only a real episode can tell
            counts.append(1)
            continue
        counts += [one.count for one in on_filler.values()]
        found += _against(recipe, config, topology, on_filler)
    if not any(counts):
        raise RecipeError(_never_asked(recipe, config, ", ".join(one.label for one in recipe.topologies())))
    return found


def _played(config: TrainConfig, topology: Topology, number: int) -> Topology:
    return topology.reaching(number) if config.horizon == "decision" else topology


def _against(
    recipe: Recipe, config: TrainConfig, topology: Topology, on_filler: Mapping[int, Rehearsed]
) -> Iterator[str]:
    for number, one in on_filler.items():
        if one.asked.get(number, 0) > 1:
            raise RecipeError(on_branches(topology, recipe.trainee or "", number, one.asked[number]))
        if number not in one.asked:
            yield (
                f"train.decision {number}: where everyone says filler, {topology.label} comes to {one.count} of "
                f"{recipe.trainee}, counted from 0, and its rows teach nothing; correct it, unless words lead to more"
            )
    if config.reward.leak and any(one.answers for one in on_filler.values()):
        yield (
            f"reward.leak is {config.reward.leak:g}, and in {topology.label} the words of {recipe.trainee} are the "
            "answer: it would be punished for being right; leave it out"
        )


def _never_asked(recipe: Recipe, config: TrainConfig, label: str) -> str:
    return (
        f"train.decision is {config.decision}, and {label} asks {recipe.trainee} for 0 decisions where everyone says "
        "filler; train a member that it asks, or correct the topology"
    )


def on_branches(topology: Topology, trainee: str, number: int, branches: int) -> str:
    """Why a decision that is asked several times at once cannot be trained."""
    return (
        f"{topology.label} asks {trainee} for decision {number} on {branches} concurrent branches, and a group needs "
        "one; train another decision (train.decision), or let other members speak on the other branches"
    )


def rehearsed(topology: Topology, members: Mapping[str, Member], task: Task = TASK) -> Rehearsed:
    """Play a topology with filler.

    Raises:
        RecipeError: it cannot be played on this task by this team.
    """
    room = Room(members, _Filler(), {}, context=task.context)

    async def play() -> Turn | str:
        return await enter(topology(task, room))

    background = Background()
    try:
        answer = background.run(play())
    except Exception as error:
        raise RecipeError(
            f"train.decision: the decisions of {topology.label} cannot be counted ({type(error).__name__}: {error}); "
            "mend the topology or the team, or name them by number"
        ) from error
    finally:
        background.close()
    said = [turn for turn in placed(room) if members[turn.turn.member].trainee]
    asked = Counter(turn.depth for turn in said)
    return Rehearsed(asked, any(answer in (turn.turn, turn.turn.text) for turn in said))


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
