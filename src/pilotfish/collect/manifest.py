"""The manifest: what stored answers are answers to. Which tasks, whose prompts, which agents, which leader.

It stands in a run's `store.json`. A call's key does not hold the model behind an agent, so this is what tells the
answers of one model from those of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pilotfish import own
from pilotfish.episode.calls import digest
from pilotfish.recipe import MemberConfig, Recipe
from pilotfish.task import Task
from pilotfish.team import Sampling
from pilotfish.topology import Prompts, Topology
from pilotfish.topology.find import digest as text_of
from pilotfish.verifier import NAMES

FORMAT = 1
"""Version of the store's layout."""


class Agent(BaseModel):
    """Who answers: a frozen member, as far as its answers depend on it."""

    model_config = ConfigDict(frozen=True)

    model: str
    revision: str | None
    sampling: Sampling
    extra: dict[str, Any] = {}

    @classmethod
    def of(cls, member: MemberConfig) -> Agent:
        return cls(model=member.model, revision=member.revision, sampling=member.sampling, extra=member.extra)


class Leader(BaseModel):
    """Whose words shaped the answers of a round above 0."""

    model_config = ConfigDict(frozen=True)

    model: str
    """A hub name, or the folder of trained weights."""
    identity: str
    """Names these very weights."""
    sampling: Sampling = Sampling()
    """How it was asked."""
    rounds: tuple[int, ...] = ()
    """Rounds of answers that are whole."""

    @property
    def scope(self) -> str:
        """Where its words and the answers that they shaped live in the journal."""
        return f"shaped/{digest(self.identity, self.sampling.model_dump_json())[:12]}"


class Manifest(BaseModel):
    """What is in a store."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    topology: dict[str, str | None]
    """Its label without the number of rounds, a digest of its prompts, and one of the user's own file."""
    agents: dict[str, Agent]
    sets: int
    rounds: tuple[int, ...] = ()
    """Rounds that no leader has shaped and that are whole: 0, or none yet."""
    leaders: dict[str, Leader] = Field(default_factory=dict)
    """By scope."""
    shaped: str | None = None
    """Scope of the leader whose rounds are trained on: the last that was collected with."""
    tasks: dict[str, str]
    """Digest of what is asked and what is right, by id."""

    @classmethod
    def of(cls, recipe: Recipe, tasks: Sequence[Task]) -> Manifest:
        """What a recipe collects."""
        return cls(
            topology=_topology(recipe),
            agents=_agents(recipe),
            sets=recipe.collect.sets,
            tasks={task.id: question(task) for task in tasks},
        )

    def differences(self, recipe: Recipe) -> list[str]:
        """What of prompts and agents differs in a recipe; each names both."""
        found = [
            f"{_NAMES[part]} {self.topology.get(part)} was collected, the recipe's is {value}"
            for part, value in _topology(recipe).items()
            if value != self.topology.get(part)
        ]
        return found + other_agents(self.agents, _agents(recipe))


_NAMES = {"label": "topology", "prompts": "prompt version", "file": "topology file"}


def question(task: Task) -> str:
    """Digest of what a task asks and what is right."""
    return digest(task.question, task.instruction, task.answer, task.verifier, *_judged_by(task))[:16]


def _judged_by(task: Task) -> list[Any]:
    """What beside the verifier's name its verdicts depend on."""
    if task.judge is not None:
        return [task.judge.model_dump(), task.meta.get("rubric")]
    return [] if task.verifier in NAMES else [own.digest("verifier", task.verifier)]


def unbounded(topology: Topology) -> Topology:
    """A topology without its number of rounds, on which no call of an earlier round depends."""
    options = {name: value for name, value in topology.options.items() if name != "rounds"}
    return Topology(topology.name, topology.function, topology.form, options)


def _topology(recipe: Recipe) -> dict[str, str | None]:
    topology = recipe.topology.load()
    prompts = {**topology.defaults(), **topology.options}.get("prompts")
    digest = prompts.digest if isinstance(prompts, Prompts) else None
    return {"label": unbounded(topology).label, "prompts": digest, "file": text_of(recipe.topology.name)}


def _agents(recipe: Recipe) -> dict[str, Agent]:
    return {name: Agent.of(member) for name, member in recipe.team.items() if not member.train}


def other_tasks(had: Mapping[str, str], tasks: Sequence[Task]) -> list[str]:
    """Which tasks are not those that were collected, whose `question`s by id are in `had`."""
    found = []
    if missing := [task.id for task in tasks if task.id not in had]:
        found.append(f"{len(missing)} of {len(tasks)} tasks are not among them ({missing[0]!r} is the first)")
    if changed := [task.id for task in tasks if had.get(task.id, question(task)) != question(task)]:
        found.append(f"{len(changed)} tasks ask something else or have another gold ({changed[0]!r} is the first)")
    return found


def other_agents(had: Mapping[str, Agent], wanted: Mapping[str, Agent]) -> list[str]:
    """What tells agents that were collected from those of a recipe."""
    found = []
    for name in {**had, **wanted}:
        if name not in had or name not in wanted:
            found.append(f"agent {name} is {'not in the recipe' if name in had else 'not among the collected ones'}")
            continue
        before, now = had[name].model_dump(mode="json"), wanted[name].model_dump(mode="json")
        for part in (part for part in now if now[part] != before[part]):
            found.append(f"agent {name}: {part} {before[part]!r} was collected, the recipe's is {now[part]!r}")
    return found
