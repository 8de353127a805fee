"""Arms: what is compared. Each is a team and a topology; all are played on the same tasks.

Baselines without the trainee, the team before and after training, and the controls that tell a hint from a habit: an
empty hint, the best constant hint, another task's hint.
"""

from __future__ import annotations

import asyncio
import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any, Literal

from pilotfish.engine.base import Completion
from pilotfish.episode import Episode, Journal, Judge, Scopes, Team, play
from pilotfish.episode.calls import PUT_IN
from pilotfish.processes import Processes
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.spending import arm_name
from pilotfish.spread import spread
from pilotfish.task import Task
from pilotfish.team import Messages, Sampling, Usage
from pilotfish.topology import Topology, alone, solo, vote
from pilotfish.topology.vote import ballot

Role = Literal["baseline", "untrained", "trained", "control"]
"""What an arm is there for."""


ANSWERING = ("member", "leader", "aggregator", "judge", "agents", "actor")
"""Options that name who answers; of several that are set, the first: a `judge` decides where `agents` debate."""
SEATS = {*ANSWERING, "members", "collaborator"}
"""Options that name members."""
CONTROLS = {"constant": "best constant words", "empty": "empty words", "shuffled": "another task's words"}
"""What the controls are called that put words into the trainee's mouth, by their name in a recipe."""


@dataclass(frozen=True)
class Arm:
    """A team and a topology under a name."""

    name: str
    topology: Topology
    team: Team
    role: Role = "baseline"
    words: Callable[[Task], str] | None = None
    """When set, the trainee says this instead of being asked: a control."""
    model: str = ""
    """The name in `evaluate.models` of the team's models; empty for the recipe's own team."""
    deployments: Mapping[str, str] = field(default_factory=dict)
    """Of members whose model is not the recipe's own: see `Scopes`."""
    own: bool = False
    """Whether the topology is the recipe's own, and not one to compare it with."""

    def team_for(self, task: Task) -> Team:
        if self.words is None:
            return self.team
        engine = Said(self.words(task))
        trainee = trainee_of(self.team)
        member = self.team.members[trainee]
        # At temperature 0 the key holds the engine's identity: the words, and no sampled hint, answer the call.
        sampling = member.sampling.model_copy(update={"temperature": 0.0})
        members = {**self.team.members, trainee: replace(member, trainee=False, sampling=sampling)}
        return Team(members, {**self.team.engines, trainee: engine})


class Said:
    """An engine that says the same on every call. Nobody generated the words, so they cost nothing.

    Args:
        words: what it says.
        version: of the weights in whose place it speaks.
    """

    def __init__(self, words: str, version: int = 0) -> None:
        self.words = words
        self.version = version
        self.identity = PUT_IN + hashlib.sha256(words.encode()).hexdigest()[:16]

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        return Completion(self.words, "stop", Usage())

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Field:
    """What arms are played on and with: tasks of one benchmark, the record, the judge."""

    benchmark: str
    tasks: Sequence[Task]
    journal: Journal
    judge: Judge
    seed: int = 0
    kept: Journal | None = None
    concurrency: int = 512
    on_episode: Callable[[], None] = lambda: None
    together: Processes = field(default_factory=Processes)
    """Those that play here: each its part of the tasks, with all samples, so that equal calls on a task meet in one."""

    @property
    def mine(self) -> Sequence[Task]:
        """The tasks that this process plays."""
        return self.tasks[self.together.part]

    async def play(self, arm: Arm) -> list[Episode]:
        """One episode a task, in the order of the tasks."""
        return (await self.sample(arm, 1))[0]

    async def sample(self, arm: Arm, samples: int) -> list[list[Episode]]:
        """So many episodes a task: for each sample, one a task in the order of the tasks. Played by all processes
        together, and the same in each."""

        async def one(job: tuple[Task, int]) -> Episode:
            task, number = job
            episode = await play(
                task,
                arm.topology,
                arm.team_for(task),
                self.journal,
                self.scopes(arm, task, number),
                judge=self.judge,
                arm=arm.name,
                kept=self.kept,
                ask_again=True,
            )
            self.on_episode()
            return episode

        mine = self.mine
        played = await spread([(task, number) for number in range(samples) for task in mine], one, self.concurrency)
        by_task = [played[at :: len(mine)] for at in range(len(mine))]
        whole = await asyncio.to_thread(self.together.whole, by_task)
        self.journal.look()  # what the others have written is found from here on
        return [[of_task[number] for of_task in whole] for number in range(samples)]

    def scopes(self, arm: Arm, task: Task, sample: int = 0) -> Scopes:
        """Who shares the answers of an episode: all methods, on one sample of a task."""
        scope = f"eval/{self.benchmark}/{task.id}/{sample}"
        return Scopes(scope, seed=self.seed, deployments=arm.deployments)


