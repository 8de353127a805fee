"""Arms: what is compared. Each is a team and a topology; all are played on the same tasks.

Baselines without the trainee, the team before and after training, and the controls that tell a hint from a habit: an
empty hint, the best constant hint, another task's hint.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pilotfish.engine.base import Completion
from pilotfish.episode import Episode, Journal, Judge, Scopes, Team, play
from pilotfish.recipe import Recipe
from pilotfish.task import Task
from pilotfish.team import Messages, Sampling, Usage
from pilotfish.topology import Topology


@dataclass(frozen=True)
class Arm:
    """A team and a topology under a name."""

    name: str
    topology: Topology
    team: Team
    words: Callable[[Task], str] | None = None
    """When set, the trainee says this instead of being asked: a control."""

    def team_for(self, task: Task) -> Team:
        if self.words is None:
            return self.team
        engine = _Said(self.words(task))
        trainee = trainee_of(self.team)
        member = self.team.members[trainee]
        # At temperature 0 the key holds the engine's identity: the words, and no sampled hint, answer the call.
        sampling = member.sampling.model_copy(update={"temperature": 0.0})
        members = {**self.team.members, trainee: replace(member, trainee=False, sampling=sampling)}
        return Team(members, {**self.team.engines, trainee: engine})


class _Said:
    """An engine that says the same on every call. Nobody generated the words, so they cost nothing."""

    version = 0

    def __init__(self, words: str) -> None:
        self.words = words
        self.identity = "said:" + hashlib.sha256(words.encode()).hexdigest()[:16]

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

    async def play(self, arm: Arm) -> list[Episode]:
        """One episode a task, in the order of the tasks."""
        free = asyncio.Semaphore(self.concurrency)

        async def one(task: Task) -> Episode:
            async with free:
                scopes = Scopes(f"eval/{self.benchmark}/{task.id}/0", seed=self.seed)
                episode = await play(
                    task,
                    arm.topology,
                    arm.team_for(task),
                    self.journal,
                    scopes,
                    judge=self.judge,
                    arm=arm.name,
                    kept=self.kept,
                    ask_again=True,
                )
                self.on_episode()
                return episode

        return list(await asyncio.gather(*(one(task) for task in self.tasks)))


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
    """The topologies of `evaluate.against`, without the recipe's own and without those that seat the trainee or nobody
    of this team."""
    own = recipe.topology.load()
    others = [config.load() for config in recipe.evaluate.against]
    return [other for other in others if other.label != own.label and _seats_frozen(other, recipe)]


def _seats_frozen(topology: Topology, recipe: Recipe) -> bool:
    seat = {**topology.defaults(), **topology.options}.get("member")
    return seat is None or (seat in recipe.team and seat != recipe.trainee)


def words_of(episode: Episode) -> str:
    """The trainee's first words in an episode; empty when it said nothing."""
    said = episode.decisions()
    return said[0].turn.text if said else ""


def control(name: str, arm: Arm, words: Callable[[Task], str]) -> Arm:
    """The arm with the trainee's words replaced."""
    return replace(arm, name=name, words=words)


def another_tasks_words(episodes: Sequence[Episode], tasks: Sequence[Task]) -> Callable[[Task], str]:
    """Each task gets the words that were said on the next task with another question."""
    said: dict[str, str] = {}
    for at, task in enumerate(tasks):
        others = ((at + step) % len(tasks) for step in range(1, len(tasks)))
        other = next((o for o in others if tasks[o].question != task.question), at)
        said[task.id] = words_of(episodes[other])
    return lambda task: said[task.id]


async def best_constant(arm: Arm, holdout: Field, candidates: int) -> str:
    """The one hint that, given on every task, serves best on the holdout, of what the arm says there.

    Args:
        arm: the trained team.
        holdout: tasks to choose on; not those to measure on.
        candidates: how many different hints are tried.
    """
    said = list(dict.fromkeys(words_of(episode) for episode in await holdout.play(arm)))[:candidates]
    scores: dict[str, float] = {}
    for number, words in enumerate(said):
        episodes = await holdout.play(control(f"constant {number}", arm, _always(words)))
        rewards = [episode.verdict.reward for episode in episodes if episode.verdict.reward is not None]
        scores[words] = sum(rewards) / max(1, len(rewards))
    return max(scores, key=lambda words: scores[words], default="")


def _always(words: str) -> Callable[[Task], str]:
    return lambda task: words


def usage_table(episodes: Sequence[Episode]) -> Mapping[str, float]:
    """Mean tokens a task, by member; a call shared with another method is charged to each."""
    total: dict[str, int] = {}
    for episode in episodes:
        for member, usage in episode.usage().items():
            total[member] = total.get(member, 0) + usage.total
    return {member: tokens / max(1, len(episodes)) for member, tokens in total.items()}
