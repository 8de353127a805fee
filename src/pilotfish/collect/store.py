"""The store: what was collected in a run, and how right each answer was.

The answers themselves are in the run's journal. `store.json` says what they are answers to (see `collect.manifest`),
`collected.jsonl` has a line for each task, set and round.

    store = Store(run.folder)
    store.expect(recipe, rounds=(0,))      # refuses answers of other tasks, prompts or models
    store.verdicts()["t1", 0, 0]           # (1.0, 0.0, None)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote

from pydantic import ValidationError

from pilotfish.collect.manifest import FORMAT, Leader, Manifest, other_tasks
from pilotfish.curriculum import curriculum
from pilotfish.recipe import Recipe, RecipeError
from pilotfish.state import read, write
from pilotfish.task import Task
from pilotfish.team import Sampling
from pilotfish.train.profile import TrainConfig
from pilotfish.verify.verdict import RIGHT

Place = tuple[str, int, int]
"""Task, set, round."""


@dataclass(frozen=True, slots=True)
class Line:
    """The agents' answers of one round to a task, in one set."""

    task: str
    set: int
    round: int
    agents: tuple[str, ...]
    """Who was asked, in structural order; a name stands once for each of its copies."""
    rewards: tuple[float | None, ...]
    """None where an agent was absent, or its answer could not be judged."""
    absent: int = 0
    """How many agents did not answer."""
    leader: str | None = None
    """Scope of the leader that shaped the answers; None in round 0."""
    said: str = ""
    """Digest of the answers: when an absent agent has come back, others may have been asked anew."""

    @property
    def place(self) -> Place:
        return self.task, self.set, self.round

    @property
    def usable(self) -> bool:
        """Whether anybody answered."""
        return self.absent < len(self.agents)

    @property
    def judged(self) -> tuple[float, ...]:
        return tuple(reward for reward in self.rewards if reward is not None)

    @property
    def right(self) -> int:
        return sum(reward >= RIGHT for reward in self.judged)


COLUMNS = [field.name for field in fields(Line)]