@dataclass(frozen=True)
class Played:
    """What an arm did on a benchmark."""

    arm: Arm
    samples: Sequence[Sequence[Episode]]
    """For each sample, one episode a task."""

    def without_engines(self) -> Played:
        """The same, once nobody is asked any more: engines hold weights."""
        members = self.arm.team.members
        return replace(self, arm=replace(self.arm, team=Team(members, dict.fromkeys(members, Said("")))))

    @property
    def first(self) -> Sequence[Episode]:
        """The first sample of each task."""
        return self.samples[0]

    @property
    def episodes(self) -> list[Episode]:
        return [episode for sample in self.samples for episode in sample]

    @property
    def by_task(self) -> list[list[Episode]]:
        """The samples of each task."""
        return [list(samples) for samples in zip(*self.samples, strict=True)]

    @property
    def rewards(self) -> list[list[float]]:
        """(tasks, samples); nan where there is no verdict."""
        return [[reward_of(episode) for episode in samples] for samples in self.by_task]


def reward_of(episode: Episode) -> float:
    """nan where there is no verdict."""
    return nan if episode.verdict.reward is None else episode.verdict.reward


def leading(arms: Sequence[Arm]) -> Arm | None:
    """The arm that is compared with all others and whose words the controls replace: the last trained one, or the last
    with the trainee as it was before; of these one in the recipe's own topology, where there is one."""
    for role in ("trained", "untrained"):
        if found := [arm for arm in arms if arm.role == role]:
            return next((arm for arm in reversed(found) if arm.own), found[-1])
    return None


def trainee_of(team: Team) -> str:
    """The trainee's name.

    Raises:
        ValueError: the team has none.
    """
    for name, member in team.members.items():
        if member.trainee:
            return name
    raise ValueError(f"no member of the team ({', '.join(team.members)}) is the trainee; give one `train`")


def baselines(recipe: Recipe) -> list[Topology]:
    """The topologies of `evaluate.against` that the trainee does not answer in."""
    return [other for other in _others(recipe) if recipe.trainee not in answering(other)]


def variants(recipe: Recipe) -> list[Topology]:
    """Further topologies to measure the trainee's weights in: those of `mix`, and those in which it gives the answer:
    alone, another way of leading, a vote over its own."""
    return [*recipe.topologies()[1:], *(other for other in _others(recipe) if recipe.trainee in answering(other))]


def answering(topology: Topology) -> list[str]:
    """Members who may give the answer, as far as options say so (`ANSWERING`), and those of a vote's plays."""
    options = {**topology.defaults(), **topology.options}
    if topology.function is vote.function:
        return list(dict.fromkeys(name for play in ballot(**options) for name in answering(play)))
    named = next((options[name] for name in ANSWERING if options.get(name)), ())
    names = [named] if isinstance(named, str) else named if isinstance(named, list | tuple) else ()
    return list(dict.fromkeys(names))


def titles(own: Topology, others: Sequence[Topology]) -> Callable[[Topology], str]:
    """What each topology is called in results: its name, or where several have that name, also how it differs from the
    recipe's own, or from the defaults where that is another one."""
    names = [topology.name for topology in (own, *others)]
    found = {own.label: own.name}
    for other in others:
        title = other.name if names.count(other.name) == 1 else f"{other.name}({_differences(other, own)})"
        found[other.label] = title if title not in found.values() else other.label
    return lambda topology: found[topology.label]


