"""What an evaluation has played so far, from the record alone: nobody is asked, and no weights need to be there.

    played = await recall(recipe, run, fields)     # by benchmark, the arms whose episodes are all recorded

An episode is found by its benchmark, task, sample, topology and the name of its arm, and played and judged again from
its own turns: one of other questions, prompts, sampling or models than the recipe's counts as not recorded. Whose
weights of the trainee spoke is taken from the arm's name.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.engine.base import Completion, Engine, Refused
from pilotfish.episode import Episode, Judge, ReplayMismatch, Room, Scopes, Turn, episode_id
from pilotfish.episode.calls import Call, difference, identity_in, name
from pilotfish.episode.hearing import heard
from pilotfish.episode.room import EpisodeOver, enter
from pilotfish.episode.turn import Position
from pilotfish.evaluate.accounts import SEARCH
from pilotfish.evaluate.arms import CONTROLS, Arm, Field, Played, control, leading
from pilotfish.evaluate.lineup import CONSTANTS, arms_of, by_name
from pilotfish.evaluate.seated import Sitting
from pilotfish.recipe import Recipe
from pilotfish.run import Run, RunError
from pilotfish.spending import arm_name
from pilotfish.task import Task
from pilotfish.team import Messages, Sampling


async def recall(recipe: Recipe, run: Run, fields: Sequence[Field]) -> dict[str, list[Played]]:
    """Every arm that is recorded whole, by benchmark, and what is recorded of the search for constant words. Of each
    other arm a warning says how much is there; the run's own weights that never spoke may never have been.

    Raises:
        RunError: no arm is recorded whole on any benchmark.
    """
    played: dict[str, list[Played]] = {name: [] for name in (SEARCH, *(on.benchmark for on in fields))}
    lacking: list[str] = []
    for model in recipe.teams():
        sitting = Sitting.of(run, model, recipe)
        arms = _arms(model, recipe, run, sitting)
        for on in fields:
            for arm in arms:
                found = await _find(on, arm, recipe.evaluate.samples, sitting)
                if whole := found.whole:
                    played[on.benchmark].append(whole)
                elif found.recorded or not _may_not_be(arm, recipe):
                    lacking.append(f"{on.benchmark}: {arm.name}: {found}")
        played[SEARCH] += _search(arms[-1], recipe, fields[0])
    if not any(played[on.benchmark] for on in fields):
        told = "; ".join(lacking) or "nothing of this evaluation is"
        raise RunError(f"{run.folder}: no method is recorded whole: {told}; play them without --recorded")
    for line in lacking:
        warnings.warn(f"{line}; left out", stacklevel=2)
    return played


def judges(recipe: Recipe, played: Mapping[str, Sequence[Played]]) -> dict[str, Engine]:
    """Stand-ins for the members that judge, under the names that their deployments have in the record."""
    episodes = (episode for arms in played.values() for one in arms for episode in one.episodes)
    heard = {turn.member: identity_in(turn.scope) for episode in episodes for turn in episode.verdict.turns}
    return {member: _Absent(heard.get(member)) for member in recipe.judges}


class _Absent:
    """Sits where an engine was: whatever it could say is recorded, or not known."""

    version = 0

    def __init__(self, identity: str | None = None) -> None:
        self.identity = identity

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        raise Refused("nobody is asked where only the record is measured")

    async def close(self) -> None:
        """Nothing is held."""


class _Seats:
    """Nobody sits anywhere; who sat there has a name."""

    def __init__(self, sitting: Sitting) -> None:
        self.sitting = sitting

    def engine(self, name: str) -> Engine:
        return _Absent(self.sitting.identity(name))

    def trained(self, best: Path, version: int) -> Engine:
        return _Absent()


def _arms(model: str, recipe: Recipe, run: Run, sitting: Sitting) -> list[Arm]:
    """The arms that one team may have played, its controls last."""
    arms = arms_of(model, recipe, run, _Seats(sitting), by_name)
    lead = leading(arms)
    for kind, title in CONTROLS.items():
        if lead and kind in recipe.evaluate.controls and (kind != "constant" or lead.role == "trained"):
            arms.append(control(arm_name(model, title), lead, lambda task: ""))
    return arms


def _may_not_be(arm: Arm, recipe: Recipe) -> bool:
    """Whether an arm has weights that the run may never have trained."""
    return arm.role == "trained" and not arm.name.endswith(tuple(f", {name}" for name in recipe.evaluate.weights))


def _search(arm: Arm, recipe: Recipe, on: Field) -> Iterator[Played]:
    """What is recorded of the search for constant words, of the team that an arm is of."""
    if "constant" in recipe.evaluate.controls:
        prefixes = [f"|{arm_name(model, '')}" for model in recipe.evaluate.models]
        own = f"|{arm_name(arm.model, '')}" if arm.model else None
        tried = on.journal.episodes(f"eval/{CONSTANTS}/%")
        yield Played(arm, [[e for e in tried if next((p for p in prefixes if p in e.id), None) == own]])


@dataclass(frozen=True)
class _Found:
    """What is recorded of an arm on a benchmark."""

    arm: Arm
    samples: list[list[Episode | None]]
    """For each sample, one a task; None where none is recorded that is the recipe's."""
    recorded: int
    """Finished episodes, those that are not the recipe's included."""

    @property
    def _weights(self) -> int:
        """How many different weights of the trainee have spoken."""
        episodes = [episode for sample in self.samples for episode in sample if episode]
        return len({one.turn.version for e in episodes for one in e.turns if one.turn.member == e.trainee})

    @property
    def whole(self) -> Played | None:
        """The arm as it was played; None where an episode lacks, or where it was trained on in between."""
        samples = [[episode for episode in sample if episode] for sample in self.samples]
        return Played(self.arm, samples) if self._good == self._all and self._weights <= 1 else None

    @property
    def _all(self) -> int:
        return sum(map(len, self.samples))

    @property
    def _good(self) -> int:
        return sum(episode is not None for sample in self.samples for episode in sample)

    def __str__(self) -> str:
        differ = self.recorded - self._good
        told = f", and {differ} of other questions, prompts, sampling or models" if differ else ""
        weights = f", of {self._weights} different weights" if self._weights > 1 else ""
        return f"{self._good} of {self._all} episodes are recorded{weights}{told}"