class Store:
    """What was collected in a run's folder.

    Args:
        folder: of the run; of one with stages, that of the whole run.

    Raises:
        RecipeError: `store.json` is of a newer version, or damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest = _manifest(self.folder / "store.json")
        self._lines = {(line.leader, line.place): line for line in _read(self.folder / "collected.jsonl")}

    @property
    def sets(self) -> int:
        """Sets a task; 0 where nothing was collected."""
        return self.manifest.sets if self.manifest else 0

    @property
    def shaped(self) -> str | None:
        """Begins the scopes of the answers that a leader has shaped: the last one that was collected with."""
        return self.manifest.shaped if self.manifest else None

    @property
    def rounds(self) -> tuple[int, ...]:
        """Rounds of answers that are whole; of those above 0, under the last leader."""
        leader = self.manifest.leaders[self.shaped] if self.manifest and self.shaped else None
        return tuple(sorted(self.whole(leader)))

    def whole(self, leader: Leader | None) -> set[int]:
        """Rounds of answers that are whole; of those above 0, under a leader."""
        return {*(self.manifest.rounds if self.manifest else ()), *(leader.rounds if leader else ())}

    def led_by(self, model: str, sampling: Sampling) -> Leader | None:
        """The leader with these weights, asked in this way, that was collected with; the last of several."""
        leaders = list(self.manifest.leaders.values()) if self.manifest else []
        same = (leader for leader in reversed(leaders) if (leader.model, leader.sampling) == (model, sampling))
        return next(same, None)

    def line(self, task: str, set: int, round: int, shaped: str | None = None) -> Line | None:
        """What came of one round of a set; of those above 0, under a leader's scope, the last one's by default."""
        return self._lines.get(((shaped or self.shaped) if round else None, (task, set, round)))

    def is_shaped(self, task: str, set: int) -> bool:
        """Whether a leader has read the agents' own answers of a set: they stay what they are."""
        scopes = self.manifest.leaders if self.manifest else ()
        return any((scope, (task, set, 1)) in self._lines for scope in scopes)

    def lines(self) -> list[Line]:
        """What came of all rounds and sets; of those above 0, under the last leader."""
        return [line for line in self._lines.values() if line.leader in (None, self.shaped)]

    def share_right(self, task: str, set: int, round: int) -> float:
        """Share of right answers among the judged ones; 0 where none is."""
        line = self.line(task, set, round)
        return line.right / len(line.judged) if line and line.judged else 0.0

    def verdicts(self) -> Mapping[Place, tuple[float | None, ...]]:
        """The agents' rewards, by task, set and round."""
        return {line.place: line.rewards for line in self.lines()}

    def lacking(self, tasks: Iterable[Task], sets: int, rounds: Iterable[int]) -> list[tuple[str, int]]:
        """Tasks and sets that cannot be trained on: in one of these rounds nobody answered, or it was not reached."""
        needed = tuple(rounds)

        def whole(task: str, set: int) -> bool:
            lines = (self.line(task, set, round) for round in needed)
            return all(line is not None and line.usable for line in lines)

        return [(task.id, set) for task in tasks for set in range(sets) if not whole(task.id, set)]

    # -- what training asks

    def expect(self, recipe: Recipe, rounds: Iterable[int], tasks: Sequence[Task] | None = None) -> None:
        """Make sure that what a recipe trains on was collected, and of the same tasks, prompts and agents.

        Args:
            recipe: that is trained.
            rounds: of answers that it needs.
            tasks: its training tasks; loaded when not given.

        Raises:
            RecipeError: says what differs, or what lacks and how to collect it.
        """
        wanted = sorted({*rounds})
        led = " --leader RUN" if wanted[-1:] > [0] else ""
        ask = f"run `pilotfish collect RECIPE --run {quote(str(self.folder))} --rounds {_listed(wanted)}{led}`"
        if self.manifest is None:
            raise RecipeError(f"{self.folder}: no answers are collected; {ask}")
        self.same(recipe, self._tasks(recipe) if tasks is None else tasks)
        sets = recipe.sets(recipe.train) if isinstance(recipe.train, TrainConfig) else recipe.collect.sets
        if sets > self.sets:
            raise RecipeError(
                f"{self.folder}: collect has {self.sets} sets a task; the recipe trains on {sets}: lower train.sets, "
                "or collect more into another folder with --run and collect.sets"
            )
        if missing := [round for round in wanted if round not in self.rounds]:
            has = f"has rounds {_listed(self.rounds)}" if self.rounds else "is not finished"
            needs = f"train.decision needs {_listed(missing)}" if missing[-1] else "training needs round 0"
            raise RecipeError(f"{self.folder}: collect {has}; {needs}: {ask}")

    def same(self, recipe: Recipe, tasks: Sequence[Task]) -> None:
        """Make sure that what was collected is of these tasks, prompts and agents.

        Raises:
            RecipeError: says what differs.
        """
        assert self.manifest is not None
        found = [*other_tasks(self.manifest.tasks, tasks), *self.manifest.differences(recipe)]
        if found:
            raise RecipeError(
                f"{self.folder}: its collected answers are not those of this recipe: {'; '.join(found)}. Restore the "
                "recipe, or collect into another folder with --run"
            )

    def _tasks(self, recipe: Recipe) -> list[Task]:
        return curriculum(recipe, read(self.folder / "curriculum.json")).train

    # -- writing, by `collect`

    def begin(self, recipe: Recipe, tasks: Sequence[Task], leader: Leader | None = None) -> None:
        """Say what is collected, before it is.

        Raises:
            RecipeError: answers of other tasks, prompts or agents were collected here.
        """
        if self.manifest is not None:
            self.same(recipe, tasks)
        manifest = self.manifest or Manifest.of(recipe, tasks)
        if leader is not None:
            known = manifest.leaders.get(leader.scope, leader)
            leaders = {**manifest.leaders, leader.scope: known}
            manifest = manifest.model_copy(update={"leaders": leaders, "shaped": leader.scope})
        self._keep(manifest)

    def add(self, line: Line) -> None:
        """Write down what came of a round; a newer line of the same place counts."""
        self._lines[line.leader, line.place] = line
        with (self.folder / "collected.jsonl").open("a+b") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")  # what a killed process left unfinished
            file.write(json.dumps({name: getattr(line, name) for name in COLUMNS}).encode() + b"\n")

    def finish(self, rounds: Iterable[int], leader: Leader | None = None) -> None:
        """Say that these rounds are whole."""
        assert self.manifest is not None
        manifest = self.manifest
        if leader is not None:
            whole = tuple(sorted({*manifest.leaders[leader.scope].rounds, *rounds} - {0}))
            led = manifest.leaders[leader.scope].model_copy(update={"rounds": whole})
            manifest = manifest.model_copy(update={"leaders": {**manifest.leaders, leader.scope: led}})
        if 0 in rounds:
            manifest = manifest.model_copy(update={"rounds": (0,)})
        self._keep(manifest)

    def _keep(self, manifest: Manifest) -> None:
        self.manifest = manifest
        write(self.folder / "store.json", manifest.model_dump_json(indent=1))


def _manifest(file: Path) -> Manifest | None:
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text())
        if found["format"] > FORMAT:
            raise RecipeError(f"{file}: written by a newer Pilotfish (format {found['format']}); upgrade to read it")
        return Manifest.model_validate(found)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise RecipeError(f"{file}: not a store of answers, or damaged; move it away and collect again") from error


def _read(file: Path) -> Iterator[Line]:
    """The lines of a file; what a killed process left unfinished is passed over."""
    for row in file.read_text().splitlines() if file.exists() else []:
        try:
            found = json.loads(row)
            yield Line(**{**found, "agents": tuple(found["agents"]), "rewards": tuple(found["rewards"])})
        except (ValueError, KeyError, TypeError):
            continue


def _listed(rounds: Iterable[int]) -> str:
    return ",".join(str(round) for round in rounds)