def _differences(topology: Topology, own: Topology) -> str:
    usual = {**own.defaults(), **own.options} if topology.name == own.name else topology.defaults()
    options = {**topology.defaults(), **topology.options}
    changed = {name: _short(value) for name, value in options.items() if _short(value) != _short(usual[name])}
    return ", ".join(value if ": " in value else f"{name}: {value}" for name, value in changed.items())


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_short(entry)}" for name, entry in value.items())
    return "+".join(map(_short, value)) if isinstance(value, list | tuple) else str(getattr(value, "digest", value))


def _others(recipe: Recipe) -> list[Topology]:
    """What is compared with the recipe's own topologies, without those whose answer nobody of this team gives."""
    own = [topology.label for topology in recipe.topologies()]
    others = [config.load() for config in recipe.evaluate.against]
    if recipe.evaluate.alone and recipe.trainee is not None:
        others.append(alone.bind(member=recipe.trainee))
    told_apart = {other.label: other for other in others if other.label not in own}
    for other in told_apart.values():
        _check_seats(other.name, other.options, recipe)
    answered = [other for other in told_apart.values() if set(answering(other)) <= set(recipe.team)]
    if left_out := [other.label for other in told_apart.values() if other not in answered and other != solo]:
        told = f"not compared with, since the team lacks who answers there: {', '.join(left_out)}"
        warnings.warn(told, stacklevel=1)  # from here, so that it is told once whoever asks
    return answered


def _check_seats(topology: str, options: Mapping[str, Any], recipe: Recipe) -> None:
    """Make sure that the members that a method's options name are there.

    Raises:
        RecipeError: one of them is not.
    """
    for option in SEATS & options.keys():
        named = options[option]
        for name in [named] if isinstance(named, str) else named or ():
            if name not in recipe.team:
                there = ", ".join(recipe.team)
                raise RecipeError(f"evaluate.against: {topology}: {option} names {name!r}; in the team are: {there}")
    if isinstance(options.get("options"), Mapping):
        _check_seats(topology, options["options"], recipe)


def words_of(episode: Episode) -> str:
    """The trainee's first words in an episode; empty when it said nothing."""
    said = episode.decisions()
    return said[0].turn.text if said else ""


def control(name: str, arm: Arm, words: Callable[[Task], str]) -> Arm:
    """The arm with the trainee's words replaced."""
    return replace(arm, name=name, words=words, role="control")


def another_tasks_words(episodes: Sequence[Episode], tasks: Sequence[Task]) -> Callable[[Task], str]:
    """Each task gets the words that were said on the next task with another question."""
    said: dict[str, str] = {}
    for at, task in enumerate(tasks):
        others = ((at + step) % len(tasks) for step in range(1, len(tasks)))
        other = next((o for o in others if tasks[o].question != task.question), at)
        said[task.id] = words_of(episodes[other])
    return lambda task: said[task.id]


async def best_constant(arm: Arm, holdout: Field, candidates: int) -> tuple[str, list[Played]]:
    """The one hint that, given on every task, serves best on the holdout, of what the arm says there.

    Args:
        arm: the trained team.
        holdout: tasks to choose on; not those to measure on.
        candidates: how many different hints are tried.

    Returns:
        The hint, and what was played to find it.
    """
    played = [Played(arm, await holdout.sample(arm, 1))]
    said = list(dict.fromkeys(words_of(episode) for episode in played[0].first))[:candidates]
    scores: dict[str, float] = {}
    for number, words in enumerate(said):
        constant = control(arm_name(arm.model, f"constant {number}"), arm, _always(words))
        played.append(Played(constant, await holdout.sample(constant, 1)))
        rewards = [episode.verdict.reward for episode in played[-1].first if episode.verdict.reward is not None]
        scores[words] = sum(rewards) / max(1, len(rewards))
    return max(scores, key=lambda words: scores[words], default=""), played


def _always(words: str) -> Callable[[Task], str]:
    return lambda task: words