async def _find(on: Field, arm: Arm, samples: int, sitting: Sitting) -> _Found:
    recorded = 0

    async def one(task: Task, number: int) -> Episode | None:
        nonlocal recorded
        scopes = on.scopes(arm, task, number)
        episode = on.journal.episode(episode_id(arm.topology, scopes, arm=arm.name))
        recorded += episode is not None
        return await _again(episode, task, arm, scopes, on.judge, sitting) if episode else None

    found = [await asyncio.gather(*(one(task, number) for task in on.tasks)) for number in range(samples)]
    return _Found(arm, found, recorded)


async def _again(
    episode: Episode, task: Task, arm: Arm, scopes: Scopes, judge: Judge, sitting: Sitting
) -> Episode | None:
    """An episode played and judged again from its own turns, each under the key that the call has by this recipe; None
    where another call is made, or another model has spoken. One that has failed broke off where the failure was met,
    and is taken as it is."""
    if not all(map(sitting.spoke, episode.asked)):
        return None
    if episode.answer is None:
        return episode
    calls = _Told(episode, scopes, sitting)
    members = arm.team_for(task).members
    room = Room(members, calls, {}, context=task.context)
    with suppress(EpisodeOver, ReplayMismatch):
        await enter(arm.topology(task, room))
    if calls.differs or calls.keys.keys() != {placed.position for placed in episode.turns}:
        return None
    turns = (replace(one, turn=replace(one.turn, key=calls.keys[one.position])) for one in episode.turns)
    try:
        if task.judge and episode.answer:
            verdict = await heard(task, episode.answer, arm.topology.form, members, _Judged(episode, scopes))
        else:
            verdict = await judge(task, episode.answer, arm.topology.form)
    except ReplayMismatch:
        return None
    return replace(episode, turns=tuple(turns), verdict=verdict)


class _Told:
    """Answers from the turns of one episode, by their place in it. What a call says is compared, and its key where it
    is known who sat there: it names a deployment of `evaluate.models` by a hash of weights that need not be there.
    """

    def __init__(self, episode: Episode, scopes: Scopes, sitting: Sitting) -> None:
        self.scopes = scopes
        self.sitting = sitting
        self.differs = False
        self.keys: dict[Position, str] = {}
        self._turns = {placed.position: placed.turn for placed in episode.turns}

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        turn = self._turns.get(call.position)
        if turn is None or not _asks(call, turn):
            self.differs = True
            raise ReplayMismatch(call.position, difference(call.position, turn, call))
        key, _ = name(call, self.scopes, turn.version, identity_in(turn.scope), counts)
        self.keys[call.position] = key
        self.differs |= not self.sitting.spoke(turn, key)
        return turn


class _Judged:
    """Answers from the turns of one episode's verdict."""

    def __init__(self, episode: Episode, scopes: Scopes) -> None:
        self.scopes = scopes
        self._turns = episode.verdict.turns

    async def answer(self, call: Call, counts: dict[str, int]) -> Turn:
        for turn in self._turns:
            if _asks(call, turn):
                return turn
        raise ReplayMismatch(call.position, "its judge was asked something else")


def _asks(call: Call, turn: Turn) -> bool:
    """Whether a call asks what a turn was asked."""
    return (turn.member, turn.messages, turn.sampling) == (call.member.name, call.messages, call.member.sampling)
