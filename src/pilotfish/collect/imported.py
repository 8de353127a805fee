"""Reading stored answers from a file in place of asking the agents.

The same episodes are played as when collecting, with engines that answer from the file, so that the keys are made by
the same code. A file of other tasks, prompts, models or sampling is refused by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pilotfish.collect.exchange import Row, read
from pilotfish.collect.manifest import Agent, Leader, other_agents, other_tasks
from pilotfish.collect.sets import Collector, Prefix, Told, Unasked
from pilotfish.collect.store import Store
from pilotfish.engine.base import CallFailed, Completion, Engine, Refused
from pilotfish.episode import Team
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.task import Task
from pilotfish.team import Messages, Sampling
from pilotfish.workshop import Workshop


def import_in(
    recipe: Recipe,
    workshop: Workshop,
    store: Store,
    tasks: Sequence[Task],
    file: Path,
    rounds: tuple[int, ...],
    told: Told,
) -> None:
    """Take the answers to all tasks and sets of a recipe from a file.

    Args:
        recipe: whose answers they must be.
        workshop: has the record that they go into.
        store: gets a line for each round.
        tasks: to take answers for; the file may hold more.
        file: see `collect.exchange`.
        rounds: of answers; those above 0 with the leader that shaped them.
        told: called with news.

    Raises:
        RecipeError: the file is of other tasks, prompts, models or sampling, or lacks answers.
    """
    answers = _Answers(file, recipe)
    answers.check(tasks, rounds)
    leader = answers.leader if rounds[-1] else None
    store.begin(recipe, tasks, leader)
    told(f"note: answers are read from {file}; nobody is asked", 0, {})
    members, trainee = recipe.members(training=True), recipe.trainee or ""
    # At temperature 0 an answer is found under the name of the deployment, which only its engine knows.
    named = {
        name: workshop.seats.engine(name).identity
        for name, member in members.items()
        if not member.trainee and member.sampling.temperature == 0
    }

    def team(task: Task, set: int) -> Team:
        engines: dict[str, Engine] = {
            name: workshop.seats.engine(name) if member.judges else answers.engine(name, task.id, set, named.get(name))
            for name, member in members.items()
            if name != trainee
        }
        earlier = answers.engine(trainee, task.id, set, None) if leader else None
        return Team(members, {**engines, trainee: Unasked()}, earlier)

    prefix = Prefix(recipe.topology.load(), rounds, leader, recipe.seed)
    collector = Collector(recipe, workshop, prefix, team, tasks, store, told, keep=False)
    try:
        workshop.play(collector.collect())
    except Refused as error:
        raise RecipeError(str(error)) from error


class _Answers:
    """The rows of a file, by task and set."""

    def __init__(self, file: Path, recipe: Recipe) -> None:
        self.file = file
        self.recipe = recipe
        self.rows: dict[tuple[str, int], list[Row]] = {}
        for row in read(file):
            self.rows.setdefault((row.task, row.set), []).append(row)

    def all(self) -> Iterator[Row]:
        return (row for rows in self.rows.values() for row in rows)

    @property
    def leader(self) -> Leader:
        """Who shaped the answers of rounds above 0."""
        trainee = self.recipe.trainee
        identity = next(row.leader for row in self.all() if row.leader)
        spoke = next(row for row in self.all() if row.agent == trainee)
        return Leader(model=spoke.model, identity=identity, sampling=spoke.sampling)

    def engine(self, name: str, task: str, set: int, identity: str | None) -> Engine:
        """Answers of one agent to one task in one set."""
        rows = [row for row in self.rows.get((task, set), ()) if row.agent == name]
        return _FromFile(f"{self.file}: task {task}, set {set}", rows, identity)

    def check(self, tasks: Sequence[Task], rounds: Sequence[int]) -> None:
        """Raises RecipeError: what differs from the recipe, or lacks."""
        problems = [*other_tasks({row.task: row.question for row in self.all()}, tasks), *self._other_agents()]
        if problems:
            raise RecipeError(f"{self.file}: its answers are not those of this recipe: {'; '.join(problems)}")
        has = sorted({row.round for row in self.all()})
        if lacking := [round for round in rounds if round not in has]:
            raise RecipeError(f"{self.file}: has rounds {_listed(has)} of answers, and {_listed(lacking)} is wanted")
        if rounds[-1] and not any(row.leader for row in self.all()):
            raise RecipeError(f"{self.file}: holds no words of a leader, and so no rounds above 0; import round 0 only")
        places = [(task.id, set) for task in tasks for set in range(self.recipe.collect.sets)]
        if missing := [f"{task} set {set}" for task, set in places if (task, set) not in self.rows]:
            raise RecipeError(
                f"{self.file}: lacks {len(missing)} of {len(places)} sets of answers ({_listed(missing[:5])}); lower "
                "collect.sets, or collect and export them all"
            )

    def _other_agents(self) -> Iterator[str]:
        wanted = {name: Agent.of(member) for name, member in self.recipe.team.items() if not member.train}
        had: dict[str, Agent] = {}
        for row in self.all():
            extra = wanted[row.agent].extra if row.agent in wanted else {}
            agent = Agent(model=row.model, revision=row.revision, sampling=row.sampling, extra=extra)
            if row.agent != self.recipe.trainee and had.get(row.agent) != agent:
                had[row.agent] = agent
                yield from other_agents({row.agent: agent}, {n: a for n, a in wanted.items() if n == row.agent})


class _FromFile:
    """One agent's answers to one task in one set, each said once, to whom asks in the same words."""

    version = 0

    def __init__(self, where: str, rows: Sequence[Row], identity: str | None) -> None:
        self.identity = identity
        self._where = where
        self._rest = list(rows)

    async def complete(self, messages: Messages, sampling: Sampling, seed: int) -> Completion:
        row = next((row for row in self._rest if row.messages == messages), None)
        if row is None:
            raise Refused(self._lacking(messages))
        self._rest.remove(row)
        said = row.completion()
        if said is None:
            raise CallFailed(row.error or "absent in the file")
        return said

    async def close(self) -> None:
        """Nothing is held."""

    def _lacking(self, messages: Messages) -> str:
        if not self._rest:
            return f"{self._where}: no answer is there; collect and export it again"
        chats: tuple[Sequence[Mapping[str, object]], ...] = (self._rest[0].messages, messages)
        texts = ([line for message in chat for line in str(message["content"]).split("\n")] for chat in chats)
        pairs = itertools.zip_longest(*texts, fillvalue="")
        there, here = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        return (
            f"{self._where}: it was asked with another version of the prompts ({there!r} there, {here!r} here); "
            "restore topology.prompts, or collect anew"
        )


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values)
